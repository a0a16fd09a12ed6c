"""Steps that are left: one rule for the trainer's estimate, deadlines and the scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Objective
from penstock.base.steps_left import steps_left
from penstock.brain.model.objective import SPARE_SECONDS, needed_speed
from penstock.brain.planning import History, Sample
from penstock.scheduler.model.signals import QueueSignals
from penstock.trainer.cluster.completion_estimate import CompletionEstimate
from tests.brain.jobs import job


@pytest.mark.parametrize(
    ("done", "total", "left"),
    [(0, None, 1), (40, None, 40), (40, 0, 40), (0, 100, 100), (40, 100, 60), (140, 100, 0)],
)
def test_steps_left(done: int, total: int | None, left: int) -> None:
    assert steps_left(done, total) == left


SPEED = 100.0
"""Steps per second, so that the steps below take from 30 s, the least that is told from, to 600."""


@given(done=st.integers(3000, 60_000), more=st.integers(1, 10**6))
def test_trainer_brain_and_scheduler_say_the_same_of_a_training(done: int, more: int) -> None:
    total, now = done + more, 1e9
    left = steps_left(done, total)
    assert QueueSignals(now, done, 1.0, 1.0, 1.0, total_steps=total).remaining_steps == left
    wanted = replace(
        job(),
        objective=Objective.DEADLINE,
        total_steps=total,
        deadline_seconds=now + SPARE_SECONDS + left,
    )
    sample = Sample(time_seconds=now, step=done, steps_per_second=SPEED, world_size=1)
    assert needed_speed(History(now_seconds=now, samples=(sample,)), wanted) == 1.0
    estimate = CompletionEstimate()
    estimate.look(0, total, now - done / SPEED)
    assert estimate.look(done, total, now) == pytest.approx(now + left / SPEED)
