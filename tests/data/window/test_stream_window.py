"""Streams in turn as a state machine: whatever happens, each batch is given once and in order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.enums import Guarantee
from penstock.data.errors import BadSampleError
from penstock.data.window.reorder_buffer import Failure, Need
from penstock.data.window.stream_window import StreamWindow

HOLDERS = st.sampled_from(["a", "b", "c"])
Batch = tuple[int, int]


def in_turn(lengths: list[int]) -> list[Batch]:
    """What PyTorch gives of workers with so many batches: (worker, batch)."""
    rounds = range(max(lengths, default=0))
    return [(w, j) for j in rounds for w in range(len(lengths)) if j < lengths[w]]


class Makers:
    """The other side as it is meant to be: each answers what it was asked, in order."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.asked: dict[str, list[tuple[int, Batch]]] = {"a": [], "b": [], "c": []}


class Machine(RuleBasedStateMachine):
    """Makers that claim, answer, end, fail, return and die, and a program that takes."""

    guarantee = Guarantee.EXACTLY_ONCE

    @initialize(
        lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
        ahead=st.integers(1, 8),
        begun=st.integers(0, 8),
    )
    def begin(self, lengths: list[int], ahead: int, begun: int) -> None:
        self.lengths, self.all = lengths, in_turn(lengths)
        begun = min(begun, len(self.all))
        self.expected = self.all[begun:]
        position, ends = 0, {}
        if begun:
            number, batch = self.all[begun - 1]
            position = batch * len(lengths) + number + 1
            ends = {w: n for w, n in enumerate(lengths) if n * len(lengths) + w < position}
        self.window = StreamWindow(len(lengths), position, ahead, self.guarantee, ends)
        self.held: list[tuple[str, int]] = []
        self.given: list[Batch] = []
        self.lost: list[int] = []

    def of(self, step: int) -> Batch:
        return step % len(self.lengths), step // len(self.lengths)

    @rule(holder=HOLDERS, data=st.data())
    def claim(self, holder: str, data: st.DataObject) -> None:
        if free := self.window.free_for(holder):
            self.window.claim(holder, data.draw(st.sampled_from(free)))

    @rule(holder=HOLDERS)
    def ask(self, holder: str) -> None:
        asked = self.window.ask(holder, 0.0)
        if asked is None:
            return
        step, (number, batch, _) = asked
        assert self.of(step) == (number, batch)
        assert all(step != other for _, other in self.held)
        assert not any(self.of(s)[0] == number and h != holder for h, s in self.held)
        self.held.append((holder, step))

    def first_of(self, data: st.DataObject) -> tuple[str, int]:
        """A maker answers for a stream in the order in which it was asked."""
        holder, step = data.draw(st.sampled_from(self.held))
        number = self.of(step)[0]
        return holder, min(s for h, s in self.held if h == holder and self.of(s)[0] == number)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data: st.DataObject, again: bool) -> None:
        holder, step = self.first_of(data)
        number, batch = self.of(step)
        if batch < self.lengths[number]:
            assert self.window.arrived(holder, step, (number, batch), 1)
            self.held.remove((holder, step))
            if again:
                assert not self.window.arrived(holder, step, "a duplicate", 1)
        else:
            assert self.window.ended(holder, step)
            self.held = [one for one in self.held if self.of(one[1])[0] != number]

    @rule(holder=HOLDERS, step=st.integers(0, 24))
    def answer_unasked(self, holder: str, step: int) -> None:
        if (holder, step) not in self.held:
            assert not self.window.arrived(holder, step, "from the past", 1)
            assert not self.window.ended(holder, step)
            assert not self.window.given_back(holder, step)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        holder, step = self.first_of(data)
        number = self.of(step)[0]
        self.window.failed(step, Failure(holder, "no", ""))
        self.held = [one for one in self.held if self.of(one[1])[0] != number]
        assert number not in self.window.free_for(holder)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """It finishes what it has in hand, and returns the rest, in order."""
        holder, step = data.draw(st.sampled_from(self.held))
        number = self.of(step)[0]
        assert self.window.given_back(holder, step)
        self.held = [
            (h, s) for h, s in self.held if h != holder or self.of(s)[0] != number or s < step
        ]
        for h, s in list(self.held):
            if h == holder and self.of(s)[0] == number and self.of(s)[1] >= self.lengths[number]:
                assert self.window.ended(h, s)
                self.held = [one for one in self.held if self.of(one[1])[0] != number]
                break

    @rule(holder=HOLDERS, crashed=st.booleans())
    def leave(self, holder: str, crashed: bool) -> None:
        mine = [one for one in self.held if one[0] == holder]
        assert self.window.gone(holder, crashed=crashed) == len(mine)
        if self.guarantee is Guarantee.AT_MOST_ONCE:
            self.lost += [step for _, step in mine]
        self.held = [one for one in self.held if one[0] != holder]

    @rule()
    def take(self) -> None:
        try:
            need, batch = self.window.take()
        except BadSampleError:
            (number, position, _), _ = self.window.make_here(0.0)
            assert self.window.ended("training", self.window.position)
            self.window.made_here()
            self.expected = [b for b in self.expected if b[0] != number or b[1] < position]
            self.lengths = [n if w != number else position for w, n in enumerate(self.lengths)]
            return
        position = self.window.position
        if need is None:
            self.given.append(batch)
        elif need is Need.WAIT:
            assert any(step == position for _, step in self.held)
        elif need is Need.MAKE:
            (number, index, _), _ = self.window.make_here(0.0)
            if index < self.lengths[number]:
                self.given.append((number, index))
            else:
                assert self.window.ended("training", position)
            self.window.made_here()
        else:
            assert self.given == self.expected_now()

    def expected_now(self) -> list[Batch]:
        lost = {self.of(step) for step in self.lost}
        return [batch for batch in self.expected if batch not in lost]

    @invariant()
    def in_order_and_once(self) -> None:
        if hasattr(self, "given"):
            assert self.given == self.expected_now()[: len(self.given)]
            assert self.window.ready + len(self.held) <= self.window.ahead + len(self.lengths)

    def teardown(self) -> None:
        """The epoch ends whatever state it is left in."""
        if not hasattr(self, "window"):
            return
        for holder in ("a", "b", "c"):
            self.leave(holder, crashed=False)
        for _ in range(3 * len(self.all) + 10 * len(self.lengths)):
            self.take()
        assert self.window.take()[0] is Need.END
        assert self.window.finished
        real = [step for step in self.lost if self.of(step) in self.expected]
        assert self.window.lost >= len(real)


class Lossy(Machine):
    """The same where nothing may be given twice, though it be lost."""

    guarantee = Guarantee.AT_MOST_ONCE


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLossy = Lossy.TestCase
TestLossy.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def take_all(window: StreamWindow, lengths: list[int]) -> list[Any]:
    got = []
    for _ in itertools.count():
        need, _ = window.take()
        if need is Need.END:
            return got
        (number, batch, _), _ = window.make_here(0.0)
        if batch < lengths[number]:
            got.append((number, batch))
        else:
            window.ended("training", window.position)
        window.made_here()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("lengths", [[3], [2, 2], [0, 3, 1], [4, 0, 0, 2]])
def test_streams_are_given_in_turn_and_those_that_end_are_left_out(lengths: list[int]) -> None:
    assert take_all(StreamWindow(len(lengths), 0, 4), lengths) == in_turn(lengths)


def test_a_stream_that_cannot_be_repeated_ends_where_it_was_and_is_counted() -> None:
    window = StreamWindow(1, 0, 8)
    window.claim("a", 0)
    assert window.ask("a", 0.0) == (0, [0, 0, 1])
    assert window.ask("a", 0.0) == (1, [0, 1, 0])
    assert window.arrived("a", 0, "first", 77)
    window.gone("a", crashed=True)
    window.claim("b", 0)
    assert window.ask("b", 0.0) == (1, [0, 1, 77])
    assert window.ended("b", 1, repeatable=False)
    assert window.lost == 1
    assert window.take() == (None, "first")
    assert window.take()[0] is Need.END


def test_what_the_program_raised_ends_the_stream_and_not_the_others() -> None:
    window = StreamWindow(2, 0, 8)
    window.claim("a", 0)
    window.ask("a", 0.0)
    window.failed(0, Failure("a", "no", "", b"raised"))
    assert window.free_for("b") == [1]
    assert window.take(elsewhere=True)[0] is Need.MAKE
    _, failures = window.make_here(0.0)
    assert failures[0].error == b"raised"
    window.ended("training", 0)
    window.made_here()
    window.claim("b", 1)
    assert window.ask("b", 0.0) == (1, [1, 0, 1])
    window.arrived("b", 1, "other", 5)
    assert window.take() == (None, "other")


def test_a_batch_on_which_three_makers_died_is_named() -> None:
    window = StreamWindow(2, 0, 8)
    for holder in ("a", "b", "c"):
        window.claim(holder, 0)
        assert window.ask(holder, 0.0) == (0, [0, 0, 1])
        window.gone(holder, crashed=True)
    assert window.free_for("d") == [1]
    with pytest.raises(BadSampleError, match=r"batch 0 of stream 0 of 2: 3 workers died"):
        window.take(elsewhere=True)


def test_those_who_die_before_they_come_to_a_batch_are_no_fault_of_it() -> None:
    window = StreamWindow(1, 0, 8)
    window.claim("a", 0)
    window.ask("a", 0.0)
    window.arrived("a", 0, "first", 5)
    for death in range(20):
        assert window.free_for(f"b{death}") == ([0] if death else [])
        holder = f"b{death}" if death else "a"
        if death:
            window.claim(holder, 0)
        assert window.ask(holder, 0.0) == (1, [0, 1, 5])
        window.gone(holder, crashed=True)
    assert window.take() == (None, "first")
    assert window.take(elsewhere=True)[0] is Need.WAIT
    window.claim("c", 0)
    window.ask("c", 0.0)
    window.gone("c", crashed=True)
    with pytest.raises(BadSampleError, match="21 workers died"):
        window.take()


def test_the_window_bounds_what_is_asked_for_evenly_over_the_streams() -> None:
    window = StreamWindow(2, 0, 4)
    window.claim("a", 0)
    window.claim("a", 1)
    steps = []
    while (asked := window.ask("a", 0.0)) is not None:
        steps.append(asked[0])
    assert steps == [0, 1, 2, 3]
