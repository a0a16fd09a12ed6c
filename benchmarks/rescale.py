"""How long training stands still when the number of workers changes.

    python -m benchmarks.rescale --json
    python -m benchmarks.rescale --cluster --json
    python -m benchmarks.rescale --cluster --example digits --json
    python -m benchmarks.rescale --cluster --example images --json

AllReduce over gloo, as plain processes or (``--cluster``) as pods of an embedded cluster, where the
job's ``replicas`` are edited. What trains is a script whose steps cost sleep and no CPU, or one of
the examples, as it is. For each change (4 to 3, 3 to 4, 4 to 6, 6 to 2 workers) the longest time
between two committed steps, from the moment the change is asked for until the new group has trained
for a while. Workers that leave get SIGTERM, new ones are started from nothing and load torch while
the others train on. Every sample is counted, and the loss curve is compared, step by step and
until well after the last change, with a run of one worker that is never disturbed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.elastic.cluster import Cluster, api_server, result_in_logs, wait
from benchmarks.elastic.processes import Job, run_alone, running_job
from benchmarks.elastic.steps import compare, longest_gap, read_steps
from penstock.crds.environment import STEP_LOG

CHANGES = ((4, 3), (3, 4), (4, 6), (6, 2))
SETTLED_SECONDS = 2.0
CHANGE_SECONDS = 120.0
LOSS_TOLERANCE = 0.01
"""How far a step's loss may be from that of one worker, as a part of the first step's."""

END_SECONDS = 600.0
NODES = [{"name": "node", "count": 2, "cpu": "8", "memory": "16Gi"}]


@dataclass(frozen=True)
class Training:
    """What is run: how in the job, how alone, and how many samples and steps an epoch has."""

    command: tuple[str, ...]
    alone: tuple[str, ...]
    samples: int
    steps: int
    epochs: int

    @classmethod
    def of(cls, name: str, folder: Path, epochs: int | None, slot_seconds: float) -> Training:
        """The benchmark's own script, or an example; long enough for all changes by default."""
        epochs = epochs or {"digits": 50, "images": 22}.get(name, 30)
        shape = (f"--epochs={epochs}",)
        if name == "digits":
            digits = (sys.executable, "examples/digits/train.py", *shape)
            return cls(digits, digits, 1437, 10, epochs)
        if name == "images":
            data = f"--data={folder / 'images'}"
            command = (sys.executable, "examples/images/train_elastic.py", data, *shape)
            return cls(command, command, 960, 10, epochs)
        base = (sys.executable, "-m", "benchmarks.elastic.script", f"--log={folder}", *shape)
        alone = (*base, "--slot-seconds=0", f"--log={folder / 'alone'}")
        options = (f"--slot-seconds={slot_seconds}", f"--hurry={folder / 'hurry'}")
        return cls((*base, *options), alone, 1200, 25, epochs)


class Workers(Protocol):
    """Some workers that train together, and whose number can be changed."""

    def change(self, before: int, after: int) -> None:
        """Ask for another number of workers."""

    def end(self) -> dict[str, Any]:
        """Wait for the end of the training; what the chief printed."""


class Processes:
    """Workers as plain processes beside a trainer."""

    def __init__(self, job: Job, training: Training) -> None:
        self._job = job
        self._training = training

    def change(self, before: int, after: int) -> None:
        for rank in range(after, before):
            self._job.drain(rank)
        for rank in range(before, after):
            environ = {STEP_LOG: str(self._job.folder)}
            self._job.start_worker(rank, *self._training.command, environ=environ)
        for rank in range(after, before):
            self._job.workers.pop(rank).wait(30)

    def end(self) -> dict[str, Any]:
        codes = set(self._job.exit_codes(timeout=END_SECONDS).values())
        assert codes == {0}, self._job.logs()
        return self._job.result()


class Pods:
    """Workers as pods of an ElasticJob."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def change(self, before: int, after: int) -> None:
        self._cluster.set_workers("rescale", after)

    def end(self) -> dict[str, Any]:
        def ended() -> bool:
            state = self._cluster.job("rescale").get("status", {}).get("state")
            assert state != "Failed"
            return bool(state == "Succeeded")

        wait(ended, END_SECONDS, "the end of the job")
        return result_in_logs(self._cluster.home)


@contextmanager
def processes(folder: Path, training: Training) -> Iterator[Workers]:
    """Four workers as processes."""
    with running_job(folder) as job:
        job.start_trainer("--workers=4")
        workers = Processes(job, training)
        workers.change(0, 4)
        yield workers


@contextmanager
def pods(folder: Path, training: Training) -> Iterator[Workers]:
    """Four workers as pods."""
    container = {
        "name": "main",
        "image": "penstock/examples:latest",
        "command": ["penstock", "run", "--", *training.command],
        "env": [{"name": STEP_LOG, "value": str(folder)}],
    }
    worker = {
        "replicas": 4,
        "maxReplicas": 6,
        "template": {"spec": {"containers": [container]}},
    }
    with api_server(folder / "home", NODES) as cluster:
        cluster.apply(
            {
                "apiVersion": "penstock.dev/v1alpha1",
                "kind": "ElasticJob",
                "metadata": {"name": "rescale", "namespace": "default"},
                "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": worker}},
            }
        )
        yield Pods(cluster)


def run(training: Training, folder: Path, workers: Workers) -> dict[str, Any]:
    """Go through all changes, then to the end; the figures."""
    _wait_for_world(folder, 4, time.time())
    spans = []
    for before, after in CHANGES:
        began = time.time()
        workers.change(before, after)
        _wait_for_world(folder, after, began)
        time.sleep(SETTLED_SECONDS)
        spans.append((f"{before} to {after}", began, time.time()))
    changed = read_steps(folder.glob("steps-*.jsonl"))[-1].step
    (folder / "hurry").touch()
    result = workers.end()
    steps = read_steps(folder.glob("steps-*.jsonl"))
    return {
        "gaps_seconds": {
            what: round(longest_gap(steps, begin, end), 3) for what, begin, end in spans
        },
        "seconds_until_done": {
            what: round(end - begin - SETTLED_SECONDS, 1) for what, begin, end in spans
        },
        "steps": len(steps),
        "steps_until_all_were_done": changed,
        "samples_seen": result["samples_seen"],
        "samples_expected": training.samples * training.epochs,
        "samples_lost": result["samples_lost"],
        "samples_repeated": result["samples_repeated"],
        "accuracy": result["accuracy"],
    }


def losses_beside_one_worker(training: Training, folder: Path, steps: int) -> dict[str, float]:
    """How far the loss curve is from that of one worker that is never disturbed.

    Over the first ``steps`` and a few epochs more: what a step holds does not depend on how many
    epochs there are.
    """
    alone = folder / "alone"
    epochs = min(training.epochs, steps // training.steps + 4)
    command = (*training.alone, f"--epochs={epochs}")
    run_alone(*command, environ={STEP_LOG: str(alone)}, timeout=END_SECONDS)
    found = compare(*[read_steps(where.glob("steps-*.jsonl")) for where in (folder, alone)])
    equal = found["largest_loss_difference"] <= LOSS_TOLERANCE
    return {**found, "loss_tolerance": LOSS_TOLERANCE, "losses_equal": equal}


def _wait_for_world(folder: Path, size: int, since: float) -> None:
    def trains() -> bool:
        steps = read_steps(folder.glob("steps-*.jsonl"))
        newest = max(steps, key=lambda step: step.time_seconds, default=None)
        return newest is not None and newest.time_seconds > since and newest.world_size == size

    wait(trains, CHANGE_SECONDS, f"{size} workers training", pause=0.3)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", choices=["digits", "images"], help="train this example")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--slot-seconds", type=float, default=0.04)
    parser.add_argument("--cluster", action="store_true", help="pods of an embedded cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    name = options.example or "script"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        training = Training.of(name, folder, options.epochs, options.slot_seconds)
        with ExitStack() as stack:
            start = pods if options.cluster else processes
            workers: AbstractContextManager[Workers] = start(folder, training)
            figures = run(training, folder, stack.enter_context(workers))
        steps = figures["steps_until_all_were_done"]
        figures |= losses_beside_one_worker(training, folder, steps)
    figures |= {"trains": name, "on_cluster": options.cluster}
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
