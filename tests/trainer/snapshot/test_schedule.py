"""When states are kept: none is forgotten, and none takes memory that is not there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.memory import Memory
from penstock.trainer import checkpoint
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.snapshot.lent import Lent
from penstock.trainer.snapshot.memory import SnapshotMemory
from penstock.trainer.snapshot.schedule import Due, SaveSchedule

STATE_BYTES = 8 << 20
every = st.one_of(st.none(), st.integers(1, 7))


@given(every, every, st.lists(st.booleans(), min_size=1, max_size=60), st.booleans())
def test_what_is_due_is_kept_once_at_the_first_step_that_has_a_place(
    disk: int | None, memory: int | None, places: list[bool], may_wait: bool
) -> None:
    schedule = SaveSchedule(disk, memory, may_wait=may_wait)
    owed = Due.NOTHING
    for step, place in enumerate(places, 1):
        complete = step == len(places)
        done = schedule.after(step, complete=complete, has_place=lambda place=place: place)
        if memory and step % memory == 0:
            owed = max(owed, Due.IN_MEMORY)
        if complete or (disk and step % disk == 0):
            owed = Due.ON_DISK
        if complete or place or not may_wait:
            assert done is owed
            owed = Due.NOTHING
        else:
            assert done is Due.NOTHING


def test_who_leads_no_more_owes_nothing() -> None:
    schedule = SaveSchedule(2, None)
    assert schedule.after(2, complete=False, has_place=lambda: False) is Due.NOTHING
    schedule.forget()
    assert schedule.after(3, complete=False, has_place=lambda: True) is Due.NOTHING


def state() -> dict[str, torch.Tensor]:
    return {"weights": torch.zeros(STATE_BYTES // 4)}


@pytest.mark.parametrize(
    ("limit", "has_place"),
    [(1 << 30, True), (5 * STATE_BYTES, False), (2 * STATE_BYTES, False)],
    ids=["two slots", "one slot", "none"],
)
def test_while_a_state_is_written_only_another_slot_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, has_place: bool
) -> None:
    begun, mended, whole = threading.Event(), threading.Event(), checkpoint.write

    def slow(path: Path, packed: Any, lent: Lent | None) -> None:
        begun.set()
        assert mended.wait(30)
        whole(path, packed, lent)

    monkeypatch.setattr(checkpoint, "write", slow)
    memory = SnapshotMemory(measure=lambda: Memory(limit, limit))
    folder = CheckpointDir(tmp_path, memory=memory)
    assert folder.has_place()
    folder.save(1, state())
    assert begun.wait(30)
    assert folder.has_place() is has_place
    mended.set()
    folder.wait()
    assert folder.has_place()
    folder.close()
