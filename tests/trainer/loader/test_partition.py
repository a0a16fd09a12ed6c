"""Sessions whose steps are made elsewhere in part: each loss and parameter as without, bit by bit.

What is compared is the program alone: the rows that it trains, and the loss of each slot of each
step. Its numbers are exact (`benchmarks.partition_programs.session`), so that groups of other sizes
have them too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from benchmarks.elastic.processes import Job, run_alone, running_job
from benchmarks.partition_programs.session import EPOCHS, GLOBAL_BATCH, SAMPLES, SLOTS
from benchmarks.partitioning import session_kills
from benchmarks.partitioning.session_kills import end_of, granted, losses_in
from penstock.crds import environment as names
from tests.patience import patient
from tests.trainer.loader.test_jobs import data_worker

PROGRAM: Final = (sys.executable, *session_kills.PROGRAM)
STEPS: Final = EPOCHS * SAMPLES // GLOBAL_BATCH

pytestmark = pytest.mark.slow


class Found(NamedTuple):
    """What a program had at its end, and its losses by step and slot."""

    rows: str
    moved: int
    compared: int
    losses: dict[tuple[int, str], float]
    said: str


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The program alone."""
    folder = tmp_path_factory.mktemp("alone")
    environ = {"OMP_NUM_THREADS": "1", names.STEP_LOG: str(folder)}
    said = run_alone(*PROGRAM, environ=environ)
    end, losses = end_of(said), losses_in(folder)
    assert len(losses) == STEPS * SLOTS
    assert (end["wrong"], end["moved"]) == (0, 0)
    return Found(end["rows"], 0, 0, losses, said)


def environ_of(folder: Path, how: str) -> dict[str, str]:
    steps = folder / "steps"
    steps.mkdir(exist_ok=True)
    return {names.PARTITION: how, names.STEP_LOG: str(steps)}


def options_of(how: str, *others: str) -> list[str]:
    return [*PROGRAM, *others, *(["--declared"] if how == "declared" else [])]


def assert_same(job: Job, folder: Path, alone: Found) -> None:
    """The job has ended, with each sample trained on once, and all numbers those of one alone."""
    assert set(job.exit_codes(patient(15)).values()) == {0}, job.logs()
    result = job.result()
    assert result["samples_seen"] == SAMPLES * EPOCHS, job.logs()
    assert result["samples_lost"] == result["samples_repeated"] == result["wrong_rows"] == 0
    for rank in job.workers:
        assert end_of(job.log_path(rank).read_text())["rows"] == alone.rows, job.logs()
    losses = losses_in(folder / "steps")
    assert losses.items() <= alone.losses.items()
    assert len(losses) >= len(alone.losses) - 2 * SLOTS, "who is killed may not have logged a step"


def assert_alike(job: Job) -> None:
    """All workers of a group run each step in the same mode, and who joins sends all back."""
    modes: dict[tuple[int, int], set[str | None]] = {}
    for path in job.folder.glob("worker-*.log"):
        for group, step, mode in granted(path.read_text(errors="replace")):
            modes.setdefault((group, step), set()).add(mode)
    assert all(len(one) == 1 for one in modes.values()), modes
    in_order = [next(iter(modes[at])) for at in sorted(modes)]
    used = in_order.index("Partitioned")
    assert "Record" in in_order[:used]
    assert "Record" in in_order[used:], "who joined had recorded nothing"
    assert "Partitioned" in in_order[used + in_order[used:].index("Record") :]


@pytest.mark.parametrize("how", ["declared", "auto"])
def test_an_encoder_moves_and_a_worker_is_killed_and_another_joins(
    tmp_path: Path, alone: Found, how: str
) -> None:
    hurry, moved = tmp_path / "hurry", [tmp_path / f"moved-{number}" for number in range(3)]
    command = options_of(how, "--num-workers=1", f"--hurry={hurry}")
    with running_job(tmp_path) as job:
        environ = environ_of(tmp_path, how)
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command, f"--moved={moved[rank]}", environ=environ)
        job.wait_for_world(2, patient(10))
        for one in moved[:2]:
            job.wait_for(one.exists, patient(20), "a result of a local worker")
        at = job.summary()["committed_steps"]
        job.kill(0)
        job.wait_for_summary(
            lambda one: one["world_size"] == 1 and one["committed_steps"] > at, patient(10)
        )
        job.start_worker(0, *command, f"--moved={moved[2]}", environ=environ)
        job.wait_for_world(2, patient(10))
        job.wait_for(moved[2].exists, patient(20), "a result of the new worker's")
        hurry.touch()
        assert_same(job, tmp_path, alone)
        assert "FellBack" not in job.logs()
        assert "as written" not in job.logs()
        if how == "auto":
            assert_alike(job)


@pytest.mark.parametrize("mode", ["Record", "Compare"])
def test_a_worker_is_killed_before_anything_is_used_and_another_joins(
    tmp_path: Path, alone: Found, mode: str
) -> None:
    hurry, moved = tmp_path / "hurry", [tmp_path / f"moved-{number}" for number in range(2)]
    command = [*PROGRAM, "--num-workers=1", f"--hurry={hurry}", "--free=0"]
    with running_job(tmp_path) as job:
        environ = environ_of(tmp_path, "auto")
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command, f"--moved={moved[rank]}", environ=environ)

        def reached(mode: str) -> bool:
            lines = granted(job.log_path(1).read_text(errors="replace"))
            return bool(lines) and lines[-1][2] == mode

        job.wait_for(lambda: reached(mode), patient(20), mode)
        moved[0].unlink(missing_ok=True)
        job.kill(0)
        job.start_worker(0, *command, f"--moved={moved[0]}", environ=environ)
        job.wait_for_world(2, patient(10))
        job.wait_for(moved[0].exists, patient(30), "a result of the new worker's")
        hurry.touch()
        assert_same(job, tmp_path, alone)
        assert "FellBack" not in job.logs()


@pytest.mark.parametrize("how", ["declared", "auto"])
def test_data_workers_make_what_moves_and_one_is_killed(
    tmp_path: Path, alone: Found, how: str
) -> None:
    hurry, moved = tmp_path / "hurry", tmp_path / "moved"
    command = options_of(how, f"--hurry={hurry}", f"--moved={moved}")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        with data_worker(job) as maker:
            job.start_worker(0, *command, environ=environ_of(tmp_path, how))
            job.wait_for(moved.exists, patient(20), "a result of the data worker's")
            maker.kill()
            maker.wait(10)
        hurry.touch()
        assert_same(job, tmp_path, alone)


@pytest.mark.parametrize(("what", "why"), [("--teacher", "Mutated"), ("--unfreeze=4", "gradient")])
def test_what_does_not_stay_frozen_runs_in_the_program_which_is_said(
    tmp_path: Path, what: str, why: str
) -> None:
    few = (what, "--epochs=10")
    alone = tmp_path / "alone"
    environ = {"OMP_NUM_THREADS": "1", names.STEP_LOG: str(alone)}
    end = end_of(run_alone(*PROGRAM, *few, environ=environ))
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=1")
        command = [*PROGRAM, "--num-workers=1", *few]
        job.start_worker(0, *command, environ=environ_of(tmp_path, "auto"))
        assert job.exit_codes(patient(15)) == {0: 0}, job.logs()
        said = job.log_path(0).read_text()
    assert end_of(said)["rows"] == end["rows"]
    assert losses_in(tmp_path / "steps") == losses_in(alone)
    assert end["moved"] == 0
    lines = [line for line in said.splitlines() if "FellBack" in line]
    assert len(lines) == 1, said
    assert why in lines[0]


def test_a_dry_run_says_what_would_move_of_a_session() -> None:
    code = "from penstock.data.torchpartition.commands import partition; partition()"
    environ = {"OMP_NUM_THREADS": "1"}
    text = run_alone(
        sys.executable, "-c", code, "--json", "--stop", "--", *PROGRAM, environ=environ
    )
    [found] = json.loads(text)["loaders"]
    assert found["loader"] == "the loader of Images"
    assert any(call["name"].endswith("Encoder") and call["moves"] for call in found["calls"])
    assert "PENSTOCK_PARTITION" not in os.environ
