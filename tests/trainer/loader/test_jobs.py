"""Jobs of real processes whose batches are made ahead: each sample is trained on once, as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.elastic.processes import TOKEN, Job, running_job
from penstock.crds import environment as names
from penstock.data.ledger import derive_seed
from tests.patience import patient
from tests.trainer.programs import loading

PROGRAM = (sys.executable, str(Path("tests/trainer/programs/loading.py")))
SAMPLES, EPOCHS = loading.SAMPLES, loading.EPOCHS

pytestmark = pytest.mark.slow


@cache
def all_drawn() -> float:
    """What all samples draw, each from (the session's seed, epoch, index)."""
    total = 0.0
    generator = torch.Generator()
    for epoch in range(EPOCHS):
        for index in range(SAMPLES):
            generator.manual_seed(derive_seed(derive_seed(loading.SEED, epoch), index))
            total += float(torch.rand((), dtype=torch.float64, generator=generator))
    return total


def assert_trained_exactly_once(job: Job) -> None:
    assert set(job.exit_codes(patient(15)).values()) == {0}, job.logs()
    result = job.result()
    assert result["samples_seen"] == SAMPLES * EPOCHS, job.logs()
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["wrong_rows"] == 0, "the model itself was trained on each sample once per epoch"
    assert result["drawn"] == pytest.approx(all_drawn(), abs=1e-5), "samples drew other numbers"


def children(job: Job, rank: int) -> list[psutil.Process]:
    """The local workers of a worker's program."""
    return [one for one in job.training_process(rank).children() if one.is_running()]


@contextmanager
def data_worker(job: Job, processes: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """A data worker of a job, of so many processes, once it is known to the trainer."""
    environ = {
        names.JOB_TOKEN: TOKEN,
        names.TRAINER_ADDRESS: job.address,
        names.ROLE: "data-worker",
        names.POD_IP: "127.0.8.1",
    }
    if processes > 1:
        environ[names.DATA_PROCESSES] = str(processes)
    with (job.folder / "data-worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "data-worker"],
            env={**os.environ, **environ},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        job.wait_for_summary(lambda summary: summary["data_workers"] == processes, patient(20))
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_their_local_workers_are_killed_and_join_and_one_is_drained(
    tmp_path: Path, workers: int
) -> None:
    hurry = tmp_path / "hurry"
    command = (*PROGRAM, f"--num-workers={workers}", f"--hurry={hurry}")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command)
        job.wait_for_world(2, patient(10))
        at = job.wait_for_step(2)["committed_steps"]
        assert len(children(job, 1)) == workers
        if workers:
            children(job, 1)[0].kill()
            said = "another one takes its place"
            job.wait_for(lambda: said in job.log_path(1).read_text(), patient(10), "another one")
            at = job.wait_for_step(at + 1)["committed_steps"]
        job.kill(0)
        job.wait_for_summary(
            lambda one: one["world_size"] == 1 and one["committed_steps"] > at, patient(10)
        )
        job.start_worker(0, *command)
        joined = job.wait_for_world(2, patient(10))["committed_steps"]
        job.wait_for_step(joined + 1, patient(10))
        if workers:
            before = len(job.log_path(1).read_text())
            job.drain(0)
            assert job.workers.pop(0).wait(patient(5)) == 143, job.logs()
        hurry.touch()
        assert_trained_exactly_once(job)
        if workers:
            said = job.log_path(0).read_text() + job.log_path(1).read_text()[before:]
            assert "takes its place" not in said, "SIGTERM reached its workers"
            assert "done again" not in said


@pytest.mark.parametrize(("workers", "ranks"), [(0, 1), (1, 2)])
def test_data_workers_make_batches_of_a_session_and_may_be_lost(
    tmp_path: Path, workers: int, ranks: int
) -> None:
    hurry, fed = tmp_path / "hurry", tmp_path / "fed"
    command = (*PROGRAM, f"--num-workers={workers}", f"--hurry={hurry}", f"--fed={fed}")
    with running_job(tmp_path) as job:
        job.start_trainer(f"--workers={ranks}")
        with data_worker(job) as maker:
            for rank in range(ranks):
                job.start_worker(rank, *command, "--sample-seconds=0.002")
            job.wait_for(fed.exists, patient(10), "a batch of the data worker's")
            maker.kill()
            maker.wait(10)
            hurry.touch()
            assert_trained_exactly_once(job)


def test_all_processes_of_a_data_worker_make_batches_and_leave_together(tmp_path: Path) -> None:
    hurry, fed = tmp_path / "hurry", tmp_path / "fed"
    command = (*PROGRAM, "--num-workers=0", f"--hurry={hurry}", f"--fed={fed}")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        with data_worker(job, processes=2) as maker:
            job.start_worker(0, *command, "--sample-seconds=0.002")
            job.wait_for(fed.exists, patient(10), "a batch of the data worker's")
            maker.terminate()
            assert maker.wait(patient(10)) == 0
            hurry.touch()
            assert_trained_exactly_once(job)
        made = (job.folder / "data-worker.log").read_text()
        assert made.count("leaves after") == 2, made


def test_what_a_dataset_raises_ends_the_program_with_its_own_error_once(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        job.start_worker(0, *PROGRAM, "--num-workers=2", "--bad=7")
        assert job.workers[0].wait(patient(10)) == 1, job.logs()
        log = job.log_path(0).read_text()
        assert log.count("LookupError: no picture 7") == 1, log
        assert "LookupError: Caught LookupError in DataLoader worker process" in log
        assert log.count("Penstock: micro-batch ") == 1


def test_a_slot_on_which_three_workers_crash_is_skipped_and_the_rest_is_trained_on(
    tmp_path: Path,
) -> None:
    command = (*PROGRAM, "--num-workers=1", "--bad=7", "--epochs=1")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=3", "--skip-bad")
        for rank in range(3):
            job.start_worker(rank, *command)
        assert set(job.exit_codes(patient(10)).values()) == {1}, "each of them met the sample"
        job.workers.clear()
        job.start_worker(0, *command)
        assert job.exit_codes(patient(10)) == {0: 0}, job.logs()
        result = job.result()
        assert result["samples_lost"] == 4, "the 4 samples of one slot"
        assert result["samples_seen"] == SAMPLES - 4
        assert result["samples_repeated"] == 0
