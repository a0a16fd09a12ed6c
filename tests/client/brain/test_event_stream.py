"""Server-sent events are read alike however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.brain.event_stream import MAX_EVENT_BYTES, EventReader, ServerSentEvent

STREAM = (
    b': welcome\n\nevent: plan\nid: 1\ndata: {"a": 1}\n\n: still here\n\n'
    b"event: plan\r\nid: 2\r\ndata: first\r\ndata: second \xc3\xa9\r\n\r\ndata:x\n\n"
    b"event: lost\nid: 3\ndata: unfinished"
)
EVENTS = [
    ServerSentEvent("plan", '{"a": 1}', "1"),
    ServerSentEvent("plan", "first\nsecond é", "2"),
    ServerSentEvent("message", "x", "2"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_any_cutting_gives_the_same_events(cuts: list[int]) -> None:
    reader, found = EventReader(), []
    places = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(places):
        found += reader.feed(STREAM[start:end])
    assert found == EVENTS


@pytest.mark.parametrize(
    "endless", [b"x" * (MAX_EVENT_BYTES + 1), b"data: x\n" * (MAX_EVENT_BYTES + 1)]
)
def test_an_endless_event_is_refused(endless: bytes) -> None:
    reader = EventReader()
    with pytest.raises(ValueError, match="longer than"):
        reader.feed(endless)
