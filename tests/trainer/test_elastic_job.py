"""A job of real processes trains to its end whatever is killed, and every sample counts once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job

SAMPLES = 1437
DIGITS = (sys.executable, "examples/digits/train.py", "--width=32")


def assert_exactly_once(job: Job, epochs: int) -> None:
    result = job.result()
    assert result["samples_seen"] == SAMPLES * epochs, job.logs()
    assert result["samples_lost"] == 0
    assert result["samples_repeated"] == 0


def assert_ended_well(job: Job) -> None:
    assert set(job.exit_codes().values()) == {0}, job.logs()
    assert job.trainer is not None
    assert job.trainer.wait(20) == 0, job.logs()


@pytest.mark.slow
def test_two_workers_share_the_steps_and_the_trainer_ends_with_them(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *DIGITS, "--epochs=10")
        job.wait_for_world(2)
        assert_ended_well(job)
        assert_exactly_once(job, epochs=10)
        assert job.result()["accuracy"] > 0.95


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_no_sample_is_lost_or_repeated(tmp_path: Path) -> None:
    command = (*DIGITS, "--epochs=30")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command)
        job.wait_for_step(20)
        job.kill(0)
        job.start_worker(0, *command)
        killed = job.wait_for_world(1)["committed_steps"]
        assert job.wait_for_world(2)["committed_steps"] > killed, "the survivor did not train on"
        assert_ended_well(job)
        assert_exactly_once(job, epochs=30)


@pytest.mark.slow
def test_the_ranks_train_on_while_the_trainer_is_killed_and_comes_back(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *DIGITS, "--epochs=18")
        before = job.wait_for_step(20)
        job.kill_trainer()
        job.start_trainer("--workers=2")
        after = job.wait_for_world(2)
        assert after["group"] == before["group"], "the group was formed anew"
        assert_ended_well(job)
        assert_exactly_once(job, epochs=18)


@pytest.mark.slow
def test_a_trainer_that_lost_its_state_learns_it_from_the_ranks(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2", state=False)
        for rank in range(2):
            job.start_worker(rank, *DIGITS, "--epochs=18")
        before = job.wait_for_step(20)
        job.kill_trainer()
        job.start_trainer("--workers=2", state=False)
        after = job.wait_for_world(2)
        assert after["group"] == before["group"]
        assert after["committed_steps"] >= before["committed_steps"]
        assert_ended_well(job)
        assert_exactly_once(job, epochs=18)


@pytest.mark.slow
def test_a_drained_worker_leaves_at_a_step_boundary(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=3")
        for rank in range(3):
            job.start_worker(rank, *DIGITS, "--epochs=12")
        job.wait_for_world(3)
        job.wait_for_step(10)
        job.drain(0)
        assert job.workers.pop(0).wait(10) == 143
        job.wait_for_world(2)
        assert_ended_well(job)
        assert_exactly_once(job, epochs=12)
        assert "done again" not in job.logs(), "a drain must not break a step"
