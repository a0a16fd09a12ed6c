"""Kill the controller at every one of its calls, and see the same life each time.

    python -m tests.controller.crash_anywhere                 # in process, every call, twice
    python -m tests.controller.crash_anywhere --processes     # kill -9 of a process, every call

Each life runs in a namespace of its own. At a kill point the controller dies either before the
server has carried the call out, or after it has but before the answer arrives; a new one starts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from penstock.controller.reconcile import Settings
from penstock.controller.reconcile.model import timing
from penstock.controller.service import USER_AGENT
from penstock.kube.connection import connect
from penstock_cluster.testing import RunningCluster, api_server
from tests.controller.scripted_life import Trap, World, install

Json = dict[str, Any]
Story = list[tuple[str, Json]]

LIFE_SECONDS = 170.0
INTERVALS = ("STATUS_INTERVAL", "SCALING_STATUS_INTERVAL", "CREATED_STATUS_INTERVAL")
FEWER = 3
"""A life may have fewer calls than another: statuses that come close together are one write."""
_NUMBERS = iter(range(1, 1_000_000))
_STORYTELLER = ThreadPoolExecutor(1, thread_name_prefix="life")


@contextlib.contextmanager
def stage() -> Iterator[RunningCluster]:
    """A server with the CRDs; counts are written often, so that a life is short."""
    before = {name: getattr(timing, name) for name in INTERVALS}
    with api_server() as cluster:
        cluster.run(install(cluster.engine))
        for name in INTERVALS:
            setattr(timing, name, timedelta(milliseconds=50))  # for this run alone
        try:
            yield cluster
        finally:
            for name, interval in before.items():
                setattr(timing, name, interval)


def in_process(cluster: RunningCluster, point: int, after: bool) -> tuple[Story, Trap]:
    """One life with a controller that is cancelled at one call; 0: at none."""
    world, trap, life = _begin(cluster, point, after)
    while not life.done():
        asyncio.run(_one_operator(cluster, trap, life))
    return _end(world, trap, life)


async def _one_operator(cluster: RunningCluster, trap: Trap, life: Future[None]) -> None:
    """An operator until it is killed or the life is over."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def ring(_: Any = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of a killed operator
            loop.call_soon_threadsafe(over.set)

    trap.kill = ring
    life.add_done_callback(ring)
    client = await connect(cluster.kubeconfig_path, USER_AGENT)
    options = Options(Settings(trainer_image="trainer"), namespace=trap.namespace)
    operator = Operator(client, options, Metrics(), random_source=random.Random(1))
    task = asyncio.create_task(operator.run())
    ended = asyncio.create_task(over.wait())
    try:
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for one in (task, ended):
            one.cancel()
        await asyncio.gather(task, ended, return_exceptions=True)
        await client.close()  # type: ignore[no-untyped-call]  # the library is untyped here


def processes(cluster: RunningCluster, point: int, after: bool, log: Path) -> tuple[Story, Trap]:
    """One life with a controller process that gets SIGKILL at one call; 0: at none."""
    world, trap, life = _begin(cluster, point, after)
    while not life.done():
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "penstock.cli",
                    "controller",
                    "--no-leader-election",
                    f"--kubeconfig={cluster.kubeconfig_path}",
                    "--metrics-port=0",
                    f"--namespace={trap.namespace}",
                ],
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        trap.kill = lambda process=process: os.kill(process.pid, signal.SIGKILL)
        over = threading.Event()
        life.add_done_callback(lambda _, over=over: over.set())
        while process.poll() is None and not over.wait(0.05):
            pass
        if process.poll() is None:
            process.terminate()
        process.wait(20)
    return _end(world, trap, life)


def _begin(cluster: RunningCluster, point: int, after: bool) -> tuple[World, Trap, Future[None]]:
    namespace = cluster.namespace(f"life-{next(_NUMBERS)}")
    world, trap = World(cluster.engine, namespace), Trap(namespace, point, after)
    cluster.engine.interceptor = trap
    life = _STORYTELLER.submit(cluster.run, _live(world), LIFE_SECONDS)
    return world, trap, life


async def _live(world: World) -> None:
    async with world.running():
        await world.live()


def _end(world: World, trap: Trap, life: Future[None]) -> tuple[Story, Trap]:
    life.result(1)
    if trap.point:
        missing = trap.point - len(trap.calls)
        assert trap.sprung or missing <= FEWER, f"{missing} calls too few for call {trap.point}"
    return world.stages, trap


def difference(expected: Story, found: Story) -> str:
    """The first stage at which two lives differ, or ""."""
    for (name, want), (_, have) in zip(expected, found, strict=True):
        for key in want:
            if want[key] != have[key]:
                return f"stage {name!r}: {key}: {have[key]} instead of {want[key]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the controller at every call it makes.")
    parser.add_argument("--processes", action="store_true", help="kill -9 real processes")
    parser.add_argument("--first", type=int, default=1, help="the first call to kill at")
    parser.add_argument(
        "--last", type=int, help="the last call to kill at; the life's last if absent"
    )
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    arguments = parser.parse_args()
    bad = 0
    with stage() as cluster:
        expected, trap = in_process(cluster, 0, after=False)
        calls = len(trap.calls)
        print(f"a life has {calls} calls that write, so {2 * calls} kill points", flush=True)
        chosen = range(max(1, arguments.first), min(calls, arguments.last or calls) + 1)
        for point in chosen:
            for after in (False, True):
                try:
                    if arguments.processes:
                        found, _ = processes(cluster, point, after, arguments.log)
                    else:
                        found, _ = in_process(cluster, point, after)
                except AssertionError as error:
                    told = str(error)
                else:
                    told = difference(expected, found)
                where = "after" if after else "before"
                bad += bool(told)
                verdict = f"DIFFERS: {told}" if told else "same"
                print(f"{where} call {point} ({trap.calls[point - 1]}): {verdict}", flush=True)
    points = 2 * len(chosen)
    print(f"{points - bad} of {points} kill points lead to the same life")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
