"""Connections make room for newer ones, and none waits for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.base.http.connections import (
    BODY_SECONDS,
    HEAD_SECONDS,
    STALL_SECONDS,
    ConnectionTable,
)
from penstock.base.http.server import most_connections

KEEP_ALIVE = 30.0


@dataclass(eq=False)
class One:
    lacking: bool = False
    stalled: bool = False

    def lacks_body(self) -> bool:
        return self.lacking

    def is_stalled(self) -> bool:
        return self.stalled


def table(most: int = 3) -> ConnectionTable[One]:
    return ConnectionTable(most, KEEP_ALIVE)


def admitted(into: ConnectionTable[One], count: int) -> list[One]:
    found = [One() for _ in range(count)]
    for number, each in enumerate(found):
        assert into.admit(each, float(number)) is None
    return found


def test_the_one_that_waits_longest_goes_for_a_newcomer() -> None:
    here = table()
    first, second, _ = admitted(here, 3)
    assert here.admit(One(), 5.0) is first
    assert here.admit(One(), 5.0) is second
    assert len(here) == 3


def test_one_that_has_never_asked_goes_before_one_that_has() -> None:
    here = table()
    asked, silent, busy = admitted(here, 3)
    here.note_busy(asked, 3.0)
    here.note_idle(asked, 3.0)
    here.note_busy(busy, 3.0)
    newer = One()
    assert here.admit(newer, 4.0) is silent
    here.note_busy(newer, 4.0)
    assert here.admit(One(), 4.0) is asked


def test_nobody_who_is_served_goes() -> None:
    here = table()
    for each in admitted(here, 3):
        here.note_busy(each, 3.0)
    newcomer = One()
    assert here.admit(newcomer, 4.0) is newcomer
    assert len(here) == 3


def test_one_that_goes_by_itself_leaves_room() -> None:
    here = table()
    first, *_ = admitted(here, 3)
    here.remove(first)
    assert here.admit(One(), 4.0) is None
    here.note_busy(first, 4.0)  # too late
    here.note_idle(first, 4.0)
    assert len(here) == 3


def test_silence_is_borne_for_some_seconds() -> None:
    here = table()
    silent, idle, busy = admitted(here, 3)
    for each in (idle, busy):
        here.note_busy(each, 2.0)
    here.note_idle(idle, 3.0)
    assert here.overdue(HEAD_SECONDS - 0.1) == []
    assert here.overdue(HEAD_SECONDS + 0.1) == [silent]
    assert here.overdue(3.0 + KEEP_ALIVE + HEAD_SECONDS + 0.1) == [idle]
    assert here.overdue(1e9) == []
    assert len(here) == 1


def test_a_body_is_complete_in_time() -> None:
    here = table()
    slow, quick, _ = admitted(here, 3)
    slow.lacking = True
    for each in (slow, quick):
        here.note_busy(each, 2.0)
    here.note_busy(slow, 50.0)  # another piece of it
    assert slow not in here.overdue(1.9 + BODY_SECONDS)
    assert slow in here.overdue(2.1 + BODY_SECONDS)
    assert len(here) == 1


def test_an_answer_is_taken_in_time() -> None:
    here = table()
    reader, *_ = admitted(here, 3)
    here.note_busy(reader, 2.0)
    reader.stalled = True
    assert here.overdue(5.0) == []
    reader.stalled = False
    assert reader not in here.overdue(5.0 + STALL_SECONDS)
    reader.stalled = True
    assert here.overdue(100.0) == []
    assert here.overdue(100.1 + STALL_SECONDS) == [reader]


@pytest.mark.parametrize(
    ("descriptors", "most"), [(64, 16), (256, 192), (1024, 768), (65536, 8192)]
)
def test_some_descriptors_are_left_for_everything_else(descriptors: int, most: int) -> None:
    assert most_connections(descriptors) == most
