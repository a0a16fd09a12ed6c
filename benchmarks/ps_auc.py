"""Does a model learn the same, however it is trained? The AUC after a fixed number of samples.

    python -m benchmarks.ps_auc --json

For each of three seeds Wide & Deep learns the click log of examples/criteo: in one process with
``torch.optim`` (``plain``); in one process with a session (``alone``); with 2 servers and 4 workers
(``servers``); the same while the servers become 4 and then 3 (``changing``); and the same while a
worker and a server are killed and replaced (``killed``). All have the same samples, tables that
begin alike, and the same test samples. ``largest_difference`` is that of any of them from ``plain``
with the same seed; the goal is 0.002. What asynchronous training may change is the order of the
updates and how old the parameters of a batch are: ``orders`` says what the order alone does, as the
spread of the AUC between the seeds in one process.

Adagrad begins with an accumulator of 1e-4. With one of 0 (``--accumulator 0 --learning-rate 0.02``)
its first steps have the full learning rate whatever the gradient, and a gradient that comes late in
those steps shifts all weights at once: some runs then end far below the others.

Nothing is timed: other work on the machine does no harm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.elastic.processes import RESULT, Job, run_alone, running_job
from penstock.crds import environment as names

GOAL = 0.002
BATCH = 256
WORKERS, SERVERS = 4, 2
WAIT_SECONDS = 240.0


class Case:
    """One way to train, with one seed."""

    def __init__(self, folder: Path, samples: int, arguments: list[str]) -> None:
        self.folder = folder
        self.batches = -(-samples // BATCH)
        self.command = (sys.executable, "-m", "benchmarks.parameters.clicks", *arguments)

    def plain(self) -> dict[str, Any]:
        """One process, torch.optim."""
        return self._alone("--plain")

    def alone(self) -> dict[str, Any]:
        """One process, a session."""
        return self._alone()

    def servers(self) -> dict[str, Any]:
        """2 servers, 4 workers."""
        return self._together(lambda job: None)

    def changing(self) -> dict[str, Any]:
        """2 to 4 to 3 servers."""

        def change(job: Job) -> None:
            job.wait_for_step(self.batches // 5, WAIT_SECONDS)
            for rank in range(SERVERS, 4):
                job.start_server(rank)
            self._wait_for_servers(job, 4)
            job.drain_server(3)
            self._wait_for_servers(job, 3)

        return self._together(change)

    def killed(self) -> dict[str, Any]:
        """A worker and a server are killed."""

        def kill(job: Job) -> None:
            job.wait_for_step(self.batches // 4, WAIT_SECONDS)
            job.kill(1)
            self._start_worker(job, 1)
            job.wait_for_step(self.batches // 2, WAIT_SECONDS)
            job.kill_server(1)
            job.start_server(1)
            job.wait_for_summary(lambda found: found["servers"]["restores"] > 0, WAIT_SECONDS)

        return self._together(kill)

    def _alone(self, *more: str) -> dict[str, Any]:
        printed = run_alone(*self.command, *more)
        found = RESULT.search(printed)
        assert found, printed
        result: dict[str, Any] = json.loads(found[1])
        return result

    def _together(self, disturb: Callable[[Job], None]) -> dict[str, Any]:
        with running_job(self.folder) as job:
            job.start_trainer(f"--servers={SERVERS}", f"--workers={WORKERS}")
            for rank in range(SERVERS):
                job.start_server(rank)
            for rank in range(WORKERS):
                self._start_worker(job, rank)
            disturb(job)
            codes = job.exit_codes(WAIT_SECONDS)
            assert set(codes.values()) == {0}, f"{codes}\n{job.logs()}"
            return job.result()

    def _start_worker(self, job: Job, rank: int) -> None:
        environ = {names.CHECKPOINT_DIR: str(self.folder / "model")}
        job.start_worker(rank, *self.command, "--batch-seconds=0.02", environ=environ)

    @staticmethod
    def _wait_for_servers(job: Job, count: int) -> None:
        job.wait_for_summary(
            lambda found: found["training"] and len(found["servers"]["owners"]) == count,
            WAIT_SECONDS,
        )


CASES: dict[str, Callable[[Case], dict[str, Any]]] = {
    "plain": Case.plain,
    "alone": Case.alone,
    "servers": Case.servers,
    "changing": Case.changing,
    "killed": Case.killed,
}


def run(seeds: int, samples: int, more: list[str], folder: Path) -> dict[str, Any]:
    """Train in all ways with all seeds; the figures."""
    aucs: dict[str, list[float]] = {name: [] for name in CASES}
    lost = repeated = 0
    for seed in range(seeds):
        for name, train in CASES.items():
            place = folder / f"{name}-{seed}"
            place.mkdir(parents=True)
            arguments = [f"--samples={samples}", f"--batch-size={BATCH}", f"--seed={seed}", *more]
            result = train(Case(place, samples, arguments))
            aucs[name].append(round(result["auc"], 5))
            lost += result.get("samples_lost", 0)
            repeated += result.get("samples_repeated", 0)
            print(f"seed {seed} {name:9} AUC {result['auc']:.5f}", file=sys.stderr)
    differences = {
        name: [round(one - other, 5) for one, other in zip(found, aucs["plain"], strict=True)]
        for name, found in aucs.items()
    }
    largest = max(abs(one) for found in differences.values() for one in found)
    return {
        "auc": aucs,
        "difference_from_plain": differences,
        "largest_difference": largest,
        "goal": GOAL,
        "reached": largest <= GOAL,
        "orders": round(max(aucs["plain"]) - min(aucs["plain"]), 5),
        "samples": samples,
        "samples_lost": lost,
        "samples_repeated": repeated,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help="keep logs and checkpoints here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        figures = run(options.seeds, options.samples, more, folder)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
