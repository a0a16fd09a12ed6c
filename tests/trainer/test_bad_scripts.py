"""Training scripts that fail, hang or do not fit: what becomes of the job, and what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job

SLOW = ("--slots=4", "--slot-seconds=0.15")
"""Steps that sleep until the job is to hurry: what a test does to it falls into its training."""


def script(folder: Path, *options: str) -> tuple[str, ...]:
    own = (f"--log={folder}", f"--hurry={folder / 'hurry'}")
    return (sys.executable, "-m", "benchmarks.elastic.script", *own, *options)


def start(job: Job, workers: int, *options: str) -> None:
    for rank in range(workers):
        job.start_worker(rank, *script(job.folder, *options))


@pytest.mark.slow
def test_a_script_that_fails_or_has_other_data_says_so_and_the_others_train_on_with_its_successor(
    tmp_path: Path,
) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        start(job, 1, *SLOW)
        job.start_worker(1, *script(tmp_path, "--fail-at-step=10", *SLOW))
        assert job.workers.pop(1).wait(40) == 1
        log = job.log_path(1).read_text().rstrip()
        assert log.endswith("ValueError: step 10 fails, as it was told to")
        job.start_worker(1, *script(tmp_path, "--samples=1201", *SLOW))
        assert job.workers.pop(1).wait(40) == 1
        assert "data.dataset_size: 1201; the job began with 1200" in job.log_path(1).read_text()
        job.start_worker(1, *script(tmp_path, *SLOW))
        job.wait_for_world(2)
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes().values()) == {0}
        assert job.result()["samples_lost"] == job.result()["samples_repeated"] == 0


@pytest.mark.slow
def test_a_script_that_hangs_is_ended_and_the_job_goes_on(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2", "--hang-seconds=4")
        start(job, 1)
        job.start_worker(1, *script(tmp_path, "--hang-at-step=10"))
        assert job.workers.pop(1).wait(50) == 1, job.logs()
        assert "the program has not ended its step for" in job.log_path(1).read_text()
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes().values()) == {0}
        assert job.result()["samples_lost"] == job.result()["samples_repeated"] == 0


@pytest.mark.slow
def test_a_sample_on_which_three_workers_crash_is_skipped_if_the_job_says_so(
    tmp_path: Path,
) -> None:
    bad = "--fail-at-sample=77"
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=3", "--skip-bad")
        start(job, 3, bad, "--epochs=1", "--slot-seconds=0.03")
        assert set(job.exit_codes().values()) == {1}, "each of them met the sample"
        summary = job.summary()
        [(slot, end)] = summary["quarantined"]
        assert end == slot + 1
        job.workers.clear()
        job.start_worker(0, *script(tmp_path, bad, "--epochs=1"))
        assert job.exit_codes() == {0: 0}
        result = job.result()
        assert result["samples_lost"] == 4, "the 4 samples of one slot"
        assert result["samples_seen"] == 1196
        assert result["samples_repeated"] == 0
        log = (tmp_path / "trainer-0.log").read_text()
        assert f"slot {slot} (samples " in log
        assert "it is in quarantine" in log


@pytest.mark.slow
def test_a_world_below_its_minimum_waits_and_says_so(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--min-workers=2")
        start(job, 1, "--epochs=1")
        waiting = job.wait_for_summary(lambda s: "1 of at least 2" in s["message"], 40)
        assert waiting["committed_steps"] == 0
        assert job.workers[0].poll() is None, "it must wait, not restart"
        job.start_worker(1, *script(tmp_path, "--epochs=1"))
        assert set(job.exit_codes().values()) == {0}


@pytest.mark.slow
def test_a_program_that_never_uses_the_api_is_run_watched_and_reported(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        job.start_worker(0, sys.executable, "-c", "import time; time.sleep(2); print('trained')")
        assert job.exit_codes() == {0: 0}
        assert "trained" in job.log_path(0).read_text()
        assert job.trainer is not None
        assert job.trainer.wait(15) == 0, "the trainer did not end with its only worker"


@pytest.mark.slow
def test_when_all_workers_are_lost_the_newest_checkpoint_is_taken_up(tmp_path: Path) -> None:
    environ = {"PENSTOCK_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    command = script(tmp_path, "--epochs=2", "--checkpoint-every=10", *SLOW)
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command, environ=environ)
        job.wait_for_step(12)
        for rank in range(2):
            job.kill(rank)
        for rank in range(2):
            job.start_worker(rank, *command, environ=environ)
        job.wait_for_world(2)
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes().values()) == {0}
        assert "from step 10" in job.log_path(0).read_text() + job.log_path(1).read_text()
        result = job.result()
        assert result["samples_seen"] == 1200 * 2
        assert result["samples_lost"] == result["samples_repeated"] == 0
