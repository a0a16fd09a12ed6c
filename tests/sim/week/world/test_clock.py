"""Simulated time: what is due happens in order, and whoever waits for a day is told of it."""

from __future__ import annotations

from functools import partial

from penstock.sim.week.world.assumptions import DAY
from penstock.sim.week.world.clock import Clock


def test_each_day_that_has_passed_is_told_before_what_happens_on_the_next() -> None:
    clock, seen = Clock(), list[str]()
    for day in (0.5, 1.0, 1.5, 4.2):
        clock.at(day * DAY, partial(seen.append, f"at {day}"))
    clock.run(10 * DAY, lambda: True, lambda days: seen.append(f"{days} days"), DAY)
    assert seen == ["at 0.5", "1 days", "at 1.0", "at 1.5", "4 days", "at 4.2"]


def test_nothing_happens_after_the_end() -> None:
    clock, seen = Clock(), list[float]()
    for when in (1.0, 2.0, 3.0):
        clock.at(when, lambda: seen.append(clock.now))
    clock.run(2.0, lambda: True)
    assert seen == [1.0, 2.0]
