"""A trainer that has nothing to see costs no event, and looks on at its own moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from penstock.sim.week.brain_view import SAMPLE_SECONDS
from penstock.sim.week.trainer_looks import TrainerLooks
from penstock.sim.week.world.clock import Clock

if TYPE_CHECKING:
    from penstock.sim.week.brain_view import BrainView


class Job:
    """Stands for a Brain's view of a job, and counts the looks at it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.has_something_to_see = True
        self.over = False
        self.looks: list[float] = []
        self.trainer = TrainerLooks(self.clock, cast("BrainView", self), self.look)

    def next_look(self, now: float) -> float:
        return now + SAMPLE_SECONDS

    def look(self) -> bool:
        self.looks.append(self.clock.now)
        return not self.over

    def until(self, when: float) -> int:
        """Let time pass; how many events there were."""
        events = 0

        def going() -> bool:
            nonlocal events
            events += 1
            return True

        self.clock.at(when, lambda: None)
        self.clock.run(when, going)
        return events


def test_it_looks_at_every_sample_until_the_job_is_over() -> None:
    job = Job()
    job.trainer.begin()
    job.trainer.begin()
    job.until(10)
    assert job.looks == [1, 4, 7, 10]
    job.over = True
    job.until(99)
    assert job.looks == [1, 4, 7, 10, 13]


def test_days_without_anything_to_see_are_one_event() -> None:
    job = Job()
    job.trainer.begin()
    job.until(3)
    job.has_something_to_see = False
    assert job.until(300_000) <= 3
    job.trainer.wake()
    assert job.until(300_100) <= 1, "there is still nothing"
    assert job.looks == [1]


@pytest.mark.parametrize(("woken", "first"), [(100.0, 103.0), (101.0, 103.0), (102.9, 103.0)])
def test_it_goes_on_when_it_would_have_looked_all_along(woken: float, first: float) -> None:
    job = Job()
    job.trainer.begin()
    job.until(3)
    job.has_something_to_see = False
    job.until(woken)
    job.has_something_to_see = True
    job.trainer.wake()
    job.trainer.wake()
    job.until(110)
    assert job.looks == [1, first, first + 3, first + 6]
