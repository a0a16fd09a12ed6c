"""One job's progress: what was saved is never lost, however long it stood still meanwhile."""

from __future__ import annotations

from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.clock import Clock
from penstock.sim.week.world.jobs import generate
from penstock.sim.week.world.training import Training

ASSUMED = Assumptions()


def test_a_save_after_a_long_stop_keeps_what_was_saved_before() -> None:
    job, clock = generate(3, 1, ASSUMED)[0], Clock()
    training = Training(
        job, clock, ASSUMED, done=lambda: None, broken=lambda: None, pod_fails=lambda _: None
    )

    def until(now: float) -> None:
        clock.now = now
        training.advance()

    training.become(job.asked, 4, 0.0)
    until(10.0)
    training.save()
    saved = training.steps
    training.become(None, 4, 0.0)
    until(10.0 + 1.9 * ASSUMED.save_interval)
    training.become(job.asked, 4, 0.0)
    until(clock.now + 5.0)
    training.roll_back()
    assert training.steps >= saved > 0
