"""A trainer whose Brain is away loses only what does not fit, and says how much."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.client import SampleBuffer
from penstock.wire import Sample, SampleBatch

ROOM = 5


class BufferMachine(RuleBasedStateMachine):
    """Against a model: what was added, what the Brain has, what was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = SampleBuffer(max_samples=ROOM)
        self.added = 0
        self.stored: set[float] = set()
        self.reported = 0
        self.flying: SampleBatch | None = None

    @rule(count=st.integers(1, 8))
    def add(self, count: int) -> None:
        for _ in range(count):
            self.added += 1
            self.buffer.add(Sample(time=float(self.added), step=0, steps_per_second=1.0))

    @rule(limit=st.integers(1, 8))
    def send(self, limit: int) -> None:
        self.flying = self.buffer.batch(limit)
        if self.flying is not None:
            # The Brain stores it, whether or not the answer arrives.
            self.stored |= {sample.time for sample in self.flying.samples}

    @rule()
    def answered(self) -> None:
        if self.flying is not None:
            self.reported += self.flying.dropped
            self.buffer.confirm(self.flying)
            self.flying = None

    @rule()
    def failed(self) -> None:
        self.flying = None

    @invariant()
    def nothing_vanishes(self) -> None:
        waiting = self.added - len(self.buffer)
        assert len(self.buffer) <= ROOM
        dropped = self.reported + self.buffer.dropped
        # Each sample is waiting, stored, or counted as dropped; some are stored and dropped.
        assert waiting <= len(self.stored) + dropped
        assert dropped + len(self.buffer) <= self.added


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_the_oldest_go_first_and_the_newest_are_kept() -> None:
    buffer = SampleBuffer(max_samples=3)
    for time in range(10):
        buffer.add(Sample(time=float(time), step=0, steps_per_second=1.0))
    batch = buffer.batch()
    assert batch is not None
    assert [sample.time for sample in batch.samples] == [7, 8, 9]
    assert batch.dropped == 7
    buffer.confirm(batch)
    assert (buffer.batch(), buffer.dropped) == (None, 0)


def test_what_is_added_while_a_batch_flies_stays() -> None:
    buffer = SampleBuffer(max_samples=3)
    for time in range(3):
        buffer.add(Sample(time=float(time), step=0, steps_per_second=1.0))
    flying = buffer.batch()
    assert flying is not None
    buffer.add(Sample(time=9.0, step=0, steps_per_second=1.0))  # drops 0, which is flying
    buffer.confirm(flying)
    following = buffer.batch()
    assert following is not None
    assert [sample.time for sample in following.samples] == [9]
