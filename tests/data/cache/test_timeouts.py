"""Who waits for somebody waits longer than that one may take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.cache.timeouts import (
    ANSWER_SECONDS,
    PEER_ANSWER_SECONDS,
    UNANNOUNCED_SECONDS,
    announced_seconds,
    answer_seconds,
    fetch_seconds,
    read_in_seconds,
)


@given(length=st.integers(1, 1 << 31))
def test_each_waits_longer_than_what_it_waits_for(length: int) -> None:
    assert answer_seconds(length) < fetch_seconds(length) < announced_seconds(length)
    assert read_in_seconds(length) + answer_seconds(length) < fetch_seconds(length)
    assert PEER_ANSWER_SECONDS < UNANNOUNCED_SECONDS < ANSWER_SECONDS
