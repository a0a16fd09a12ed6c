"""Streams that jobs share in one data worker: made once, given whole, whoever comes when."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.serving.batch_making import chaining
from penstock.data.serving.consumer_connection import Request
from penstock.data.serving.shared.shared_streams import SharedStreams
from penstock.data.sharing.stream_pipeline import SharedStreamPipeline
from penstock.data.streams.digest import UNKNOWN
from penstock.data.streams.pipeline import (
    NotRepeatableError,
    StopHostingError,
    StreamEndedError,
    StreamHost,
    StreamPipeline,
)
from penstock.data.transport.batch_codec import Packer

LENGTH = 5
BYTES = 80
"""Of a batch."""
chain = chaining(Packer())


class Counted:
    """Streams of `LENGTH` batches; counts what is made, over all copies."""

    def __init__(self, made: list[tuple[int, int, int]], fails_at: int = -1) -> None:
        self.made, self.fails_at = made, fails_at
        self.begun = (0, 0)

    def __iter__(self) -> Iterator[Any]:
        number, seed = self.begun
        for position in range(LENGTH):
            if position == self.fails_at:
                raise ValueError("a broken file")
            self.made.append((number, seed, position))
            yield np.full(BYTES // 8, 100 * seed + 10 * number + position, np.int64)


def begin(dataset: Any, number: int, seed: int) -> None:
    dataset.begun = (number, seed)


def name(dataset: Any, number: int, seed: int) -> tuple[int, int]:
    return number, seed


def same(value: Any) -> Any:
    return value


class Member:
    """A training process, which asks for the batches of its streams in turn."""

    def __init__(self, streams: SharedStreams, pipeline: Any, label: str = "one") -> None:
        self.line: Any = SimpleNamespace(name=label, streams=StreamHost())
        self._streams, self._pipeline = streams, pipeline

    def ask(
        self,
        position: int,
        number: int = 0,
        *,
        seed: int = 1,
        digest: int = UNKNOWN,
        leaving: Callable[[], bool] = lambda: False,
    ) -> int:
        request = Request(self.line, seed, 0, b"", seed, [number, position, digest], 0)
        batch = self._streams.make(request, self._pipeline, chain, leaving)
        values = set(batch.tolist())
        assert len(values) == 1
        return int(values.pop())


def pipeline(made: list[tuple[int, int, int]], **options: int) -> Any:
    def fresh() -> StreamPipeline:
        return StreamPipeline(Counted(made, **options), same, None, setup=begin)

    plain = StreamPipeline(Counted(made, **options), same, None, setup=begin, fresh=fresh)
    return SharedStreamPipeline(plain, b"key", name)


@pytest.fixture
def made() -> list[tuple[int, int, int]]:
    return []


def test_what_one_has_had_is_there_for_the_others(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    members = [Member(streams, asked, label) for label in "abc"]
    for position, member in itertools.product(range(LENGTH), members):
        assert member.ask(position) == 100 + position
    for member in members:
        with pytest.raises(StreamEndedError, match="5 batches"):
            member.ask(LENGTH)
        for beyond in (LENGTH + 1, LENGTH + 2):  # which it had asked for before it knew
            with pytest.raises(StreamEndedError):
                member.ask(beyond)
    assert len(made) == LENGTH
    assert (streams.pool.made, streams.pool.taken) == (LENGTH, 3 * LENGTH)


def test_who_comes_when_it_is_gone_has_it_made_for_itself(made: list[Any]) -> None:
    streams, asked = SharedStreams(BYTES), pipeline(made)  # one batch
    first, second = (Member(streams, asked, label) for label in "ab")
    assert [first.ask(position) for position in range(LENGTH)] == list(range(100, 105))
    assert [second.ask(position) for position in range(LENGTH)] == list(range(100, 105))
    assert len(made) == 2 * LENGTH
    with pytest.raises(StreamEndedError):
        second.ask(LENGTH)


def test_one_that_falls_behind_goes_on_by_itself(made: list[Any]) -> None:
    streams, asked = SharedStreams(2 * BYTES), pipeline(made)
    fast, slow = (Member(streams, asked, label) for label in "ab")
    assert (fast.ask(0), slow.ask(0)) == (100, 100)
    assert [fast.ask(position) for position in range(1, LENGTH)] == list(range(101, 105))
    assert [slow.ask(position) for position in range(1, LENGTH)] == list(range(101, 105))


def test_other_seeds_and_parts_are_other_streams(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    first, second = (Member(streams, asked, label) for label in "ab")
    assert first.ask(0, number=2, seed=3) == 320
    assert second.ask(0, number=3, seed=3) == 330
    assert second.ask(0, number=2, seed=4) == 420


def test_who_goes_on_with_the_same_stream_shares_it(made: list[Any]) -> None:
    """As after the death of a data worker, when all its members come with what they had."""
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    digest = 1
    for position in range(3):
        digest = chain(digest, np.full(BYTES // 8, 100 + position, np.int64))
    for label in "abc":
        member = Member(streams, asked, label)
        assert member.ask(3, digest=digest) == 103
        assert member.ask(4) == 104
    assert len(made) == LENGTH


def test_what_was_another_stream_before_is_not_gone_on_with(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    assert Member(streams, asked, "a").ask(3) == 103
    with pytest.raises(NotRepeatableError, match="first 3 batches"):
        Member(streams, asked, "b").ask(3, digest=12345)
    with pytest.raises(NotRepeatableError, match="ended after 5"):
        Member(streams, asked, "c").ask(LENGTH + 2, digest=12345)


def test_what_raises_is_each_ones_own_matter(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made, fails_at=2)
    first, second = (Member(streams, asked, label) for label in "ab")
    for member in (first, second):
        assert [member.ask(position) for position in range(2)] == [100, 101]
        with pytest.raises(ValueError, match="a broken file"):
            member.ask(2)


def test_who_is_to_leave_does_not_catch_up_first(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    with pytest.raises(StopHostingError):
        Member(streams, asked).ask(3, leaving=lambda: True)


def test_who_has_gone_keeps_nothing(made: list[Any]) -> None:
    streams, asked = SharedStreams(1 << 20), pipeline(made)
    first, second = (Member(streams, asked, label) for label in "ab")
    first.ask(0)
    second.ask(0)
    streams.leave(first.line)
    assert streams.pool.members == {"b"}
    streams.rest(second.line, 1)
    assert streams.idle
    streams.resize(BYTES)
    assert streams.pool.held_bytes <= BYTES


KEYS = list(itertools.product("abc", range(2), (1, 2)))
"""Members, and the numbers and seeds of streams."""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=100),
    st.integers(1, 12 * BYTES),
)
def test_any_interleaving(
    events: list[tuple[tuple[str, int, int], bool]], window: int
) -> None:  # fmt: skip
    """Members that come, dawdle, come again and have all of each stream, in its order."""
    streams, asked = SharedStreams(window), pipeline([])
    places = dict.fromkeys(KEYS, 0)
    members = {label: Member(streams, asked, label) for label in "abc"}
    rest = [(key, False) for key in KEYS for _ in range(LENGTH + 1)]
    for key, lost in [*events, *rest]:
        label, number, seed = key
        if lost:  # another goes on with what it had
            streams.leave(members[label].line)
            members[label] = Member(streams, asked, label)
        elif places[key] < LENGTH:
            expected = 100 * seed + 10 * number + places[key]
            assert members[label].ask(places[key], number, seed=seed) == expected
            places[key] += 1
        else:
            with pytest.raises(StreamEndedError):
                members[label].ask(LENGTH, number, seed=seed)
        streams.pool.check_invariants()
        assert set(streams.kept) == streams.pool.kept
    assert set(places.values()) == {LENGTH}
