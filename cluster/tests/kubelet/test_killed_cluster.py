"""kill -9 of a cluster's process leaves no process of its pods behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster.tests.kubelet.clusters import is_running

PROGRAM = """
import asyncio, sys
from pathlib import Path
from cluster.tests.kubelet.clusters import Cluster, pod
from penstock_cluster.cluster import ClusterOptions

async def main():
    folder = Path(sys.argv[1])
    async with Cluster(ClusterOptions(folder=folder / "pods", tls=False)) as cluster:
        for name in ("a", "b"):
            file = folder / name
            told = f"echo $$$$ $! > {file}.new; mv {file}.new {file}"
            await cluster.run(pod(name, f"trap '' TERM; sleep 61 & {told}; wait"))
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_nothing_is_left(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    cluster = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    try:
        wait_until(lambda: all(file.exists() for file in files), "both pods run")
        pids = [int(pid) for file in files for pid in file.read_text().split()]
        assert len(pids) == 4
        assert all(map(is_running, pids))
        cluster.send_signal(signal.SIGKILL)
        cluster.wait()
        wait_until(lambda: not any(map(is_running, pids)), "all processes are gone")
    finally:
        cluster.kill()
        cluster.wait()


def wait_until(condition, what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)
