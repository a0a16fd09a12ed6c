"""A job of real processes trains to its end whatever is killed, and every sample counts once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job
from tests.client.listener import Listener, listening

DIGITS = (sys.executable, "examples/digits/train.py", "--width=32")
IMAGES = 1437
SAMPLES, EPOCHS = 1200, 4


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def proxies(listener: Listener) -> dict[str, str]:
    """The variables of a company's image behind a proxy, with nothing exempt from it."""
    url = f"http://127.0.0.1:{listener.port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {each: url for name in names for each in (name, name.lower())} | {
        "NO_PROXY": "",
        "no_proxy": "",
    }


def start(job: Job, rank: int) -> None:
    """A worker whose steps sleep until the job is to hurry."""
    job.start_worker(
        rank,
        sys.executable,
        "-m",
        "benchmarks.elastic.script",
        f"--log={job.folder}",
        f"--samples={SAMPLES}",
        f"--epochs={EPOCHS}",
        "--slots=4",
        "--slot-seconds=0.1",
        f"--hurry={job.folder / 'hurry'}",
    )


def assert_exactly_once(job: Job, samples: int) -> None:
    result = job.result()
    assert result["samples_seen"] == samples, job.logs()
    assert result["samples_lost"] == 0
    assert result["samples_repeated"] == 0


def assert_ended_well(job: Job) -> None:
    (job.folder / "hurry").touch()
    assert set(job.exit_codes().values()) == {0}, job.logs()
    assert job.trainer is not None
    assert job.trainer.wait(20) == 0, job.logs()


@pytest.mark.slow
def test_two_workers_share_the_steps_and_the_trainer_ends_with_them(
    tmp_path: Path, listener: Listener
) -> None:
    """What they say to each other goes to no proxy, whatever the image sets."""
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *DIGITS, "--epochs=10", environ=proxies(listener))
        job.wait_for_world(2)
        assert_ended_well(job)
        assert_exactly_once(job, 10 * IMAGES)
        assert job.result()["accuracy"] > 0.95
    assert listener.callers == 0, "a proxy was asked"


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_no_sample_is_lost_or_repeated(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            start(job, rank)
        job.wait_for_step(5)
        job.kill(0)
        start(job, 0)
        killed = job.wait_for_world(1)["committed_steps"]
        assert job.wait_for_world(2)["committed_steps"] > killed, "the survivor did not train on"
        assert_ended_well(job)
        assert_exactly_once(job, SAMPLES * EPOCHS)


@pytest.mark.slow
def test_the_ranks_train_on_while_the_trainer_is_killed_and_until_one_is_drained(
    tmp_path: Path,
) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=3")
        for rank in range(3):
            start(job, rank)
        job.wait_for_world(3)
        before = job.wait_for_step(5)
        for state in (True, False):  # and once more without its journal, as on another node
            job.kill_trainer()
            job.start_trainer("--workers=3", state=state)
            after = job.wait_for_world(3)
            assert after["group"] == before["group"], f"the group was formed anew, {state=}"
            assert after["committed_steps"] >= before["committed_steps"], f"forgotten, {state=}"
            before = job.wait_for_step(after["committed_steps"] + 2)
        job.drain(0)
        assert job.workers.pop(0).wait(10) == 143
        job.wait_for_world(2)
        assert_ended_well(job)
        assert_exactly_once(job, SAMPLES * EPOCHS)
        assert "done again" not in job.logs(), "neither may break a step"
