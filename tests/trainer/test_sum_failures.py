"""Workers that cannot sum: told from lost ones, named once, and never tried for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job

PROGRAM = (sys.executable, "tests/trainer/programs/summing.py")


def start_two(job: Job, mode: str) -> None:
    job.start_trainer("--workers=2")
    for rank in range(2):
        job.start_worker(rank, *PROGRAM, mode)


@pytest.mark.slow
def test_what_no_group_can_sum_ends_the_program_with_one_error(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_two(job, "type")
        assert set(job.exit_codes().values()) == {1}, job.logs()
        named = "SessionError: a sum failed: Invalid scalar type"
        logs = [job.log_path(rank).read_text() for rank in range(2)]
        assert sum(log.count(named) for log in logs) >= 1, job.logs()
        assert all(log.count(named) <= 1 for log in logs), job.logs()


@pytest.mark.slow
def test_two_workers_on_one_gpu_train_by_gloo_and_this_is_said_once(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_two(job, "shared")
        assert set(job.exit_codes().values()) == {0}, job.logs()
        assert job.result()["samples_seen"] == 128
        warning = (
            "gradients are summed by gloo and not by NCCL: workers 0 and 1 share one GPU, GPU-1234"
        )
        assert job.logs().count(warning) == 1, job.logs()


@pytest.mark.slow
def test_groups_that_break_again_and_again_are_given_up(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_two(job, "broken")
        assert set(job.exit_codes().values()) == {1}, job.logs()
        logs = [job.log_path(rank).read_text() for rank in range(2)]
        resigned = "SessionError: the group broke 5 times in a row without a step in between"
        assert any(resigned in log for log in logs), job.logs()
        assert all(log.count("will be done again") <= 5 for log in logs), job.logs()
