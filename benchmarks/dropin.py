"""How long an unmodified DDP script stands still when pods come and go, beside torchrun.

    python -m benchmarks.dropin --json
    python -m benchmarks.dropin --part changes --changes 2:1,1:2 --json
    python -m benchmarks.dropin --part kills --kills 3 --peer penstock --json
    python -m benchmarks.dropin --part growth --json

Pods are local agents with one training process each, and a trainer: no cluster (`runs_on` of the
rows). For each change the time from the last step of the old world to the first of the new one,
beside a plain start (torchrun, static) of as many processes to their first step. Pods leave by
SIGTERM, and by SIGKILL of the agent that has rank 0, whose pod is replaced at once (``--kills``).
The same with torchrun's elastic rendezvous (c10d), as it is and with ``last_call_timeout=1``; there
the first agent hosts the store. With PyTorch 2.13 no second world comes about so, whatever changes
(agents wait 60 s for ``role_info`` and fail); it does where ranks have a store of their own
(``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``), which are peers, too. What is trained costs sleep and no
CPU; what a start costs is PyTorch's import, so that on a busy machine all these times grow
together. Each gap and each start is a row of ``timelines``, too: where its seconds went
(`benchmarks.dropin_steps`).

The last part, growth, is of the same script in a job of an embedded cluster, with ``optimize:
Auto`` and bounds of one and two workers: whether, and when, its Brain gives it the second one. That
Brain plans every few seconds (`BRAIN`), where it takes a minute otherwise. What is done, and how
long it took, is said on standard error as it goes on: the whole takes half an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.dropin_steps import Steps
from benchmarks.elastic.cluster import Cluster, api_server
from benchmarks.elastic.processes import ROOT, kill_tree, running_job
from benchmarks.goals import Goal, at_least, at_most, report

SCRIPT: Final = str(ROOT / "benchmarks" / "dropin_programs" / "train.py")
CHANGES: Final = "4:3,3:4,4:6"
ALLOWED_SECONDS: Final = 1.0
"""A change may cost so much beside a plain start of as many processes."""
PARTS: Final = ("changes", "kills", "growth")
SETTLED_SECONDS: Final = 1.0
BRAIN: Final = {
    "administrator": {"enough_steps": 50, "enough_seconds": 8, "interval_seconds": 6},
    "algorithms": {"scale_allreduce": {"params": {"enough_steps": 50, "enough_seconds": 8}}},
}
NODES: Final = [{"name": "node", "count": 2, "cpu": "4", "memory": "8Gi"}]
OWN_STORE: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else ranks use the rendezvous's store: with PyTorch 2.13 no second world comes about."""
KEPT_SECONDS: Final = 30.0
"""For so long the second worker is watched: one that did not pay would be given back."""


class Pods(Protocol):
    """Agents, each of which stands for a pod."""

    def add(self, number: int) -> None:
        """Start one."""

    def drain(self, number: int) -> None:
        """Ask one to end."""

    def kill(self, number: int) -> None:
        """Kill one, and what it started."""

    def alive(self) -> bool:
        """Whether any of them runs."""


class PenstockPods:
    """Agents of ``penstock run --nproc-per-node=1`` and their trainer."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._job = stack.enter_context(running_job(folder))
        self._job.start_trainer()

    def add(self, number: int) -> None:
        """See `Pods`."""
        folder = str(self._job.folder)
        self._job.start_worker(number, SCRIPT, folder, options=("--nproc-per-node=1",))

    def drain(self, number: int) -> None:
        """See `Pods`."""
        self._job.drain(number)

    def kill(self, number: int) -> None:
        """See `Pods`."""
        self._job.kill(number)

    def alive(self) -> bool:
        """See `Pods`."""
        return any(agent.poll() is None for agent in self._job.workers.values())


class TorchrunPods:
    """Agents of torchrun with its elastic rendezvous, on the first of them."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, *conf: str, **environ: str
    ) -> None:
        self._folder = folder
        self._conf = conf
        self._environ = environ
        self._port = _free_port()
        self._agents: dict[int, subprocess.Popen[bytes]] = {}
        stack.callback(self._close)

    def add(self, number: int) -> None:
        """See `Pods`."""
        options = (
            "--nnodes=1:8",
            "--nproc-per-node=1",
            "--max-restarts=100",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self._port}",
            "--rdzv-id=job",
            f"--rdzv-conf={','.join((f'is_host={number == 0}', *self._conf))}",
        )
        self._agents[number] = _torchrun(self._folder, f"{number}.log", *options, **self._environ)

    def drain(self, number: int) -> None:
        """See `Pods`."""
        self._agents[number].send_signal(signal.SIGTERM)

    def kill(self, number: int) -> None:
        """See `Pods`."""
        _kill(self._agents[number])

    def alive(self) -> bool:
        """See `Pods`."""
        return any(agent.poll() is None for agent in self._agents.values())

    def _close(self) -> None:
        for agent in self._agents.values():
            _kill(agent)


def _torchrun(folder: Path, log: str, *options: str, **environ: str) -> subprocess.Popen[bytes]:
    with (folder / log).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, SCRIPT, str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _kill(agent: subprocess.Popen[bytes]) -> None:
    kill_tree(agent.pid)
    agent.wait(10)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dropin-", ignore_cleanup_errors=True) as name:
        yield Path(name)


Make = Callable[[Path, contextlib.ExitStack], Pods]
Timeline = dict[str, Any]


def static_start(size: int) -> Timeline:
    """From the start of torchrun to the first step that all of its processes have taken."""
    with _folder() as folder:
        began = time.time()
        options = ("--standalone", f"--nproc-per-node={size}")
        agent = _torchrun(folder, "static.log", *options)
        try:
            steps = Steps(folder)
            there = steps.wait_for_world(size, began, lambda: agent.poll() is None)
            assert there, (folder / "static.log").read_text()
            return steps.start_timeline(began)
        finally:
            _kill(agent)


def changed(make: Make, before: int, after: int) -> Timeline | None:
    """The gap of one change; None where the world did not come about."""
    with _folder() as folder, contextlib.ExitStack() as stack:
        pods, steps = make(folder, stack), Steps(folder)
        began = time.time()
        for number in range(before):
            pods.add(number)
        if not steps.wait_for_world(before, began, pods.alive):
            return None
        asked = time.time()
        for number in range(before, after):
            pods.add(number)
        for number in range(after, before):
            pods.drain(number)
        if not steps.wait_for_world(after, asked, pods.alive):
            return None
        time.sleep(SETTLED_SECONDS)
        return steps.timeline(asked)


def killed(make: Make, pods_there: int, kills: int) -> Iterator[Timeline | None]:
    """Kill the pod of rank 0 so often; the gap of each kill, and None once it was not survived."""
    with _folder() as folder, contextlib.ExitStack() as stack:
        pods, steps = make(folder, stack), Steps(folder)
        began = time.time()
        for number in range(pods_there):
            pods.add(number)
        for _ in range(kills):
            if not steps.wait_for_world(pods_there, began, pods.alive):
                return
            asked = time.time()
            pods.kill(0)  # the lowest number: the ranks of both are in its order
            survived = steps.wait_for_world(pods_there - 1, asked, pods.alive)
            yield steps.timeline(asked) if survived else None
            if not survived:
                return
            began = time.time()
            pods.add(0)


def grown() -> dict[str, Any]:
    """What becomes of a job of one worker, at most two, that its Brain may size."""
    with _folder() as folder:
        config = folder / "brain.yaml"
        config.write_text(json.dumps(BRAIN))
        with api_server(folder / "home", NODES, f"--brain-config={config}") as cluster:
            steps, began = Steps(folder), time.time()
            cluster.apply(_plain_job(folder))
            if not steps.wait_for_world(1, began):
                return {"workers": 0}
            alone = time.time()
            if not steps.wait_for_world(2, alone):
                return {"workers": 1, "plans": _messages(cluster)}
            row: dict[str, Any] = {"second_worker_after_seconds": round(time.time() - alone, 1)}
            before = steps.per_second(alone, alone + row["second_worker_after_seconds"] / 2)
            time.sleep(KEPT_SECONDS)
            now = time.time()
            row |= {
                "workers": len(cluster.pods("worker")),
                "steps_per_second_of_one": before,
                "steps_per_second_of_two": steps.per_second(now - KEPT_SECONDS / 2, now),
                "plans": _messages(cluster),
            }
            (folder / "stop").touch()
            return row


def _plain_job(folder: Path) -> dict[str, Any]:
    command = ["penstock", "run", "--nproc-per-node=1", "--", sys.executable, SCRIPT, str(folder)]
    container = {"name": "main", "image": "penstock/examples", "command": command}
    worker = {"maxReplicas": 2, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "plain"},
        "spec": {"strategy": "AllReduce", "optimize": "Auto", "replicaSpecs": {"worker": worker}},
    }


def _messages(cluster: Cluster) -> list[str]:
    return [plan["message"] for plan in cluster.plans("plain")]


PENSTOCK: Final = "penstock"
PEERS: Final[dict[str, Make]] = {
    PENSTOCK: PenstockPods,
    "torchrun c10d": TorchrunPods,
    "torchrun c10d, last call 1 s": lambda folder, stack: TorchrunPods(
        folder, stack, "last_call_timeout=1"
    ),
    "torchrun c10d, own store": lambda folder, stack: TorchrunPods(folder, stack, **OWN_STORE),
    "torchrun c10d, own store, last call 1 s": lambda folder, stack: TorchrunPods(
        folder, stack, "last_call_timeout=1", **OWN_STORE
    ),
}


class Runs:
    """What has been measured so far, each thing said as it is done."""

    def __init__(self, peers: dict[str, Make]) -> None:
        self.peers = peers
        self.timelines: list[Timeline] = []
        self.goals: list[Goal] = []
        self._since = time.monotonic()

    def note(self, what: str, who: str, timeline: Timeline | None) -> Timeline | None:
        """Add a timeline, if there is one; and return it."""
        now = time.monotonic()
        print(f"{what}, {who}: after {now - self._since:.0f} s", file=sys.stderr, flush=True)
        self._since = now
        if timeline is not None:
            self.timelines.append({"what": what, "who": who, **timeline})
        return timeline

    def static(self, size: int) -> float:
        """Seconds of a plain start of so many processes."""
        timeline = self.note(f"start of {size}", "torchrun, static", static_start(size))
        assert timeline is not None
        return float(timeline["start_seconds"])

    def change(self, before: int, after: int) -> dict[str, Any]:
        """A row of one change, and its goal where Penstock is among the peers."""
        what = f"{before} to {after}"
        row: dict[str, Any] = {"change": what, "runs_on": "local agents"}
        row["static_start_seconds"] = self.static(after)
        for name, make in self.peers.items():
            timeline = self.note(what, name, changed(make, before, after))
            row[f"{name}, gap in seconds"] = timeline and timeline["gap_seconds"]
        if PENSTOCK in self.peers:
            allowed = round(row["static_start_seconds"] + ALLOWED_SECONDS, 2)
            gap = row[f"{PENSTOCK}, gap in seconds"]
            self.goals.append(at_most(f"gap, {what}", allowed, gap))
        return row

    def kills(self, pods: int, kills: int) -> list[dict[str, Any]]:
        """A row for each peer: torchrun's is killed once, since it does not come back."""
        rows = []
        for name, make in self.peers.items():
            wanted = kills if name == PENSTOCK else 1
            found = [
                self.note(f"kill {number} of rank 0's pod of {pods}", name, timeline)
                for number, timeline in enumerate(killed(make, pods, wanted), 1)
            ]
            seconds = [timeline["gap_seconds"] for timeline in found if timeline is not None]
            row = {"who": name, "pods": pods, "kills": len(found)}
            rows.append({**row, "survived": len(seconds), "gaps_seconds": seconds})
        if PENSTOCK in self.peers:
            self.goals += _goals_of_kills(rows[0], kills, self.static(pods - 1))
        return rows

    def growth(self) -> dict[str, Any]:
        """What becomes of a plain script in a cluster, and its goal."""
        row: dict[str, Any] = {"workers": 0}
        try:
            row = grown()
        except TimeoutError as error:  # what was measured before is not lost for it
            row["why"] = str(error)
        self.note("growth", PENSTOCK, None)
        goal = at_least("workers that Auto gave a plain script", 2, row["workers"])
        self.goals.append(goal)
        return row


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="again for more; else all")
    parser.add_argument("--peer", action="append", choices=PEERS, help="again for more; else all")
    parser.add_argument("--changes", default=CHANGES, help="pods before and after, as 4:3,3:4")
    parser.add_argument("--kills", type=int, default=20, help="of the pod of rank 0, one by one")
    parser.add_argument("--seed", type=int, default=0, help="of the order of what is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    parts = options.part or PARTS
    changes = [tuple(map(int, one.split(":"))) for one in options.changes.split(",")]
    random.Random(options.seed).shuffle(changes)
    runs = Runs({name: PEERS[name] for name in PEERS if name in (options.peer or PEERS)})
    result: dict[str, Any] = {"seed": options.seed, "load": round(os.getloadavg()[0], 2)}
    if "changes" in parts:
        result["rows"] = [runs.change(before, after) for before, after in changes]
    if "kills" in parts:
        most = max(2, *(before for before, _ in changes))
        result["kills"] = runs.kills(most, options.kills)
    if "growth" in parts:
        result["growth"] = runs.growth()
    result |= {"timelines": runs.timelines, "load_after": round(os.getloadavg()[0], 2)}
    return report(result, runs.goals, as_json=options.json)


def _goals_of_kills(row: dict[str, Any], wanted: int, static: float) -> list[Goal]:
    gaps = sorted(row["gaps_seconds"])
    median = gaps[len(gaps) // 2] if gaps else None
    return [
        at_least("kills of rank 0's pod that the others survived", wanted, row["survived"]),
        at_most("gap of a kill, median", round(static + ALLOWED_SECONDS, 2), median),
    ]


if __name__ == "__main__":
    sys.exit(main())
