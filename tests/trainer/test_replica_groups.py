"""Replica groups of two processes with a sharded model: killed in part, healed, and back alone."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from benchmarks.elastic.processes import ROOT, Job, kill_tree, running_job
from benchmarks.elastic.steps import read_steps
from benchmarks.islands import undone
from tests.trainer.small_disk import fill, leave, small_disk

EPOCHS = 3
SAMPLES = 1200
STEPS = EPOCHS * SAMPLES // 48
CHECKPOINT_EVERY = 5
SLOW = ("--slots=2", "--slot-seconds=0.25")
"""Steps that sleep rather than compute, so that a test can do what it is about before the end."""
PROBLEM = re.compile(r"worker-0: CheckpointsNotWritten: no checkpoint is written.*")
SCRIPT = ROOT / "benchmarks" / "islands_programs" / "train.py"


def start(job: Job, group: int, epochs: int = EPOCHS) -> None:
    folder = job.folder
    job.start_worker(
        group,
        str(SCRIPT),
        f"--log={folder}",
        f"--epochs={epochs}",
        f"--hurry={folder / 'hurry'}",
        f"--pause={folder / 'pause'}",
        f"--checkpoints={folder / 'checkpoints'}",
        f"--checkpoint-every={CHECKPOINT_EVERY}",
        *SLOW,
        options=("--nproc-per-node=2", "--replica-group"),
    )


def newest_in(part: Path) -> Path | None:
    """The newest checkpoint of one process."""
    return max(part.glob("step-*"), default=None)


@pytest.mark.slow
@pytest.mark.parametrize("full", [(0, 1), (1,)], ids=["both parts", "the second part"])
def test_a_full_disk_under_a_sharded_model_is_told_and_tried_again(
    tmp_path: Path, full: tuple[int, ...]
) -> None:
    """As the job's status tells it, by whichever process cannot write; also the last one."""
    (checkpoints := tmp_path / "checkpoints").mkdir()
    parts = [checkpoints / f"part-{rank}-of-2" for rank in range(2)]
    epochs = 1
    saves = range(CHECKPOINT_EVERY, epochs * SAMPLES // 48 + 1, CHECKPOINT_EVERY)
    with ExitStack() as disks, running_job(tmp_path) as job:
        fillers = [fill(disks.enter_context(small_disk(parts[rank], 256))) for rank in full]
        job.start_trainer("--lease-seconds=20")
        start(job, 0, epochs)
        job.wait_for_step(CHECKPOINT_EVERY + 2, timeout=60)
        trainer = tmp_path / "trainer-0.log"  # that says what it puts into the job's status
        told = job.wait_for(lambda: PROBLEM.search(trainer.read_text()), 30, "the problem")[0]
        job.wait_for_step(saves[2] + 1)
        (tmp_path / "pause").touch()
        for filler in fillers:
            filler.unlink()
        for rank in full:
            newest = job.wait_for(partial(newest_in, parts[rank]), 30, "a checkpoint")
            more = sum(step > int(newest.stem[5:]) for step in saves) - 1  # the last finds no room
            leave(parts[rank], int((more + 0.5) * newest.stat().st_size))
        (tmp_path / "pause").unlink()
        over = "CheckpointsNotWritten: over"
        job.wait_for(lambda: over in trainer.read_text(), 30, "the end of the problem")
        told_last = job.wait_for(
            lambda: PROBLEM.findall(trainer.read_text())[1:], 60, "the last one's problem"
        )[0]
        job.wait_for_step(saves[-1])
        for filler in fillers:
            filler.unlink()
        assert job.exit_codes(60)[0] == 0, job.logs()
        assert trainer.read_text().count(over) == 2
        assert job.result()["samples_lost"] == 0
        last = [newest_in(part) for part in parts]
    assert f"{parts[full[0]].name}: No space left on device" in told
    assert f"{parts[full[0]].name}: No space left on device" in told_last
    assert [path and path.name for path in last] == [f"step-{saves[-1]:012d}.penstock"] * 2


def start_pod(job: Job, rank: int) -> None:
    """A pod of one process; two of them are a replica group."""
    folder = job.folder
    job.start_worker(
        rank,
        str(SCRIPT),
        f"--log={folder}",
        f"--epochs={EPOCHS}",
        f"--hurry={folder / 'hurry'}",
        *SLOW,
        options=("--nproc-per-node=1", "--replica-group", "--replica-group-pods=2"),
    )


def training_processes(job: Job, group: int) -> list[psutil.Process]:
    found: list[psutil.Process] = job.wait_for(
        lambda: psutil.Process(job.workers[group].pid).children(), 20, "the training processes"
    )
    return found


@pytest.mark.slow
def test_a_lost_process_costs_its_replica_group_and_not_a_sample(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--lease-seconds=20")
        start(job, 0)
        job.wait_for_world(1, timeout=60)
        job.wait_for_step(3)
        start(job, 1)  # gets its parts of the model from the living one
        before = job.wait_for_world(2, timeout=60)["committed_steps"]
        before = job.wait_for_step(before + 3)["committed_steps"]
        training_processes(job, 0)[1].kill()  # not the one that speaks with the trainer
        assert job.workers[0].wait(30) == 128 + signal.SIGKILL
        job.wait_for_step(before + 2)
        (tmp_path / "hurry").touch()
        assert job.exit_codes(60)[1] == 0, job.logs()
        result = job.result()
    assert result["samples_seen"] == EPOCHS * SAMPLES
    assert result["samples_lost"] == result["samples_repeated"] == 0
    logs = sorted(tmp_path.glob("steps-*.jsonl"))
    assert undone(logs) == 0
    assert len(read_steps(logs)) == result["steps"] == STEPS
    parts = sorted((tmp_path / "checkpoints").iterdir())
    assert [part.name for part in parts] == ["part-0-of-2", "part-1-of-2"]
    assert {path.name for path in parts[0].glob("step-*")} == {
        path.name for path in parts[1].glob("step-*")
    }


@pytest.mark.slow
@pytest.mark.parametrize("lost", [2, 3])
def test_a_lost_pod_costs_its_replica_group_and_not_a_sample(tmp_path: Path, lost: int) -> None:
    beside = 5 - lost
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=4", "--lease-seconds=20")
        for rank in range(4):
            start_pod(job, rank)
        before = job.wait_for_world(2, timeout=120)["committed_steps"]
        before = job.wait_for_step(before + 3)["committed_steps"]
        [before_loss] = training_processes(job, beside)
        agent = job.workers[beside]
        kill_tree(job.workers[lost].pid)
        job.wait_for_step(before + 2, timeout=60)
        job.wait_for(lambda: not before_loss.is_running(), 30, "the end of the other pod's process")
        assert agent.poll() is None, "a pod that is well is not replaced"
        start_pod(job, lost)
        job.wait_for_world(2, timeout=120)
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes(120).values()) == {0}, job.logs()
        result = job.result()
    assert result["samples_seen"] == EPOCHS * SAMPLES
    assert result["samples_lost"] == result["samples_repeated"] == 0
    logs = sorted(tmp_path.glob("steps-*.jsonl"))
    assert undone(logs) == 0
    assert len(read_steps(logs)) == result["steps"] == STEPS
    assert {path.name.split("-")[1] for path in logs} == {"0", "2"}, "the first pod of each speaks"
