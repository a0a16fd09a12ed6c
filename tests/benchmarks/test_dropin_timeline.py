"""Where the seconds of a gap went: the parts are those that the processes noted, and add up."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks.dropin_steps import Steps

BEGAN = 1_700_000_000.0


def _write(folder: Path, name: str, *lines: dict[str, float]) -> None:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _world(folder: Path, rank: int, world: int, first: float) -> None:
    steps = [{"time": BEGAN + first + n / 50, "rank": rank, "world": world} for n in range(3)]
    _write(folder, f"steps-{world}-{rank}.jsonl", *steps)


def _start(folder: Path, rank: int, *moments: float) -> None:
    names = ("spawned", "begun", "imported", "grouped")
    noted = {name: BEGAN + at for name, at in zip(names, moments, strict=True)}
    _write(folder, f"starts-{rank}.jsonl", noted)


def _said(at: float) -> str:
    whole = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(BEGAN + at))
    return f"{whole},{at % 1 * 1000:03.0f} INFO    launched_program: world 1 has ended: waiting\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks train until 0.04; both begin anew, the second one later, and train from 6 on."""
    for rank in range(2):
        _world(tmp_path, rank, 2, 0.0)
        _world(tmp_path, rank, 3, 6.0 + rank / 100)
    _start(tmp_path, 0, 1.2, 1.3, 3.0, 4.0)
    _start(tmp_path, 1, 1.5, 1.7, 3.5, 4.0)
    return tmp_path


def test_parts_end_when_the_last_process_is_through_and_add_up_to_the_gap(folder: Path) -> None:
    (folder / "worker-0-0.log").write_text(_said(0.5) + _said(0.75))
    found = Steps(folder).timeline(BEGAN)
    gap = found.pop("gap_seconds")
    assert gap == pytest.approx(5.96)
    assert found == {
        "detect_and_end": 0.71,
        "decide_and_spawn": 0.75,
        "interpreter": 0.2,
        "import_torch": 1.8,
        "rendezvous": 0.5,
        "first_step": 2.0,
    }
    assert sum(found[name] or 0 for name in found) == pytest.approx(gap, abs=0.04)


def test_a_part_that_nobody_noted_is_in_the_next_one(folder: Path) -> None:
    found = Steps(folder).timeline(BEGAN)
    assert (found["detect_and_end"], found["decide_and_spawn"]) == (None, 1.46)


def test_nobody_waits_for_a_world_whose_pods_have_ended(folder: Path) -> None:
    assert Steps(folder).wait_for_world(2, BEGAN - 1, lambda: False)
    assert not Steps(folder).wait_for_world(4, BEGAN, lambda: False)
