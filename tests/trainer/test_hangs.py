"""A process that hangs is ended as its job asks, and the training goes on: real processes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks.elastic.processes import Job, running_job
from tests.trainer.launched_job import assert_ends_well, launch, steps, wait_for_world

EPOCHS: Final = 12
"""Long enough for a pod to be replaced on a busy machine; ``hurry`` ends the rest."""
KNOWN_STEP: Final = 60
"""By then the usual pauses of a process are known."""


def start_trainer(job: Job, response: str) -> None:
    job.start_trainer("--workers=2", f"--on-hang={response}", "--on-hang-after-seconds=2")


def start_worker(job: Job, rank: int, *options: str) -> None:
    job.start_worker(
        rank,
        sys.executable,
        "-m",
        "benchmarks.elastic.script",
        f"--log={job.folder}",
        f"--epochs={EPOCHS}",
        "--slots=4",
        "--slot-seconds=0.075",
        f"--hurry={job.folder / 'hurry'}",
        *options,
    )


def trainer_log(job: Job) -> str:
    return (job.folder / "trainer-0.log").read_text()


def assert_exactly_once(job: Job) -> None:
    (job.folder / "hurry").touch()
    assert set(job.exit_codes(120).values()) == {0}, job.logs()
    result = job.result()
    assert result["samples_seen"] == 1200 * EPOCHS, job.logs()
    assert result["samples_lost"] == result["samples_repeated"] == 0, job.logs()


@pytest.mark.slow
def test_a_rank_that_hangs_is_started_again_in_its_pod(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_trainer(job, "Restart")
        start_worker(job, 0)
        start_worker(job, 1, f"--hang-at-step={KNOWN_STEP}", f"--hung={tmp_path / 'hung'}")
        job.wait_for((tmp_path / "hung").exists, 60, "the hang")
        job.wait_for(lambda: "HungProcessEnded" in trainer_log(job), 60, "its end")
        job.wait_for_summary(
            lambda s: s["world_size"] == 2 and s["committed_steps"] > KNOWN_STEP, 60
        )
        assert_exactly_once(job)
        assert job.incarnations == {0: 0, 1: 0}, "a pod was replaced"
        said = next(one for one in trainer_log(job).splitlines() if "HungProcessEnded" in one)
        assert "worker-1" in said
        assert "stand_still" in said, "the function is not named"
        log = job.log_path(1).read_text()
        assert "stand_still" in log[: log.index("started again in its pod")], "no stack was kept"


@pytest.mark.slow
def test_a_rank_that_hangs_in_a_group_that_is_no_more_is_started_again(tmp_path: Path) -> None:
    """Nobody forms a group without it: the other one has crashed, and is gone for a while."""
    with running_job(tmp_path) as job:
        start_trainer(job, "Restart")
        start_worker(job, 0)
        start_worker(job, 1, f"--hang-at-step={KNOWN_STEP}", f"--hung={tmp_path / 'hung'}")
        job.wait_for((tmp_path / "hung").exists, 60, "the hang")
        job.training_process(0).send_signal(signal.SIGSEGV)
        assert job.workers[0].wait(60) == 128 + signal.SIGSEGV
        assert "the program was ended by SIGSEGV" in job.log_path(0).read_text()
        job.wait_for(lambda: "HungProcessEnded" in trainer_log(job), 60, "its end")
        job.wait_for_world(1)
        start_worker(job, 0)
        job.wait_for_world(2)
        assert_exactly_once(job)
        assert job.incarnations == {0: 1, 1: 0}, "the pod that hung was replaced"


@pytest.mark.slow
def test_the_pod_of_a_rank_that_is_stopped_fails_and_its_next_one_goes_on(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_trainer(job, "Replace")
        for rank in range(2):
            start_worker(job, rank)
        job.wait_for_step(KNOWN_STEP, 60)
        job.training_process(1).send_signal(signal.SIGSTOP)
        assert job.workers[1].wait(60) == 1, job.logs()
        assert "its pod is replaced" in trainer_log(job)
        start_worker(job, 1)
        job.wait_for_world(2)
        assert_exactly_once(job)


@pytest.mark.slow
def test_a_launched_world_begins_anew_without_the_rank_that_is_stopped(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        start_trainer(job, "Restart")
        for rank in range(2):
            launch(job, rank)
        began = wait_for_world(job, 2)
        job.wait_for(lambda: steps(tmp_path)[-1]["time"] > began + 8, 60, "steps")
        job.training_process(1).send_signal(signal.SIGSTOP)
        job.wait_for(lambda: "HungProcessEnded" in trainer_log(job), 60, "its end")
        stopped = float(steps(tmp_path)[-1]["time"])
        wait_for_world(job, 2, after=stopped)
        assert job.incarnations == {0: 0, 1: 0}, "a pod was replaced"
        assert all(worker.poll() is None for worker in job.workers.values()), job.logs()
        assert_ends_well(job)
