"""Real processes: whatever of a job is killed and replaced, every sample counts once.

What is asserted is what the model itself says: a table whose rows count (`counting`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elastic.processes import Job, running_job
from penstock.crds import environment as names

SAMPLES, BATCH, EPOCHS = 400, 10, 4
SLOTS = SAMPLES // BATCH * EPOCHS
BATCH_SECONDS = 0.25
"""Of sleep, so that the job lasts until the test has done what it is about, and then hurries."""


class Run:
    """A counting job."""

    def __init__(self, job: Job, folder: Path, checkpoints: bool) -> None:
        self.job = job
        self.hurry = folder / "hurry"
        self._environ = {names.CHECKPOINT_DIR: str(folder / "model")} if checkpoints else {}

    def start(self, workers: int, servers: int) -> None:
        self.job.start_trainer("--lease-seconds=8")
        for rank in range(servers):
            self.job.start_server(rank)
        for rank in range(workers):
            self.worker(rank)

    def worker(self, rank: int) -> None:
        self.job.start_worker(
            rank,
            sys.executable,
            "-m",
            "benchmarks.elastic.counting",
            f"--samples={SAMPLES}",
            f"--batch-size={BATCH}",
            f"--epochs={EPOCHS}",
            f"--batch-seconds={BATCH_SECONDS}",
            "--checkpoint-every=10",
            f"--hurry={self.hurry}",
            environ=self._environ,
        )

    def wait_for_slots(self, count: int) -> dict[str, Any]:
        return self.job.wait_for_step(count)

    def wait_for_servers(self, *ranks: int) -> dict[str, Any]:
        def owners(summary: dict[str, Any]) -> bool:
            known = summary["servers"]
            found = tuple(owner["rank"] for owner in known["owners"]) if known else ()
            return bool(summary["training"]) and found == ranks

        return self.job.wait_for_summary(owners, 40)

    def end(self) -> dict[str, Any]:
        """The job ends by itself, well, and everything has been counted once."""
        self.hurry.touch()
        assert set(self.job.exit_codes(50).values()) == {0}, self.job.logs()
        assert self.job.trainer is not None
        assert self.job.trainer.wait(20) == 0, self.job.logs()
        for process in self.job.servers.values():
            assert process.wait(20) == 0, self.job.logs()
        result = self.job.result()
        assert result["rows_lost"] == result["rows_repeated"] == 0, self.job.logs()
        assert result["batches_counted"] == SLOTS
        assert result["samples_seen"] == SAMPLES * EPOCHS
        assert result["samples_lost"] == result["samples_repeated"] == 0
        return result


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    with running_job(tmp_path) as job:
        yield Run(job, tmp_path, checkpoints=getattr(request, "param", True))


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(run: Run) -> None:
    run.start(workers=2, servers=2)
    run.wait_for_slots(12)
    run.job.kill(1)
    run.worker(1)
    run.wait_for_slots(30)
    run.job.training_process(0).kill()
    run.job.workers[0].wait(10)
    run.worker(0)
    run.end()


@pytest.mark.slow
def test_servers_come_and_go_while_it_trains(run: Run) -> None:
    run.start(workers=2, servers=2)
    run.wait_for_slots(12)
    run.job.start_server(2)
    run.job.start_server(3)
    run.wait_for_servers(0, 1, 2, 3)
    leaving = run.job.drain_server(1)
    assert leaving.wait(30) == 0, run.job.logs()
    run.wait_for_servers(0, 2, 3)
    run.end()


@pytest.mark.slow
@pytest.mark.parametrize("run", [True, False], indirect=True, ids=["checkpoints", "none"])
def test_a_killed_server_takes_model_and_samples_back_together(run: Run) -> None:
    run.start(workers=2, servers=2)
    run.wait_for_slots(25)
    run.job.kill_server(0)
    run.job.start_server(0)
    run.job.wait_for_summary(lambda summary: summary["servers"]["restores"] == 1, 40)
    run.wait_for_servers(0, 1)
    run.end()


@pytest.mark.slow
def test_a_killed_trainer_knows_everything_again(run: Run) -> None:
    """From its journal; and once that is lost as well, from those who train."""
    run.start(workers=2, servers=2)
    slots = run.wait_for_slots(12)["committed_steps"]
    for state in (True, False):
        run.job.kill_trainer()
        run.job.start_trainer("--lease-seconds=8", state=state)
        slots = run.wait_for_slots(slots + 10)["committed_steps"]
    run.end()


@pytest.mark.slow
def test_a_drained_worker_ends_its_batch_and_leaves(run: Run) -> None:
    run.start(workers=2, servers=1)
    run.wait_for_slots(12)
    run.job.drain(1)
    assert run.job.workers.pop(1).wait(10) == 143, run.job.logs()
    run.end()
