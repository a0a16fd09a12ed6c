"""Where the seconds of a gap went: the parts are those that the processes noted, and add up."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dropin_cluster import PodMoments
from benchmarks.dropin_steps import Steps
from penstock.crds import labels

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
    (folder / "worker-0-0.log").write_text(_said(0.5))
    (folder / "home").mkdir()
    (folder / "home" / "main.log").write_text(f"2023-11-14T22:13:20Z stderr F {_said(0.75)}")
    found = Steps(folder).timeline(BEGAN)
    gap = found.pop("gap_seconds")
    assert found.pop("world") == 3
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


def test_a_world_that_trains_on_is_not_the_one_that_is_waited_for(folder: Path) -> None:
    assert Steps(folder).wait_for_world(3, BEGAN + 1, lambda: False) is False, "one rank is missing"
    _world(folder, 2, 3, 6.0)
    assert Steps(folder).wait_for_world(3, BEGAN + 1, lambda: False)
    assert not Steps(folder).wait_for_world(2, BEGAN + 0.01, lambda: False), "its steps go on"


def _pod(uid: str, node: str = "", phase: str = "Pending", role: str = "worker") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "labels": {labels.ROLE: role}},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


def test_what_the_cluster_needs_for_new_pods_is_apart() -> None:
    moments = PodMoments()
    for now, pod in (
        (1.0, _pod("old", "node", "Running")),
        (3.5, _pod("new")),
        (3.6, _pod("trainer", role="trainer")),
        (3.75, _pod("new", "node")),
        (5.0, _pod("new", "node", "Running")),
        (9.0, _pod("new", "node", "Running")),
    ):
        moments.note(pod, now)
    assert moments.seconds_since(3.0) == {
        "pods": 1,
        "made_seconds": 0.5,
        "bound_seconds": 0.75,
        "running_seconds": 2.0,
    }
    assert moments.seconds_since(4.0) is None
    moments.note(_pod("other"), 6.0)
    assert moments.seconds_since(3.0) == {
        "pods": 2,
        "made_seconds": 3.0,
        "bound_seconds": None,
        "running_seconds": None,
    }
