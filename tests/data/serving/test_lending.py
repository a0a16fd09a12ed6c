"""Memory for a large batch is lent when the batch is about to be written, and no sooner."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.data.pinned.pool import LentPinned, PinnedPool
from penstock.data.queue.lent_blocks import LENT_AT_NEED_BYTES, MAX_LENT, LentBlocks
from penstock.data.serving import consumer_connection as serving
from penstock.data.serving.consumer_connection import ConsumerConnection
from penstock.data.transport import messages
from penstock.data.transport.blocks import SharedPool
from penstock.data.transport.messages import ASK_FOR_BLOCK, NO_BLOCK


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    made = SharedPool()
    yield made
    made.forget_in_child()


def lent_by(pool: SharedPool, *, can_share: bool = True) -> tuple[LentBlocks, list[Any]]:
    sent: list[Any] = []
    pinned = LentPinned(PinnedPool())
    return LentBlocks(
        pool, lambda *message: sent.append(message), can_share=can_share, pinned=pinned
    ), sent


@pytest.mark.parametrize(
    ("size", "at_need"), [(0, True), (1 << 20, False), (LENT_AT_NEED_BYTES + 1, True)]
)
def test_a_request_for_a_large_batch_takes_no_memory(
    pool: SharedPool, size: int, at_need: bool
) -> None:
    blocks, sent = lent_by(pool)
    promised = blocks.promise(size)
    assert (promised == ASK_FOR_BLOCK) is at_need
    assert (pool.held_bytes == 0) is at_need
    assert bool(sent) is not at_need


def test_who_is_elsewhere_is_promised_nothing(pool: SharedPool) -> None:
    blocks, _ = lent_by(pool, can_share=False)
    assert blocks.promise(1 << 30) == blocks.lend(1 << 30) == NO_BLOCK


@pytest.mark.parametrize("size", [-1, 0, 1 << 62])
def test_odd_sizes_are_lent_nothing(pool: SharedPool, size: int) -> None:
    blocks, _ = lent_by(pool)
    assert blocks.lend(size) == NO_BLOCK
    assert pool.held_bytes == 0


def test_what_one_maker_may_have_is_bounded(pool: SharedPool) -> None:
    blocks, _ = lent_by(pool)
    numbers = [blocks.lend(1) for _ in range(MAX_LENT + 5)]
    assert numbers[MAX_LENT - 1] != NO_BLOCK
    assert numbers[MAX_LENT:] == [NO_BLOCK] * 5


def test_memory_that_comes_too_late_is_for_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "LEND_SECONDS", 0.05)
    here, there = socket.socketpair()
    with here, there:
        line = ConsumerConnection("the program", there, True)
        assert line.borrow(1 << 25) == NO_BLOCK
        line.lent.put(7)
        assert line.borrow(1 << 25) == 7
        answer = threading.Timer(0.01, line.lent.put, [8])
        answer.start()
        monkeypatch.setattr(serving, "LEND_SECONDS", 20)
        assert line.borrow(1 << 25) == 8
        answer.join()
    assert messages.fields(messages.WANT, [1]) == [1]
