"""A cluster alone in the foreground, until SIGINT or SIGTERM: the command of both distributions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster


async def run_cluster(
    options: ClusterOptions, kubeconfig: Path, say: Callable[[str], None]
) -> None:
    """Run a cluster and write its kubeconfig; raises OSError that names a port in use."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with EmbeddedCluster(options) as cluster:
        cluster.server.write_kubeconfig(kubeconfig)
        say(f"cluster listening on {cluster.url}, kubeconfig {kubeconfig}")
        await stop.wait()
