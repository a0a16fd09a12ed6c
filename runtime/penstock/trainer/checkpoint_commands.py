"""``penstock checkpoint``: what can be done with a session's checkpoints outside a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

checkpoint = typer.Typer(
    help="Checkpoints of sessions, for other programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@checkpoint.callback()
def _group() -> None:
    """Several commands, of which there is one so far."""


@checkpoint.command()
def export(
    source: Annotated[Path, typer.Argument(help="A session's checkpoint folder, or a file of it.")],
    target: Annotated[
        str, typer.Argument(help="Folder to write; with fsspec, a URL such as s3://BUCKET/NAME.")
    ],
    step: Annotated[
        int | None, typer.Option(min=0, help="Which one of a folder; default: the newest.")
    ] = None,
) -> None:
    """Write a checkpoint in the form of torch.distributed.checkpoint."""
    from penstock.trainer.checkpoint_export import export as write
    from penstock.trainer.checkpoint_file import CheckpointError

    try:
        done = write(source, target, step)
    except (CheckpointError, OSError) as error:
        typer.echo(f"penstock checkpoint export: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"step {done}: {target}")
