"""``penstock run --nproc-per-node``: an unmodified DDP script in one world over all pods.

With real processes. Each training process costs seconds of CPU before its first step, so that one
life of a job holds what belongs together.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.processes import running_job
from penstock.trainer.control.model.silent_copies import REFUSED
from tests.trainer.launched_job import SCRIPT, assert_ends_well, launch, steps, wait_for_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAMS = Path(__file__).parent / "programs"


def test_the_world_goes_on_when_its_first_pod_is_killed_and_when_one_joins(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer()
        launch(job, 0)
        launch(job, 1, processes=2)
        began = wait_for_world(job, 3)
        job.kill(0)
        del job.workers[0]
        alone = wait_for_world(job, 2, began)
        launch(job, 2)
        wait_for_world(job, 3, alone)
        assert_ends_well(job)
        newest = {step["rank"]: step["step"] for step in steps(tmp_path)}
        assert len(set(newest.values())) == 1, "the ranks are not at one step"
        assert "failed with exit code" in job.logs(), "nobody noticed the loss by itself"


def test_a_drained_pod_leaves_the_others_and_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer()
        for rank in range(3):
            launch(job, rank)
        began = wait_for_world(job, 3)
        job.drain(0)
        assert job.workers.pop(0).wait(120) == 128 + signal.SIGTERM
        later = wait_for_world(job, 2, began)
        (tmp_path / "fail-1").touch()
        assert job.workers.pop(2).wait(120) == 1, "not the pod whose process failed"
        last = job.log_path(2).read_text().rstrip().splitlines()[-1]
        assert "rank 1 (local rank 0) failed with exit code 1" in last
        assert "ValueError: a fault of rank 1" in job.log_path(2).read_text()
        wait_for_world(job, 1, later)
        assert_ends_well(job)


@pytest.mark.parametrize("pods", [1, 2])
def test_ranks_that_never_form_a_group_are_refused(pods: int, tmp_path: Path) -> None:
    plain = (str(PROGRAMS / "plain.py"), "600")
    with running_job(tmp_path) as job:
        job.start_trainer(f"--workers={pods}")
        for rank in range(pods):
            job.start_worker(rank, *plain, options=(f"--nproc-per-node={3 - pods}",))
        assert list(job.exit_codes(180).values()) == [REFUSED] * pods, job.logs()
        assert "SeparateCopies" in job.logs()


def test_a_session_among_launched_processes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        session = (str(PROGRAMS / "session.py"), "1", "0.05")
        job.start_worker(0, *session, options=("--nproc-per-node=1",))
        assert job.exit_codes(180)[0] == 1, job.logs()
        assert "start it with `penstock run -- python train.py`" in job.logs()


# ---------------------------------------------------------------------- without a trainer


def alone(*words: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
    """One ``penstock run`` on this machine; its log and what its processes say."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_alone_the_world_is_this_machines(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    done = alone("--nproc-per-node=2", "--", SCRIPT, str(tmp_path))
    assert done.returncode == 0, done.stderr
    (tmp_path / "stop").unlink()
    (tmp_path / "fail-1").touch()
    failed = alone("--nproc-per-node=2", "--", sys.executable, SCRIPT, str(tmp_path))
    assert failed.returncode == 1
    assert "rank 1 (local rank 1) failed with exit code 1" in failed.stderr
    assert "ValueError: a fault of rank 1" in failed.stderr


def test_alone_copies_are_no_success() -> None:
    done = alone("--nproc-per-node=2", "--", str(PROGRAMS / "plain.py"), "1")
    assert done.returncode == REFUSED, done.stderr
    assert "SeparateCopies: the 2 processes of worker 0 train separate copies" in done.stderr


RECORD = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise KeyError("no such column")
main()
"""


def test_what_torch_records_of_an_error_is_shown_with_its_rank(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RECORD)
    done = alone("--nproc-per-node=1", "--", str(script))
    assert done.returncode == 1
    assert "rank 0 (local rank 0) failed with exit code 1: KeyError: 'no such column'" in (
        done.stderr
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nproc-per-node=0", "--", "true"), "--nproc-per-node: 0; must be from 1 to 1024"),
        (("--nproc-per-node=many", "--", "true"), "many; must be a number, gpu, cpu or auto"),
        (("--nproc-per-node=gpu", "--", "true"), "gpu; no GPU is visible here"),
        (("--nproc-per-node=2", "--", "gone.py"), "gone.py: there is no such script"),
        (
            ("--nproc-per-node=2", "--", "torchrun", "--nnodes=2", "train.py"),
            "torchrun: --nproc-per-node starts the processes itself",
        ),
        (
            ("--nproc-per-node=2", "--", "python", "-m", "torch.distributed.run", "train.py"),
            "torch.distributed.run: --nproc-per-node starts",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_rule(words: tuple[str, ...], said: str) -> None:
    done = alone(*words)
    assert done.returncode == 2
    assert said in re.sub(r"[\s│]+", " ", done.stderr)
