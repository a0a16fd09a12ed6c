"""How long an unmodified DDP script stands still when pods come and go, beside torchrun.

    python -m benchmarks.dropin --json
    python -m benchmarks.dropin --changes 2:1,1:2 --kills 3 --json
    python -m benchmarks.dropin --changes= --kills 0 --json

Pods are local agents with one training process each, and a trainer: no cluster (`runs_on` of the
rows). For each change the time from the last step of the old world to the first of the new one,
beside a plain start (torchrun, static) of as many processes to their first step. Pods leave by
SIGTERM, and by SIGKILL of the agent that has rank 0, whose pod is replaced at once (``--kills``).
The same with torchrun's elastic rendezvous (c10d), as it is and with ``last_call_timeout=1``; there
the first agent hosts the store. What is trained costs sleep and no CPU; what a start costs is
PyTorch's import, so that on a busy machine all these times grow together.

The last row is of the same script in a job of an embedded cluster, with ``optimize: Auto`` and
bounds of one and two workers: whether, and when, its Brain gives it the second one. That Brain
plans every few seconds (`BRAIN`), where it takes a minute otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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

from benchmarks.elastic.cluster import Cluster, api_server
from benchmarks.elastic.processes import ROOT, kill_tree, running_job
from benchmarks.goals import Goal, at_least, at_most, report

SCRIPT: Final = str(ROOT / "benchmarks" / "dropin_programs" / "train.py")
CHANGES: Final = "4:3,3:4,4:6"
ALLOWED_SECONDS: Final = 1.0
"""A change may cost so much beside a plain start of as many processes."""
WORLD_SECONDS: Final = 240.0
SETTLED_SECONDS: Final = 1.0
BRAIN: Final = {
    "administrator": {"enough_steps": 50, "enough_seconds": 8, "interval_seconds": 6},
    "algorithms": {"scale_allreduce": {"params": {"enough_steps": 50, "enough_seconds": 8}}},
}
NODES: Final = [{"name": "node", "count": 2, "cpu": "4", "memory": "8Gi"}]
KEPT_SECONDS: Final = 30.0
"""For so long the second worker is watched: one that did not pay would be given back."""


class Steps:
    """What the ranks in one folder have written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[dict[str, Any]]:
        """Every step of every rank, in the order of time."""
        found = [
            json.loads(line)
            for path in self.folder.glob("steps-*.jsonl")
            for line in path.read_text().splitlines()
            if line.endswith("}")
        ]
        return sorted(found, key=lambda step: float(step["time"]))

    def wait_for_world(self, size: int, after: float) -> bool:
        """Whether all ranks of a world of this size train after some time; waits for it."""
        deadline = time.time() + WORLD_SECONDS
        while time.time() < deadline:
            new = [s for s in self.all() if s["time"] > after and s["world"] == size]
            if {s["rank"] for s in new} == set(range(size)):
                return True
            time.sleep(0.2)
        return False

    def per_second(self, since: float, until: float) -> float:
        """Steps of all ranks together."""
        found = [step for step in self.all() if since <= step["time"] < until]
        return round(len(found) / (until - since), 1)

    def gap(self, since: float) -> float:
        """The longest time without any step since some time."""
        times = [float(step["time"]) for step in self.all() if step["time"] > since - 1.0]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Pods(Protocol):
    """Agents, each of which stands for a pod."""

    def add(self, number: int) -> None:
        """Start one."""

    def drain(self, number: int) -> None:
        """Ask one to end."""

    def kill(self, number: int) -> None:
        """Kill one, and what it started."""


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


class TorchrunPods:
    """Agents of torchrun with its elastic rendezvous, on the first of them."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, *conf: str) -> None:
        self._folder = folder
        self._conf = conf
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
        self._agents[number] = _torchrun(self._folder, f"{number}.log", *options)

    def drain(self, number: int) -> None:
        """See `Pods`."""
        self._agents[number].send_signal(signal.SIGTERM)

    def kill(self, number: int) -> None:
        """See `Pods`."""
        _kill(self._agents[number])

    def _close(self) -> None:
        for agent in self._agents.values():
            _kill(agent)


def _torchrun(folder: Path, log: str, *options: str) -> subprocess.Popen[bytes]:
    with (folder / log).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, SCRIPT, str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
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


def static_start(size: int) -> float:
    """Seconds from the start of torchrun to the first step that all of its processes have taken."""
    with _folder() as folder:
        began = time.time()
        options = ("--standalone", f"--nproc-per-node={size}")
        agent = _torchrun(folder, "static.log", *options)
        try:
            steps = Steps(folder)
            assert steps.wait_for_world(size, began), (folder / "static.log").read_text()
            firsts: dict[int, float] = {}
            for step in steps.all():
                firsts.setdefault(step["rank"], float(step["time"]))
            return max(firsts.values()) - began
        finally:
            _kill(agent)


def changed(make: Callable[[Path, contextlib.ExitStack], Pods], before: int, after: int) -> Any:
    """The gap of one change; None where the world did not come about."""
    with _folder() as folder, contextlib.ExitStack() as stack:
        pods, steps = make(folder, stack), Steps(folder)
        began = time.time()
        for number in range(before):
            pods.add(number)
        if not steps.wait_for_world(before, began):
            return None
        asked = time.time()
        for number in range(before, after):
            pods.add(number)
        for number in range(after, before):
            pods.drain(number)
        if not steps.wait_for_world(after, asked):
            return None
        time.sleep(SETTLED_SECONDS)
        return round(steps.gap(asked), 2)


def killed(
    make: Callable[[Path, contextlib.ExitStack], Pods], pods_there: int, kills: int
) -> dict[str, Any]:
    """Kill the pod of rank 0 so often; how often the others went on, and the longest gap."""
    gaps: list[float] = []
    with _folder() as folder, contextlib.ExitStack() as stack:
        pods, steps = make(folder, stack), Steps(folder)
        began = time.time()
        for number in range(pods_there):
            pods.add(number)
        tried = 0
        while tried < kills and steps.wait_for_world(pods_there, began):
            tried += 1
            asked = time.time()
            pods.kill(0)  # the lowest number: the ranks of both are in its order
            if not steps.wait_for_world(pods_there - 1, asked):
                break
            gaps.append(round(steps.gap(asked), 2))
            began = time.time()
            pods.add(0)
    return {"kills": tried, "survived": len(gaps), "gaps_seconds": gaps}


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


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", default=CHANGES, help="pods before and after, as 4:3,3:4")
    parser.add_argument("--kills", type=int, default=20, help="of the pod of rank 0, one by one")
    parser.add_argument("--no-growth", action="store_true", help="leave the job of a cluster out")
    parser.add_argument("--no-peer", action="store_true", help="leave torchrun's elastic mode out")
    parser.add_argument("--seed", type=int, default=0, help="of the order of what is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    wanted = [one for one in options.changes.split(",") if one]
    changes = [tuple(map(int, one.split(":"))) for one in wanted]
    random.Random(options.seed).shuffle(changes)
    load = os.getloadavg()[0]
    peers: dict[str, Callable[[Path, contextlib.ExitStack], Pods]] = {"penstock": PenstockPods}
    if not options.no_peer:
        peers["torchrun c10d"] = TorchrunPods
        peers["torchrun c10d, last call 1 s"] = lambda folder, stack: TorchrunPods(
            folder, stack, "last_call_timeout=1"
        )
    rows, goals = [], []
    for before, after in changes:
        row: dict[str, Any] = {"change": f"{before} to {after}", "runs_on": "local agents"}
        row["static_start_seconds"] = round(static_start(after), 2)
        row |= {
            f"{name}, gap in seconds": changed(make, before, after) for name, make in peers.items()
        }
        rows.append(row)
        allowed = round(row["static_start_seconds"] + ALLOWED_SECONDS, 2)
        goals.append(at_most(f"gap, {row['change']}", allowed, row["penstock, gap in seconds"]))
    most = max((before for before, _ in changes), default=2)
    kills = []
    if options.kills:
        for name, make in peers.items():
            count = options.kills if name == "penstock" else 1
            kills.append({"who": name, "pods": most, **killed(make, most, count)})
        goals += _goals_of_kills(kills[0], options.kills, round(static_start(most - 1), 2))
    growth = {} if options.no_growth else grown()
    if growth:
        goals.append(at_least("workers that Auto gave a plain script", 2, growth["workers"]))
    result = {
        "seed": options.seed,
        "load": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "rows": rows,
        "kills": kills,
        "growth": growth,
    }
    return report(result, goals, as_json=options.json)


def _goals_of_kills(row: dict[str, Any], wanted: int, static: float) -> list[Goal]:
    gaps = sorted(row["gaps_seconds"])
    median = gaps[len(gaps) // 2] if gaps else None
    return [
        at_least("kills of rank 0's pod that the others survived", wanted, row["survived"]),
        at_most("gap of a kill, median", round(static + ALLOWED_SECONDS, 2), median),
    ]


if __name__ == "__main__":
    sys.exit(main())
