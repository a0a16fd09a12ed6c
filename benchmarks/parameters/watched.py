"""A job with parameter servers on an embedded cluster, and what is seen of it and done to it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.elastic.cluster import Cluster, wait
from benchmarks.parameters.jobs import server_job
from benchmarks.parameters.steplogs import Step, StepLog, speed
from penstock.base.quantity import parse_milli_cpu
from penstock.crds import labels

Json = dict[str, Any]


@dataclass(frozen=True)
class Pods:
    """What a job has: the milli-cores of each pod, by rank."""

    workers: tuple[int, ...]
    servers: tuple[int, ...]

    def __str__(self) -> str:
        return f"workers of {_told(self.workers)}, servers of {_told(self.servers)}"


class Watched:
    """One job from its submission on; its step log is read as it grows."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, program: str, **job: Any) -> None:
        self.name = name
        self._cluster = cluster
        self._log = StepLog(folder / "steps")
        self.applied = time.time()
        cluster.apply(
            server_job(
                name,
                program,
                ["--samples=100000000"],
                step_log=str(folder / "steps"),
                checkpoints=str(folder / "checkpoints"),
                signature={"model": name},
                **job,
            )
        )

    def steps(self) -> list[Step]:
        """All batches so far."""
        return self._log.read()

    def plans(self) -> list[Json]:
        """The Brain's plans for it."""
        return self._cluster.plans(self.name)

    def pods(self) -> Pods:
        """What it has now."""
        return Pods(*(tuple(_milli(pod) for pod in self._of(role)) for role in ("worker", "ps")))

    def node_of_server(self, rank: int) -> str:
        """Where a server runs; empty while it does not."""
        own = [pod for pod in self._of("ps") if pod["metadata"]["labels"][labels.RANK] == str(rank)]
        return str(own[0]["spec"]["nodeName"]) if own else ""

    def slow_down(self, rank: int, percent: int) -> float:
        """Slow the node of a server, on which nothing else may run; when that was."""
        node = self.node_of_server(rank)
        nodes = Counter(
            pod["spec"]["nodeName"]
            for role in ("trainer", "worker", "ps")
            for pod in self._of(role)
        )
        if nodes[node] != 1:
            raise RuntimeError(f"server {rank} shares {node or 'no node'} with others: {nodes}")
        self._cluster.fault("slow_node", name=node, percent=percent)
        return time.time()

    def size_servers(self, sizes: tuple[int, ...]) -> None:
        """Give each server its own CPU, by rank."""
        ranks = {str(rank): {"cpu": f"{milli}m"} for rank, milli in enumerate(sizes)}
        self._cluster.scale(self.name, f"{self.name}-sizes", {"ps": {"ranks": ranks}})

    def until_has(self, wanted: Pods, seconds: float, timeout: float) -> None:
        """Until it has these pods and has trained with all of them for so long."""
        since = [time.time()]

        def trains() -> bool:
            now = time.time()
            recent = [step for step in self.steps() if step.time_seconds > now - 3]
            if (
                self.pods() != wanted
                or {step.worker for step in recent} != set(range(len(wanted.workers)))
                or {step.servers for step in recent} != {len(wanted.servers)}
            ):
                since[0] = now
            return now > since[0] + seconds

        wait(trains, timeout, f"job {self.name} trains on {wanted}", pause=1.0)

    def until_done(self, batches: int, since: float, timeout: float) -> float:
        """Seconds until so many batches have been done."""

        def done() -> float:
            times = [step.time_seconds for step in self.steps() if step.time_seconds >= since]
            return times[batches - 1] - since if len(times) >= batches else 0.0

        found: float = wait(done, timeout, f"{batches} batches", pause=1.0)
        return found

    def until_at_rest(self, quiet_seconds: float, timeout: float) -> None:
        """Until a plan made on samples is carried out and nothing changes for so long.

        A job that is changed again and again is taken as it is when the time is over.
        """
        seen: list[Any] = [None, time.time()]

        def rests() -> bool:
            now = time.time()
            recent = {step.worker for step in self.steps() if step.time_seconds > now - 3}
            state = (len(self.plans()), self.pods(), len(recent))
            if state != seen[0]:
                seen[:] = [state, now]
            plans, pods, training = state
            quiet = plans > 1 and training == len(pods.workers) and now > seen[1] + quiet_seconds
            return quiet or now > self.applied + timeout

        wait(rests, 2 * timeout, "the plans come to rest", pause=1.0)

    def speed(self, begin: float, end: float) -> float:
        """Batches per second of all workers together within a span."""
        return speed(self.steps(), begin, end)

    def _of(self, role: str) -> list[Json]:
        return [
            pod
            for pod in self._cluster.pods(role)
            if pod["metadata"]["labels"][labels.JOB] == self.name
        ]


def _milli(pod: Json) -> int:
    return parse_milli_cpu(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])


def _told(sizes: tuple[int, ...]) -> str:
    counts = sorted(Counter(sizes).items())
    return " and ".join(f"{count} x {size}m" for size, count in counts)
