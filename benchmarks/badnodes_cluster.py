"""Bad machines on the embedded cluster: real jobs, with one that is slow, drops or delays packets.

Part of ``python -m benchmarks.badnodes --cluster --json``. Nodes with one worker each, all of them
processes of this machine. One is planted, anew for each case: it gets a quarter of its CPU, or new
connections between its worker and the others go unanswered, as where packets are dropped, or all
that passes on them comes `DELAY_SECONDS` late, more or less. Slow ones
are one of two, so that two cores are enough for both: nodes share them, and a worker that has to
wait for a core is measured as slow. Of two it cannot be told whose link fails: there are three.
Each fault strikes once before a job with ``nodeCheck`` begins, and once while a session trains
whose workers measure between steps; for a tenth of the time, and not for the thousandth that
``nodeCheckWhileTraining`` takes, so that it can be waited for. Named is what the Brain has on
record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.elastic.cluster import Cluster, Json, api_server, wait
from benchmarks.elastic.steps import read_steps
from penstock.crds import labels

NODES: Final = [{"name": "node", "count": 3, "cpu": "4", "memory": "8Gi"}]
NAMES: Final = ("node-1", "node-2", "node-3")
WORKERS: Final = {"slow": 2, "drops": 3, "delays": 3}
PLANTED: Final = {"slow": 0, "drops": 1, "delays": 2}
"""Which node; each its own, as the Brain avoids for an hour those that it has on record."""
DELAY_SECONDS: Final = 0.1
DELAY_JITTER_SECONDS: Final = 0.05
PERCENT: Final = 25
SHARE: Final = 0.1
TRAINER_LATE_SECONDS: Final = 6.0
"""So that a fault is there before the workers are asked to measure: they wait for their trainer."""
START_SECONDS: Final = 120.0
NAMED_SECONDS: Final = 90.0
GOOD: Final = "Good"


@dataclass(frozen=True)
class Case:
    """One planted node, and what was said of the three."""

    name: str
    planted: str
    named: dict[str, str]
    seconds: float
    """From the fault, or the job's begin if that was later, until it was named; or until nobody was
    waited for any more."""

    @property
    def right(self) -> bool:
        """Whether the planted node was named, and nobody else."""
        return set(self.named) == {self.planted}


def manifest(name: str, folder: Path, workers: int, *, while_training: bool) -> Json:
    """A job of one worker per node."""
    options = [f"--log={folder / name}", "--epochs=2000", "--slot-seconds=0.01"]
    container: dict[str, Any] = {
        "name": "main",
        "image": "penstock/examples:latest",
        "command": [
            *("penstock", "run", "--", sys.executable, "-m", "benchmarks.elastic.script"),
            *options,
        ],
        "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    if while_training:
        container["env"].append({"name": "PENSTOCK_NODE_CHECK_SHARE", "value": str(SHARE)})
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "nodeCheck": not while_training,
            "replicaSpecs": {
                "worker": {
                    "replicas": workers,
                    "minReplicas": workers,
                    "maxReplicas": workers,
                    "template": {"spec": {"containers": [container]}},
                }
            },
        },
    }


class _Planted:
    """One fault on one node of a cluster; gone at the end of the block."""

    def __init__(self, cluster: Cluster, job: str, node: str, workers: int) -> None:
        self._cluster = cluster
        self._job = job
        self._node = node
        self._workers = workers

    def workers(self) -> list[Json]:
        """The job's workers, once all of them run."""
        found = [
            pod
            for pod in self._cluster.pods("worker")
            if pod["metadata"]["labels"][labels.JOB] == self._job
        ]
        return found if len(found) >= self._workers else []

    @contextmanager
    def slow(self) -> Iterator[None]:
        """A quarter of its CPU."""
        self._cluster.fault("slow_node", name=self._node, percent=PERCENT)
        try:
            yield
        finally:
            self._cluster.fault("slow_node", name=self._node, percent=None)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """New connections between its worker and the others go unanswered."""
        own, others = self._own_and_others()
        self._cluster.fault("partition_pod", name=own, others=others)
        try:
            yield
        finally:
            self._cluster.fault("heal_pod", name=own)

    @contextmanager
    def delaying(self) -> Iterator[None]:
        """What passes between its worker and the others on new connections comes late."""
        own, _ = self._own_and_others()
        delays = {"delay_seconds": DELAY_SECONDS, "jitter_seconds": DELAY_JITTER_SECONDS}
        self._cluster.fault("delay_pod", name=own, **delays)
        try:
            yield
        finally:
            self._cluster.fault("heal_pod", name=own)

    def _own_and_others(self) -> tuple[str, list[str]]:
        pods = wait(self.workers, START_SECONDS, "the workers run")
        names = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods}
        return names.pop(self._node), sorted(names.values())


def run(folder: Path, say: Callable[[str], None] = lambda _: None) -> list[Case]:
    """All cases, on one cluster."""
    with api_server(folder / "home", NODES) as cluster:
        cases = []
        for name in CASES:
            case = run_case(cluster, folder, name)
            say(f"{case.name}: planted {case.planted}, named {case.named}, {case.seconds:.0f} s")
            cases.append(case)
        return cases


CASES: Final = (
    "slow-before",
    "drops-before",
    "slow-while-training",
    "drops-while-training",
    "delays-before",
    "delays-while-training",
)


def run_case(cluster: Cluster, folder: Path, name: str, attempt: int = 0) -> Case:
    """Plant one fault, and wait until the Brain has a word on each node of the job.

    Each ``attempt`` is a job of its own.
    """
    fault, _, when = name.partition("-")
    workers, while_training = WORKERS[fault], when == "while-training"
    nodes = NAMES[:workers]
    planted = nodes[PLANTED[fault]]
    if attempt:
        name = f"{name}-{attempt}"
    at_work = _Planted(cluster, name, planted, workers)
    plants = {"slow": at_work.slow, "drops": at_work.dropping, "delays": at_work.delaying}
    document = manifest(name, folder, workers, while_training=while_training)
    verdicts: dict[str, str] = {}

    def named() -> bool:
        """Whether there is a verdict on all nodes of the job, and a bad one among them."""
        uid = cluster.job(name)["metadata"]["uid"]
        said = [one for one in cluster.nodes() if one["job_uid"] == uid]
        verdicts.update((one["node"], str(one["verdict"])) for one in said)
        bad = any(verdict != GOOD for verdict in verdicts.values())
        return bad and len(verdicts) == workers

    for node in NAMES[workers:]:
        cluster.fault("cordon_node", name=node)
    try:
        with ExitStack() as stack:
            if while_training:
                (folder / name).mkdir()
                cluster.apply(document)
                wait(lambda: _trains(folder / name, workers), START_SECONDS, f"{name} trains")
                stack.enter_context(plants[fault]())
            elif fault == "slow":
                stack.enter_context(at_work.slow())
                cluster.apply(document)
                wait(at_work.workers, START_SECONDS, "the workers run")
            else:
                late = {labels.JOB: name, labels.ROLE: "trainer"}
                cluster.fault("delay_start", labels=late, seconds=TRAINER_LATE_SECONDS, times=1)
                cluster.apply(document)
                stack.enter_context(plants[fault]())
            began = time.monotonic()
            with suppress(TimeoutError):  # then what was found is what it has found
                wait(named, NAMED_SECONDS, "a node is named")
            took = time.monotonic() - began
    finally:
        cluster.delete_job(name)
        for node in NAMES[workers:]:
            cluster.fault("cordon_node", name=node, cordoned=False)
    wait(lambda: not cluster.pods("worker"), START_SECONDS, f"the pods of {name} are gone")
    bad = {node: verdict for node, verdict in verdicts.items() if verdict != GOOD}
    return Case(name, planted, bad, round(took, 1))


def _trains(folder: Path, workers: int) -> bool:
    """Whether all workers train together."""
    steps = read_steps(folder.glob("*.jsonl"))
    return bool(steps) and steps[-1].world_size == workers
