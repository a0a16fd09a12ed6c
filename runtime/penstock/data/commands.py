"""``penstock data-worker``: the command of a data worker's pod."""

from __future__ import annotations

from typing import Annotated

import typer


def data_worker(
    dispatcher: Annotated[
        str | None, typer.Option(help="HOST:PORT of the job's trainer; default: from the pod.")
    ] = None,
    tcp: Annotated[
        bool, typer.Option("--tcp", help="Never use shared memory, not even on the same node.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Make batches for the training processes of a job, until told to leave."""
    from penstock.data.allocator import begin_again

    begin_again()  # before most of what it needs is loaded
    from penstock.data import worker_process

    try:
        worker_process.run(dispatcher, share_memory=not tcp, log_format=log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
