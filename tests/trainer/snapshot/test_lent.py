"""A state that is written out of the training's tensors: read as a whole, or not written."""

from __future__ import annotations

import threading
import time
from itertools import product

import pytest

from penstock.trainer.snapshot.lent import Lent, Way, WithdrawnError, way_without_copy


def test_who_waits_goes_on_when_all_was_read_and_not_before() -> None:
    lent = Lent(stays=False)
    parts = lent.watched([1, 2, 3])
    seen, freed = [], threading.Event()
    waits = threading.Thread(target=lambda: lent.wait(60) and freed.set())
    waits.start()
    for _ in range(3):
        seen.append(next(parts))
        assert not freed.is_set()
    assert list(parts) == []
    waits.join(30)
    assert freed.is_set()
    assert seen == [1, 2, 3]
    with pytest.raises(WithdrawnError):
        next(lent.watched([1]))  # it has changed meanwhile


@pytest.mark.parametrize("read", [0, 1, 3])
def test_what_takes_too_long_is_withdrawn_and_no_file_comes_of_it(read: int) -> None:
    lent = Lent(stays=False)
    parts = lent.watched([1, 2, 3])
    for _ in range(read):
        next(parts)
    assert not lent.wait(60, stalled_seconds=0.05)
    with pytest.raises(WithdrawnError):
        next(parts)


def test_one_that_is_slow_all_along_has_an_end_too() -> None:
    lent = Lent(stays=False)
    parts = lent.watched(range(1 << 30))
    ended = threading.Event()

    def read() -> None:
        try:
            for _ in parts:
                time.sleep(0.01)
        except WithdrawnError:
            ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert not lent.wait(0.2, stalled_seconds=60)
    assert ended.wait(30)


def test_a_write_that_failed_holds_nobody_up() -> None:
    lent = Lent(stays=False)
    next(lent.watched([1, 2]))
    lent.end()
    assert lent.wait(0.0)


def test_what_stays_is_read_again_until_it_is_withdrawn() -> None:
    lent = Lent(stays=True)
    assert list(lent.watched([1, 2])) == [1, 2]
    assert list(lent.watched([1, 2])) == [1, 2]
    lent.withdraw()
    with pytest.raises(WithdrawnError):
        list(lent.watched([1, 2]))


def test_what_becomes_of_a_state_that_nothing_can_be_copied_of() -> None:
    for to_disk, writing, last in product([True, False], repeat=3):
        way = way_without_copy(to_disk=to_disk, writing=writing, last=last)
        if not to_disk:
            assert way is Way.LEFT_OUT, "it was for memory alone"
        elif last:
            assert way is Way.IN_PLACE, "the trained model is never left out"
        else:
            assert way is (Way.LEFT_OUT if writing else Way.IN_PLACE), "nobody waits for a disk"
