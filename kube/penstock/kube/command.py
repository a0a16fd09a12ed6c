"""What the commands of a process that watches a cluster have in common: options, and how they end.

Imports nothing that a command would not need to print its help.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.logs import LogFormat

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(help="Kubeconfig of the cluster; else $KUBECONFIG or the cluster it runs in."),
]
HostOption = Annotated[str, typer.Option(help="Address for health and metrics.")]
MetricsPortOption = Annotated[
    int,
    typer.Option(min=0, max=65535, help="Port for health and metrics; 0 takes a free one."),
]
LeaseNameOption = Annotated[str, typer.Option(help="Name of the Lease for leader election.")]
LogFormatOption = Annotated[LogFormat, typer.Option(help="Form of log lines on standard error.")]


def announce(command: str, url: str) -> None:
    """Say where health and metrics are: the one line that such a command prints."""
    print(f"{command} listening on {url}", flush=True)  # noqa: T201  it is the command's output


def run(
    command: str, service: Coroutine[None, None, bool], refused: tuple[type[Exception], ...]
) -> None:
    """Run a service to its end; exit with 2 where it cannot start, with 1 where it lost the Lease.

    Args:
        command: its name, for what it says on standard error.
        service: says whether it ended in good order.
        refused: errors that say what to do.
    """
    import asyncio

    from penstock.kube.election import LOST

    try:
        orderly = asyncio.run(service)
    except refused as error:
        typer.echo(f"penstock {command}: {error}", err=True)
        raise typer.Exit(2) from error
    if not orderly:
        typer.echo(f"penstock {command}: lost the Lease; start it again", err=True)
        raise typer.Exit(LOST)
