"""Two slots of memory: torn at any byte, they give the snapshot before or none, never another."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.snapshot import slots
from penstock.trainer.snapshot.slots import Content

BYTES = slots.HEAD_BYTES + 2 * 1024


def put(memory: memoryview, step: int, sequence: int) -> int:
    """A snapshot of a step, as a training process leaves it; the slot."""
    kept = slots.kept(memory)
    slot = kept.index(min(kept))
    slots.blank(memory, slot)
    begin = slots.start(slot, len(memory))
    memory[begin : begin + 100] = bytes([step % 256]) * 100
    content = Content(step, "/checkpoints", 3, b"header", ((0, 60), (64, 36)))
    assert slots.commit(memory, slot, content, sequence)
    return slot


def test_the_newest_of_two_is_found_with_its_parts() -> None:
    memory = memoryview(bytearray(BYTES))
    assert slots.newest(memory) is None
    assert slots.newest_step(memory) is None
    used = [put(memory, step, step) for step in (1, 2, 3)]
    assert used == [0, 1, 0]
    found = slots.newest(memory)
    assert found is not None
    assert (found.step, found.sequence, found.folder, found.keep) == (3, 3, "/checkpoints", 3)
    assert [bytes(part) for part in slots.file_parts(memory, found)] == [b"\3" * 60, b"\3" * 36]
    assert slots.newest_step(memory) == 3


@given(st.integers(0, 2**32))
def test_whatever_is_overwritten_no_other_snapshot_is_taken(seed: int) -> None:
    chance = random.Random(seed)
    memory = memoryview(bytearray(BYTES))
    put(memory, 1, 1)
    put(memory, 2, 2)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(BYTES)
        memory[at] ^= 1 << chance.randrange(8)
    found = slots.newest(memory)
    if found is not None:
        assert found.step in (1, 2)
        content = bytes([found.step])
        assert [bytes(part) for part in slots.file_parts(memory, found)] == [
            content * 60,
            content * 36,
        ]


def test_one_that_is_being_filled_leaves_the_one_before_it() -> None:
    memory = memoryview(bytearray(BYTES))
    put(memory, 1, 1)
    put(memory, 2, 2)
    slots.blank(memory, 0)
    begin = slots.start(0, BYTES)
    memory[begin : begin + 50] = b"x" * 50  # and here the process is killed
    found = slots.newest(memory)
    assert found is not None
    assert found.step == 2


def test_what_has_no_room_for_its_index_is_no_snapshot() -> None:
    memory = memoryview(bytearray(BYTES))
    content = Content(1, "/checkpoints", 3, b"h" * 2000, ((0, 60),))
    assert not slots.commit(memory, 0, content, 1)
    assert slots.newest(memory) is None


def test_memory_that_is_no_memory_of_snapshots_holds_none() -> None:
    for size in (0, 10, slots.HEAD_BYTES, BYTES):
        assert slots.newest(memoryview(bytearray(b"\xff" * size))) is None
