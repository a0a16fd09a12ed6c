"""What a copy may take: what is free, less what the program will take again."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.memory import Memory
from penstock.data.spare_memory import Resident, Room, SpareMemory, read_resident, reset_peak
from penstock.trainer.snapshot.memory import SnapshotMemory

needs_reset = pytest.mark.skipif(
    not reset_peak(), reason="the system does not count a process's memory anew"
)

BYTES = st.integers(0, 1 << 40)


class Program:
    """A process of which the test says what it has."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = self.most = 0

    def has(self, now: int) -> None:
        self.now = now
        self.most = max(self.most, now)

    def memory(self) -> SpareMemory:
        return SpareMemory(
            lambda: Memory(self.limit - self.now, self.limit),
            lambda: Resident(self.now, self.most),
            self.counts_anew,
        )

    def counts_anew(self) -> bool:
        self.most = self.now
        return True


@given(BYTES, BYTES)
def test_a_copy_never_takes_what_the_program_takes_again(free: int, regrowth: int) -> None:
    room = Room(free, 1 << 41, regrowth)
    assert 0 <= room.spare <= room.unclaimed == max(0, free - regrowth)


def test_what_a_step_gives_back_and_takes_again_is_not_free() -> None:
    program = Program(limit=1000)
    memory = program.memory()
    program.has(900)  # within a step
    program.has(400)
    assert memory.look() == Room(free=600, limit=1000, regrowth=500)
    assert not memory.take(100)
    assert memory.take(80)


def test_copies_of_before_are_no_part_of_what_the_program_takes() -> None:
    program = Program(limit=1000)
    memory = program.memory()
    program.has(500)
    program.has(300)
    for _ in range(5):
        assert memory.look().regrowth == 200
        assert memory.take(300), "as much as before, again and again"
        program.has(600)
        program.has(800)  # a step beside the copy
        program.has(600)
        memory.give_back(300)
        program.has(300)


def test_a_copy_that_is_still_there_is_counted_once() -> None:
    program = Program(limit=1000)
    memory = program.memory()
    program.has(300)
    assert memory.take(300)
    program.has(600)
    assert memory.look() == Room(free=400, limit=1000, regrowth=0)


def test_a_program_that_grows_leaves_less() -> None:
    program = Program(limit=1000)
    memory = program.memory()
    program.has(200)
    assert memory.look().regrowth == 0
    program.has(700)
    program.has(200)
    assert memory.look().regrowth == 500


def test_what_no_step_takes_is_forgotten_and_what_one_took_is_not() -> None:
    program = Program(limit=10_000)
    memory = program.memory()
    program.has(900)  # within a step
    program.has(400)
    assert memory.take(100)
    program.has(500)
    with memory.passing():
        program.has(5000)
        program.has(500)
    assert memory.look() == Room(free=9500, limit=10_000, regrowth=500)
    program.has(1200)  # a step that takes more, beside the copy
    program.has(500)
    assert memory.look().regrowth == 700
    memory.give_back(100)
    program.has(400)
    assert memory.look().regrowth == 700


def test_where_the_system_does_not_count_anew_the_peak_stays() -> None:
    now = Resident(100, 900)
    memory = SpareMemory(lambda: Memory(1000, 1000), lambda: now, lambda: False)
    memory.forget_peak()
    assert memory.look().regrowth == 800


def test_nothing_takes_nothing() -> None:
    program = Program(limit=0)
    assert program.memory().take(0)
    assert not program.memory().take(1)


def test_what_the_system_says_of_this_process() -> None:
    before = read_resident()
    assert 0 < before.now <= before.most
    size = 64 << 20
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
        for at in range(0, size, mmap.PAGESIZE):
            taken[at] = 1
        during = read_resident()
    after = read_resident()
    assert during.now - before.now > size // 2
    assert after.most - after.now > size // 2, "the most is remembered"
    with mmap.mmap(-1, size) as shared:
        for at in range(0, size, mmap.PAGESIZE):
            shared[at] = 1
        assert read_resident().now - after.now < size // 2, "what is shared is not its own"


@needs_reset
def test_shared_memory_that_went_is_not_taken_again() -> None:
    size = 64 << 20
    memory = SpareMemory()
    with mmap.mmap(-1, size) as shared:
        for at in range(0, size, mmap.PAGESIZE):
            shared[at] = 1
        before = memory.look().regrowth
    memory.forget_peak()
    assert memory.look().regrowth - before < size // 2


@needs_reset
@pytest.mark.parametrize("grows", [False, True], ids=["given up", "grown"])
def test_slots_that_were_given_back_leave_room_for_copies(grows: bool) -> None:
    size, now = 64 << 20, Memory(free=1 << 40, limit=1 << 40)
    slots = SnapshotMemory(measure=lambda: now)
    weights, more = (torch.ones(each, dtype=torch.uint8) for each in (size, size + (1 << 20)))
    both = [slots([weights]) for _ in range(2)]
    for copies in both:
        assert copies is not None
        copies.release()
    del both, copies
    before = slots.room.look().regrowth
    if grows:
        assert slots([more]) is not None
    else:
        now = Memory(free=1 << 30, limit=1 << 40)
        assert slots([weights]) is None
    assert slots.room.look().regrowth - before < size // 2


def test_where_the_system_says_nothing_there_is_nothing(tmp_path: Path) -> None:
    assert read_resident(tmp_path) == Resident(0, 0)
