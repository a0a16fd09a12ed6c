"""One job's progress: what was saved is never lost, however long it stood still meanwhile."""

from __future__ import annotations

import gc
import weakref

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


def test_what_was_expected_of_a_job_does_not_keep_it() -> None:
    job, clock, told = generate(3, 1, ASSUMED)[0], Clock(), [0]

    def tell(_: float = 0.0) -> None:
        told[0] += 1

    training = Training(job, clock, ASSUMED, done=tell, broken=tell, pod_fails=tell)
    training.become(job.asked, 4, 0.0)
    training.stop()
    gone = weakref.ref(training)
    del training
    gc.collect()
    assert gone() is None
    clock.run(1e12, lambda: True)
    assert clock.now > 0, "its time came"
    assert told == [0]
