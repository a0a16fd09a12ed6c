"""The window as a state machine: whatever happens, each step is given once and in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.enums import Guarantee
from penstock.data.errors import BadSampleError
from penstock.data.window.reorder_buffer import Failure, Need, ReorderBuffer

HOLDERS = st.sampled_from(["a", "b", "c"])
STEPS = 12


class Machine(RuleBasedStateMachine):
    """Data workers that ask, answer, fail, return and die, and a program that takes."""

    @initialize(start=st.integers(0, 3), ahead=st.integers(1, 8))
    def begin(self, start: int, ahead: int) -> None:
        self.window = ReorderBuffer(start, ahead)
        self.start = start
        for step in range(start, STEPS):
            self.window.feed([step])
        self.window.end()
        self.held: list[tuple[str, int]] = []
        self.given: list[int] = []
        self.now = 0.0

    @rule(holder=HOLDERS)
    def ask(self, holder: str) -> None:
        asked = self.window.ask(holder, self.now)
        if asked is None:
            return
        step, indices = asked
        assert indices == [step]
        assert step < self.window.position + self.window.ahead
        assert all(step != other for _, other in self.held)
        self.held.append((holder, step))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), again=st.booleans())
    def arrive(self, data: st.DataObject, again: bool) -> None:
        holder, step = data.draw(st.sampled_from(self.held))
        assert self.window.arrived(holder, step, step)
        self.held.remove((holder, step))
        if again:
            assert not self.window.arrived(holder, step, "a duplicate")

    @rule(holder=HOLDERS, step=st.integers(0, STEPS))
    def arrive_unasked(self, holder: str, step: int) -> None:
        if (holder, step) not in self.held:
            assert not self.window.arrived(holder, step, "from the past")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        holder, step = data.draw(st.sampled_from(self.held))
        self.window.failed(step, Failure(holder, "no", ""))
        self.held.remove((holder, step))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        holder, step = data.draw(st.sampled_from(self.held))
        assert self.window.given_back(holder, step)
        self.held.remove((holder, step))

    @rule(holder=HOLDERS)
    def leave(self, holder: str) -> None:
        mine = [one for one in self.held if one[0] == holder]
        assert self.window.gone(holder, crashed=False) == len(mine)
        self.held = [one for one in self.held if one[0] != holder]

    @rule()
    def take(self) -> None:
        need, batch = self.window.take()
        if need is None:
            assert batch == self.start + len(self.given)
            self.given.append(batch)
        elif need is Need.WAIT:
            assert any(step == self.window.position for _, step in self.held)
        elif need is Need.MAKE:
            indices, _ = self.window.make_here(self.now)
            self.window.made_here()
            self.given.append(indices[0])
        else:
            assert self.given == list(range(self.start, STEPS))

    @invariant()
    def in_order_and_once(self) -> None:
        if hasattr(self, "given"):
            assert self.given == list(range(self.start, self.start + len(self.given)))

    def teardown(self) -> None:
        """The epoch ends whatever state it is left in."""
        if not hasattr(self, "window"):
            return
        for holder in ("a", "b", "c"):
            self.leave(holder)
        for _ in range(STEPS + 1):
            self.take()
        assert self.window.take()[0] is Need.END


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def window(steps: int, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> ReorderBuffer:
    made = ReorderBuffer(0, 64, guarantee)
    for step in range(steps):
        made.feed([step])
    made.end()
    return made


def take_all(of: ReorderBuffer) -> list[Any]:
    got = []
    while True:
        need, batch = of.take()
        if need is Need.END:
            return got
        if need is Need.MAKE:
            indices, _ = of.make_here(0.0)
            of.made_here()
            batch = indices[0]
        assert need is not Need.WAIT
        got.append(batch)


def test_a_step_on_which_three_data_workers_died_is_named_and_not_tried_here() -> None:
    steps = window(3)
    for holder in ("a", "b", "c"):
        assert steps.ask(holder, 0.0) == (0, [0])
        steps.gone(holder, crashed=True)
    with pytest.raises(BadSampleError, match=r"step 0, samples \[0\]: 3 workers died"):
        steps.take()


def test_a_step_on_which_workers_died_elsewhere_is_not_tried_here_either() -> None:
    steps = window(3)
    assert steps.ask("relay", 0.0) == (0, [0])
    assert steps.ask("relay", 0.0) == (1, [1])
    for holder in ("other", "relay", "relay"):
        steps.failed(0, Failure(holder, "three died", "", died=True))
    with pytest.raises(BadSampleError, match="step 0"):
        steps.take()
    assert steps.skip() == [0]
    assert steps.arrived("relay", 1, "one")
    assert steps.take() == (None, "one")
    assert steps.ask("other", 0.0) == (2, [2])
    at_most_once = ReorderBuffer(0, 4, Guarantee.AT_MOST_ONCE)
    at_most_once.feed([0])
    at_most_once.end()
    at_most_once.ask("relay", 0.0)
    at_most_once.failed(0, Failure("relay", "three died", "", died=True))
    assert (at_most_once.take(), at_most_once.lost) == ((Need.END, None), 1)


def test_only_the_first_of_a_dead_workers_steps_is_blamed() -> None:
    steps = window(3)
    for holder in ("a", "b", "c"):
        for step in range(3):
            assert steps.ask(holder, 0.0) == (step, [step])
        if holder == "c":
            steps.arrived("c", 0, 0)
        steps.gone(holder, crashed=True)
    assert take_all(steps) == [0, 1, 2]


def test_at_most_once_gives_up_what_died_with_its_worker() -> None:
    steps = window(5, Guarantee.AT_MOST_ONCE)
    steps.ask("a", 0.0)
    steps.ask("b", 0.0)
    steps.ask("b", 0.0)
    steps.gone("a", crashed=True)
    steps.arrived("b", 1, 1)
    steps.given_back("b", 2)
    assert take_all(steps) == [1, 2, 3, 4]
    assert steps.lost == 1


def test_a_step_that_failed_elsewhere_is_the_programs_to_make() -> None:
    steps = window(2)
    steps.ask("a", 0.0)
    steps.failed(0, Failure("a", "ValueError", "trace"))
    assert steps.ask("b", 0.0) is None
    indices, failures = steps.make_here(0.0)
    assert (indices, failures[0].message) == ([0], "ValueError")


def test_who_has_had_a_step_for_too_long_is_known() -> None:
    steps = window(2)
    steps.ask("a", 1.0)
    steps.ask("b", 5.0)
    assert steps.overdue(3.0) == [("a", 0)]
