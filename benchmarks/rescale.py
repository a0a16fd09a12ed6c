"""How long training stands still when the number of workers changes.

    python -m benchmarks.rescale --json
    python -m benchmarks.rescale --cluster --json

AllReduce over gloo, as plain processes or (``--cluster``) as pods of an embedded cluster, where the
job's ``replicas`` are edited. For each change (4 to 3, 3 to 4, 4 to 6, 6 to 2 workers) the longest
time between two committed steps, from the moment the change is asked for until the new group has
trained for a while. Workers that leave get SIGTERM, new ones are started from nothing and load
torch while the others train on. The loss curve is compared with a run of one worker that is never
disturbed, and every sample is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.elastic.cluster import Cluster, result_in_logs, running_cluster, wait
from benchmarks.elastic.processes import Job, run_alone, running_job
from benchmarks.elastic.steps import largest_difference, longest_gap, read_steps

CHANGES = ((4, 3), (3, 4), (4, 6), (6, 2))
SAMPLES = 1200
SETTLED_SECONDS = 2.0
CHANGE_SECONDS = 120.0
END_SECONDS = 600.0
NODES = [{"name": "node", "count": 2, "cpu": "8", "memory": "16Gi"}]


class Workers(Protocol):
    """Some workers that train together, and whose number can be changed."""

    def change(self, before: int, after: int) -> None:
        """Ask for another number of workers."""

    def end(self) -> dict[str, Any]:
        """Wait for the end of the training; what the chief printed."""


class Processes:
    """Workers as plain processes beside a trainer."""

    def __init__(self, job: Job, options: list[str]) -> None:
        self._job = job
        self._options = options

    def change(self, before: int, after: int) -> None:
        for rank in range(after, before):
            self._job.drain(rank)
        for rank in range(before, after):
            number = self._job.incarnations.get(rank, -1) + 1
            log = self._job.folder / f"steps-{rank}-{number}.jsonl"
            self._job.start_worker(rank, *command(log, self._options))
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


def command(log: Path | str, options: list[str]) -> tuple[str, ...]:
    """The training script's command line."""
    return (sys.executable, "-m", "benchmarks.elastic.script", f"--log={log}", *options)


@contextmanager
def processes(folder: Path, options: list[str]) -> Iterator[Workers]:
    """Four workers as processes."""
    with running_job(folder) as job:
        job.start_trainer("--workers=4")
        workers = Processes(job, options)
        workers.change(0, 4)
        yield workers


@contextmanager
def pods(folder: Path, options: list[str]) -> Iterator[Workers]:
    """Four workers as pods."""
    log = f"{folder}/steps-$(PENSTOCK_RANK)-$(PENSTOCK_INCARNATION).jsonl"
    container = {
        "name": "main",
        "image": "penstock/examples:latest",
        "command": ["penstock", "run", "--", *command(log, options)],
    }
    worker = {
        "replicas": 4,
        "maxReplicas": 6,
        "template": {"spec": {"containers": [container]}},
    }
    with running_cluster(folder / "home", NODES) as cluster:
        cluster.apply(
            {
                "apiVersion": "penstock.dev/v1alpha1",
                "kind": "ElasticJob",
                "metadata": {"name": "rescale", "namespace": "default"},
                "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": worker}},
            }
        )
        yield Pods(cluster)


def run(epochs: int, slot_seconds: float, *, on_cluster: bool) -> dict[str, object]:
    """Go through all changes; the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hurry = folder / "hurry"
        shape = [f"--epochs={epochs}", f"--samples={SAMPLES}"]
        options = [*shape, f"--slot-seconds={slot_seconds}", f"--hurry={hurry}"]
        workers = stack.enter_context((pods if on_cluster else processes)(folder, options))
        _wait_for_world(folder, 4, time.time())
        spans = []
        for before, after in CHANGES:
            began = time.time()
            workers.change(before, after)
            _wait_for_world(folder, after, began)
            time.sleep(SETTLED_SECONDS)
            spans.append((f"{before} to {after}", began, time.time()))
        hurry.touch()
        result = workers.end()
        steps = read_steps(folder.glob("steps-*.jsonl"))
        alone = folder / "alone.jsonl"
        run_alone(*command(alone, [*shape, "--slot-seconds=0"]))
        return {
            "gaps_seconds": {
                what: round(longest_gap(steps, begin, end), 3) for what, begin, end in spans
            },
            "seconds_until_done": {
                what: round(end - begin - SETTLED_SECONDS, 1) for what, begin, end in spans
            },
            "steps": len(steps),
            "samples_seen": result["samples_seen"],
            "samples_expected": SAMPLES * epochs,
            "samples_lost": result["samples_lost"],
            "samples_repeated": result["samples_repeated"],
            "largest_loss_difference": largest_difference(steps, read_steps([alone])),
            "on_cluster": on_cluster,
        }


def _wait_for_world(folder: Path, size: int, since: float) -> None:
    def trains() -> bool:
        steps = read_steps(folder.glob("steps-*.jsonl"))
        newest = max(steps, key=lambda step: step.time_seconds, default=None)
        return newest is not None and newest.time_seconds > since and newest.world_size == size

    wait(trains, CHANGE_SECONDS, f"{size} workers training", pause=0.3)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--slot-seconds", type=float, default=0.04)
    parser.add_argument("--cluster", action="store_true", help="pods of an embedded cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = run(options.epochs, options.slot_seconds, on_cluster=options.cluster)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
