"""A cluster alone in the foreground, until it is told to end: the command of both distributions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster


async def run_cluster(
    options: ClusterOptions, kubeconfig: Path, say: Callable[[str], None]
) -> None:
    """Run a cluster and write its kubeconfig, until SIGINT, SIGTERM or a closed terminal.

    Raises:
        OSError: the port, a folder, the database or the kubeconfig cannot be used, or the last
            changes could not be saved.
        NodeDeclarationError: the API server refuses a node.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue  # nohup
        loop.add_signal_handler(number, stop.set)
    async with EmbeddedCluster(options) as cluster:
        cluster.server.write_kubeconfig(kubeconfig)
        say(f"cluster listening on {cluster.url}, kubeconfig {kubeconfig}")
        await stop.wait()


def error_line(error: Exception) -> str:
    """What a person is told of an error that ended a command, with the file that it names."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split())
