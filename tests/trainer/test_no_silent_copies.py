"""Workers that would each train a copy of the model are refused; workers of one group never are.

With real processes: ten shapes of the mistake, and beside them what looks alike and is right.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import Job, running_job
from penstock.crds import environment as names
from penstock.trainer.control.model.silent_copies import REFUSED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]  # two processes load large libraries

PROGRAMS = Path(__file__).parent / "programs"
LONG = "600"
"""Seconds: such a program ends in time only if it is ended."""


def program(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(PROGRAMS / f"{name}.py"), *arguments)


def torchrun(*options: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "torch.distributed.run", *options)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def assert_refused(job: Job, reason: str, workers: int = 2) -> None:
    """Agents and trainer end with a code of their own, and say the reason last."""
    assert list(job.exit_codes(120).values()) == [REFUSED] * workers, job.logs()
    for rank in job.workers:
        last = job.log_path(rank).read_text().rstrip().splitlines()[-1]
        assert re.search(rf"ERROR +penstock.trainer.agent: {reason}: ", last), job.logs()
    assert job.trainer is not None
    assert job.trainer.wait(20) == REFUSED, job.logs()
    assert "all ranks are done" not in job.logs()
    assert re.search(
        rf"ERROR +penstock.trainer.control.model.problems: workers: {reason}: ", job.logs()
    )


def assert_ended_well(job: Job, workers: int = 2) -> None:
    assert list(job.exit_codes(120).values()) == [0] * workers, job.logs()
    assert job.trainer is not None
    assert job.trainer.wait(20) == 0, job.logs()
    assert "SeparateCopies" not in job.logs()
    assert "DuplicateRank" not in job.logs()


# ---------------------------------------------------------------------- the mistake


def own_torchrun(processes: int) -> tuple[str, ...]:
    options = ("--standalone", f"--nproc-per-node={processes}")
    return (*torchrun(*options), *program("ddp", LONG)[1:])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(program("plain", LONG), program("plain", LONG), id="a plain loop"),
        pytest.param(
            program("plain", "1"), program("by_hand", LONG), id="soon through, without an optimizer"
        ),
        pytest.param(
            program("with_accelerate", LONG), program("numpy_only"), id="accelerate, no PyTorch"
        ),
        pytest.param(
            program("hugging_face", LONG, "FOLDER"),
            program("with_lightning", LONG, "FOLDER"),
            id="Hugging Face Trainer, Lightning",
        ),
        pytest.param(own_torchrun(1), own_torchrun(2), id="torchrun alone in each pod"),
    ],
)
def test_two_workers_that_never_form_a_group_are_refused(
    first: tuple[str, ...], second: tuple[str, ...], tmp_path: Path
) -> None:
    """Each of the two has to be known as alone, so one test serves two shapes of the mistake."""
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank, command in enumerate((first, second)):
            own = tmp_path / f"output-{rank}"
            job.start_worker(rank, *[str(own) if word == "FOLDER" else word for word in command])
        assert_refused(job, "SeparateCopies")


def test_a_second_plain_worker_that_is_added_later_is_refused(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer()
        job.start_worker(0, *program("plain", LONG))
        job.wait_for_summary(lambda summary: summary["alone"] == [0], 60)
        job.start_worker(1, *program("plain", LONG))
        assert_refused(job, "SeparateCopies")


def test_two_sessions_of_one_pod_are_refused_with_a_trainer(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        job.start_worker(
            0, *torchrun("--standalone", "--nproc-per-node=2"), *program("session", "0", "0.05")[1:]
        )
        assert_refused(job, "DuplicateRank", workers=1)


def test_two_sessions_of_one_pod_are_refused_without_a_trainer(tmp_path: Path) -> None:
    outside = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock.cli",
            "run",
            "--",
            *torchrun("--standalone", "--nproc-per-node=2"),
            *program("session", "0", "0.05")[1:],
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outside.returncode == REFUSED, outside.stderr
    assert "DuplicateRank: two live processes are worker 0" in outside.stderr
    assert '"samples_seen"' not in outside.stdout


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(program("session", "0", "0.05"), id="a session"),
        pytest.param(program("plain", LONG), id="a plain loop"),
    ],
)
def test_two_agents_of_one_rank_are_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        job.start_worker(0, *command)
        job.incarnations[9] = -1
        job.start_worker(9, *command, environ={names.RANK: "0", names.INCARNATION: "0"})
        assert_refused(job, "DuplicateRank")


# ---------------------------------------------------------------------- what is right


@pytest.mark.parametrize("slow_start", ["0", "4"])
def test_one_group_over_two_workers_is_left_alone(slow_start: str, tmp_path: Path) -> None:
    port = free_port()
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            group = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": "2",
            }
            wait = slow_start if rank else "0"
            job.start_worker(rank, *program("ddp", "12", wait), environ=group)
        assert_ended_well(job)
        assert "rank 1 of 2 trained" in job.logs()


def test_a_rank_that_goes_on_alone_when_its_group_has_ended_is_left_alone(tmp_path: Path) -> None:
    port = free_port()
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            group = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": "2",
            }
            job.start_worker(rank, *program("group_then_alone", "11", "12"), environ=group)
        assert_ended_well(job)


def test_a_group_inside_the_pod_of_a_one_worker_job_is_left_alone(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        inside = torchrun("--standalone", "--nproc-per-node=2")
        job.start_worker(0, *inside, *program("ddp", "12")[1:])
        assert_ended_well(job, workers=1)
        assert "rank 1 of 2 trained" in job.logs()


def test_sessions_are_left_alone_and_so_is_one_that_was_started_again_in_its_pod(
    tmp_path: Path,
) -> None:
    first = tmp_path / "first"
    again = (
        f"{sys.executable} {PROGRAMS / 'session.py'} 60 0.02 & first=$!; "
        f"touch {first}; sleep 6; kill -9 $first; wait $first; "
        f"exec {sys.executable} {PROGRAMS / 'session.py'} 60 0.02"
    )
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        job.start_worker(0, "bash", "-c", again)
        job.start_worker(1, *program("session", "60", "0.02"))
        assert_ended_well(job)


def test_independent_workers_may_each_train_a_model_of_their_own(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2", "--independent")
        for rank in range(2):
            job.start_worker(rank, *program("plain", "12"))
        assert_ended_well(job)


def test_one_plain_worker_is_left_alone(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        job.start_worker(0, *program("plain", "1"))
        assert_ended_well(job, workers=1)
