"""When the steps of programs are over that take batches before they use them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from penstock.data.torchpartition.under_way import MOST_AHEAD, StepsUnderWay, UnderWay


@dataclass
class Batch:
    """One, of which it is known whether it was used."""

    number: int
    used: bool = False


@dataclass
class Look:
    """Who looks at a step, and does not keep its batch."""

    batch: weakref.ref[Batch]

    @property
    def used(self) -> bool:
        return (batch := self.batch()) is not None and batch.used


@dataclass
class Program:
    """One that takes so many batches for each of its steps, and one of the next step's first."""

    together: int
    one_more: bool
    steps: StepsUnderWay = field(default_factory=StepsUnderWay)
    uses: int = 0
    during: dict[int, int] = field(default_factory=dict)  # uses, by the step that was over then
    early: list[int] = field(default_factory=list)  # steps that were over before they were used
    _began: dict[int, int] = field(default_factory=dict)

    def run(self, batches: int) -> None:
        taken = self._taken(batches)
        held = list(itertools.islice(taken, int(self.one_more)))
        while held or not self.one_more:
            want = self.together + self.one_more - len(held)
            held += itertools.islice(taken, want)
            if not held:
                return
            for batch in held[: self.together]:
                batch.used = True
                self.uses += 1
            held = held[self.together :]

    def _taken(self, batches: int) -> Iterator[Batch]:
        alive: dict[int, Batch] = {}
        for number in range(batches):
            for step in self.steps.over():
                self.during[step.number] = self.uses - self._began[step.number]
                if not alive.pop(step.number).used:
                    self.early.append(step.number)
            batch = alive[number] = Batch(number)
            self._began[number] = self.uses
            reference = weakref.ref(batch)
            self.steps.begin(UnderWay(Look(reference), number, None, handed=(reference,)))
            yield batch


@pytest.mark.parametrize("one_more", [False, True])
@pytest.mark.parametrize("together", [1, 2, 3, 4, 7, 8, 30, 63])
def test_a_step_is_over_when_its_batch_was_used(together: int, one_more: bool) -> None:
    program = Program(together, one_more)
    program.run(500)
    assert program.steps.ahead <= together + 1
    assert program.early == []


@pytest.mark.parametrize("one_more", [False, True])
@pytest.mark.parametrize("together", [1, 2, 3, 4, 7, 8, 30])
def test_so_many_batches_are_used_while_one_step_is_under_way(
    together: int, one_more: bool
) -> None:
    program = Program(together, one_more)
    program.run(500)
    settled = [uses for number, uses in program.during.items() if number > 3 * together]
    mean = sum(settled) / len(settled)
    assert mean * 0.6 <= program.steps.used_meanwhile <= mean * 1.4, mean


def test_more_than_are_looked_at_end_as_they_come() -> None:
    program = Program(MOST_AHEAD + 10, one_more=False)
    program.run(300)
    assert program.steps.ahead == MOST_AHEAD
    assert program.early


def test_a_batch_that_nobody_has_any_more_is_not_waited_for() -> None:
    steps = StepsUnderWay()
    for number in range(10):
        batch = Batch(number)
        list(steps.over())
        reference = weakref.ref(batch)
        steps.begin(UnderWay(Look(reference), number, None, handed=(reference,)))
        del batch
    assert steps.ahead == 0


def test_steps_that_nobody_looks_at_are_counted_where_others_are_ahead() -> None:
    steps = StepsUnderWay()
    steps.begin(UnderWay(None, 0, None))
    assert not steps
    steps.ahead = 2
    for number in range(3):
        steps.begin(UnderWay(None, number, None))
    assert [step.number for step in steps.in_use] == [0, 1, 2]
    assert [step.number for step in steps.over()] == [0]
    steps.ahead = 1
    assert [step.number for step in steps.in_use] == [1]
    assert [step.number for step in steps.all_over()] == [1, 2]
