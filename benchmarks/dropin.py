"""How long an unmodified DDP script stands still when pods come and go, beside torchrun.

    python -m benchmarks.dropin --json
    python -m benchmarks.dropin --part changes --changes 2:1,1:2 --json
    python -m benchmarks.dropin --part kills --kills 3 --peer "penstock in pods" --json
    python -m benchmarks.dropin --part growth --json

Pods have one training process each. Those of ``penstock in pods`` are of an ElasticJob in an
embedded cluster, whose workers are set to another number, or whose pod of rank 0 is deleted without
a grace period and replaced by the controller; those of ``penstock`` are local agents and a trainer,
without a cluster, and so are torchrun's. For each change the time from the last step of the old
world to the first of the new one, beside a plain start (torchrun, static, without a cluster) of as
many processes to their first step. Pods leave by SIGTERM, and by SIGKILL of the one that has rank 0
(``--kills``). What a cluster needs to have new pods is in ``pods``, seconds from the request: made
(Penstock's controller), bound and running (the embedded cluster's binder and kubelet), beside when
the training stood still and when it went on: it trains on until the new pods have joined.
The same with torchrun's elastic rendezvous (c10d), as it is and with ``last_call_timeout=1``; there
the first agent hosts the store. With PyTorch 2.13 no second world comes about so, whatever changes
(agents wait 60 s for ``role_info`` and fail); it does where ranks have a store of their own
(``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``), which are peers, too. What is trained costs sleep and no
CPU; what a start costs is PyTorch's import, so that on a busy machine all these times grow
together. Each gap and each start is a row of ``timelines``, too: where its seconds went
(`benchmarks.dropin_steps`).

The last part, growth, is of the same script in a job of an embedded cluster, with ``optimize:
Auto`` and bounds of one and two workers: whether, and when, its Brain gives it the second one. That
Brain plans every few seconds (`dropin_cluster.BRAIN`), where it takes a minute otherwise. What is
done, and how long it took, is said on standard error as it goes on: the whole takes three quarters
of an hour.
"""

from __future__ import annotations

import argparse
import contextlib
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
from statistics import mean
from typing import Any, Final, Protocol

from benchmarks.dropin_cluster import SCRIPT, ClusterPods, grown
from benchmarks.dropin_steps import Steps
from benchmarks.elastic.processes import ROOT, kill_tree, running_job
from benchmarks.goals import Goal, at_least, at_most, report

CHANGES: Final = "4:3,3:4,4:6"
ALLOWED_SECONDS: Final = 1.0
"""A change may cost so much beside a plain start of as many processes."""
PARTS: Final = ("changes", "kills", "growth")
SETTLED_SECONDS: Final = 1.0
OWN_STORE: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else ranks use the rendezvous's store: with PyTorch 2.13 no second world comes about."""


class Pods(Protocol):
    """Agents, each of which stands for a pod, or is in one.

    Attributes:
        replaces: a killed one is replaced by itself.
    """

    replaces: bool

    def resize(self, count: int) -> None:
        """Start pods, or ask the last ones to end, until there are so many."""

    def kill_first(self) -> None:
        """Kill the pod of rank 0, and what it started."""

    def alive(self) -> bool:
        """Whether any of them runs."""

    def seconds_since(self, asked: float) -> dict[str, Any] | None:
        """How long new pods took to be there; None where there is nothing to wait for."""


class LocalPods:
    """Pods that are processes of this machine, by number; ranks are in the order of numbers."""

    replaces = False

    def __init__(self) -> None:
        self._there: set[int] = set()

    def resize(self, count: int) -> None:
        """See `Pods`."""
        for number in set(range(count)) - self._there:
            self._add(number)
        for number in self._there - set(range(count)):
            self._drain(number)
        self._there = set(range(count))

    def kill_first(self) -> None:
        """See `Pods`."""
        self._kill(min(self._there))
        self._there.remove(min(self._there))

    def seconds_since(self, asked: float) -> None:
        """See `Pods`."""

    def _add(self, number: int) -> None:
        raise NotImplementedError

    def _drain(self, number: int) -> None:
        raise NotImplementedError

    def _kill(self, number: int) -> None:
        raise NotImplementedError


class PenstockPods(LocalPods):
    """Agents of ``penstock run --nproc-per-node=1`` and their trainer."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        super().__init__()
        self._job = stack.enter_context(running_job(folder))
        self._job.start_trainer()

    def alive(self) -> bool:
        """See `Pods`."""
        return any(agent.poll() is None for agent in self._job.workers.values())

    def _add(self, number: int) -> None:
        folder = str(self._job.folder)
        self._job.start_worker(number, SCRIPT, folder, options=("--nproc-per-node=1",))

    def _drain(self, number: int) -> None:
        self._job.drain(number)

    def _kill(self, number: int) -> None:
        self._job.kill(number)


class TorchrunPods(LocalPods):
    """Agents of torchrun with its elastic rendezvous, on the first of them."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, *conf: str, **environ: str
    ) -> None:
        super().__init__()
        self._folder = folder
        self._conf = conf
        self._environ = environ
        self._port = _free_port()
        self._agents: dict[int, subprocess.Popen[bytes]] = {}
        stack.callback(self._close)

    def alive(self) -> bool:
        """See `Pods`."""
        return any(agent.poll() is None for agent in self._agents.values())

    def _add(self, number: int) -> None:
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

    def _drain(self, number: int) -> None:
        self._agents[number].send_signal(signal.SIGTERM)

    def _kill(self, number: int) -> None:
        _kill(self._agents[number])

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
        pods.resize(before)
        if not steps.wait_for_world(before, began, pods.alive):
            return None
        asked = time.time()
        pods.resize(after)
        if not steps.wait_for_world(after, asked, pods.alive):
            return None
        time.sleep(SETTLED_SECONDS)
        return _timeline(pods, steps, asked)


def killed(make: Make, pods_there: int, kills: int) -> Iterator[Timeline | None]:
    """Kill the pod of rank 0 so often; the gap of each kill, and None once it was not survived.

    Where the pod is replaced by itself, until the replacement trains, too: the longest gap.
    """
    with _folder() as folder, contextlib.ExitStack() as stack:
        pods, steps = make(folder, stack), Steps(folder)
        asked = time.time()
        pods.resize(pods_there)
        for _ in range(kills):
            if not steps.wait_for_world(pods_there, asked, pods.alive):
                return
            asked = time.time()
            pods.kill_first()
            left = pods_there if pods.replaces else pods_there - 1
            survived = steps.wait_for_world(left, asked, pods.alive)
            yield _timeline(pods, steps, asked) if survived else None
            if not survived:
                return
            if not pods.replaces:
                asked = time.time()
                pods.resize(pods_there)


def _timeline(pods: Pods, steps: Steps, asked: float) -> Timeline:
    """A gap's; with new pods of a cluster, when these were there, as ``pods``."""
    timeline: Timeline = {**steps.timeline(asked)}
    if there := pods.seconds_since(asked):
        still, again = (round(moment - asked, 2) for moment in steps.gap(asked))
        there |= {"stands_still_seconds": still, "trains_again_seconds": again}
        timeline["pods"] = there
    return timeline


IN_PODS: Final = "penstock in pods"
PENSTOCK: Final = (IN_PODS, "penstock")
PEERS: Final[dict[str, Make]] = {
    IN_PODS: ClusterPods,
    "penstock": PenstockPods,
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
        self.pods: list[Timeline] = []
        self.goals: list[Goal] = []
        self._since = time.monotonic()

    def note(self, what: str, who: str, timeline: Timeline | None) -> Timeline | None:
        """Add a timeline, if there is one; and return it."""
        now = time.monotonic()
        print(f"{what}, {who}: after {now - self._since:.0f} s", file=sys.stderr, flush=True)
        self._since = now
        if timeline is not None:
            if there := timeline.pop("pods", None):
                self.pods.append({"what": what, "who": who, **there})
            self.timelines.append({"what": what, "who": who, **timeline})
        return timeline

    def static(self, size: int) -> float:
        """Seconds of a plain start of so many processes."""
        timeline = self.note(f"start of {size}", "torchrun, static", static_start(size))
        assert timeline is not None
        return float(timeline["start_seconds"])

    def change(self, before: int, after: int) -> dict[str, Any]:
        """A row of one change, and its goals for Penstock."""
        what = f"{before} to {after}"
        row: dict[str, Any] = {"change": what}
        row["static_start_seconds"] = self.static(after)
        for name, make in self.peers.items():
            timeline = self.note(what, name, changed(make, before, after))
            row[f"{name}, gap in seconds"] = timeline and timeline["gap_seconds"]
        allowed = round(row["static_start_seconds"] + ALLOWED_SECONDS, 2)
        for name in self._own():
            gap = row[f"{name}, gap in seconds"]
            self.goals.append(at_most(f"gap, {what}, {name}", allowed, gap))
        return row

    def kills(self, pods: int, kills: int) -> list[dict[str, Any]]:
        """A row for each peer: torchrun's is killed once, since it does not come back.

        Plain starts are before and after Penstock's kills: what the machine does may change.
        """
        rows = []
        for name, make in self.peers.items():
            wanted = kills if name in PENSTOCK else 1
            starts: dict[int, list[float]] = {}
            if name in PENSTOCK:
                left = pods if name == IN_PODS else pods - 1
                starts[left] = [self.static(left)]
            found = [
                self.note(f"kill {number} of rank 0's pod of {pods}", name, timeline)
                for number, timeline in enumerate(killed(make, pods, wanted), 1)
            ]
            survived = [timeline for timeline in found if timeline is not None]
            row: dict[str, Any] = {"who": name, "pods": pods, "kills": len(found)}
            row["survived"] = len(survived)
            row["gaps_seconds"] = [timeline["gap_seconds"] for timeline in survived]
            rows.append(row)
            if name not in PENSTOCK:
                continue
            worlds = [int(timeline["world"]) for timeline in survived]
            for size in sorted({*worlds}):
                starts.setdefault(size, []).append(self.static(size))
            row["worlds"] = worlds
            row["static_start_seconds"] = [round(mean(starts[size]), 2) for size in worlds]
            self.goals += _goals_of_kills(row, kills)
        return rows

    def _own(self) -> list[str]:
        return [name for name in PENSTOCK if name in self.peers]

    def growth(self) -> dict[str, Any]:
        """What becomes of a plain script in a cluster, and its goal."""
        row: dict[str, Any] = {"workers": 0}
        try:
            with _folder() as folder:
                row = grown(folder)
        except TimeoutError as error:  # what was measured before is not lost for it
            row["why"] = str(error)
        self.note("growth", IN_PODS, None)
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
    result |= {"pods": runs.pods, "timelines": runs.timelines}
    result["load_after"] = round(os.getloadavg()[0], 2)
    return report(result, runs.goals, as_json=options.json)


def _goals_of_kills(row: dict[str, Any], wanted: int) -> list[Goal]:
    beyond = sorted(
        round(gap - static, 2)
        for gap, static in zip(row["gaps_seconds"], row["static_start_seconds"], strict=True)
    )
    median = beyond[len(beyond) // 2] if beyond else None
    name = f"gap of a kill beyond a static start of as many, median, {row['who']}"
    return [
        at_least(f"kills of rank 0's pod survived, {row['who']}", wanted, row["survived"]),
        at_most(name, ALLOWED_SECONDS, median),
    ]


if __name__ == "__main__":
    sys.exit(main())
