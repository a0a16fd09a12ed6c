"""A speed that more resources did not raise is a plateau; one that the model explains is none."""

from __future__ import annotations

import pytest

from penstock.base.enums import Stage
from penstock.brain.model import plateau
from penstock.brain.model.measurement import Measurement
from penstock.brain.planning import AppliedPlan, History, PlanReason
from tests.brain.jobs import NOW

UPDATE = (0.03, 0.04, 0.03, 0.03)
"""Core-seconds per step on each server."""


def run(workers: int, speed: float, server_cores: float, samples: int = 10) -> Measurement:
    """Workers of three cores that use 2.5 at 12 steps/s each, beside four servers."""
    each = speed / workers
    return Measurement(
        workers=workers,
        worker_cores=3.0,
        server_cores=(server_cores,) * 4,
        steps_per_second=speed,
        error_steps_per_second=0.005 * speed,
        worker_used_cores=0.1 + 0.2 * each,
        server_used_cores=tuple(speed * work for work in UPDATE),
        worker_memory_bytes=1,
        server_memory_bytes=1,
        samples=samples,
        first_seconds=NOW - 900,
        last_seconds=NOW,
    )


ALONE = run(1, 12.0, 32.0)


def test_a_speed_far_below_what_is_promised_is_a_plateau() -> None:
    found = plateau.find((ALONE, run(30, 150.0, 20.0)), 8)
    assert found is not None
    assert found.steps_per_second == 150.0
    assert found.kept.workers == 30
    assert found.free == (ALONE,)
    assert found.promised > 250


def test_what_the_model_explains_is_none() -> None:
    assert plateau.find((ALONE, run(12, 140.0, 20.0)), 8) is None
    assert plateau.find((ALONE,), 8) is None


def test_full_servers_are_not_a_bound_from_outside() -> None:
    assert plateau.find((ALONE, run(30, 150.0, 7.0)), 8) is None


def test_too_few_samples_tell_nothing() -> None:
    assert plateau.find((ALONE, run(30, 150.0, 20.0, samples=4)), 8) is None


def test_the_smallest_configuration_at_the_level_is_kept() -> None:
    found = plateau.find((ALONE, run(30, 150.0, 24.0), run(16, 149.0, 24.0)), 8)
    assert found is not None
    assert found.kept.workers == 16
    assert found.steps_per_second == pytest.approx(149.5)


def test_the_smallest_tells_enough_where_nothing_slower_is_remembered() -> None:
    found = plateau.find((run(16, 149.0, 24.0), run(30, 150.0, 24.0)), 8)
    assert found is not None
    assert found.kept.workers == 16


def test_a_job_rests_until_the_next_plan() -> None:
    level = AppliedPlan(
        applied_seconds=NOW, roles={}, stage=Stage.ADJUST, reason=PlanReason.PLATEAU
    )
    later = AppliedPlan(applied_seconds=NOW, roles={}, stage=Stage.ADJUST, reason="DataStall")
    assert plateau.rests(History(now_seconds=NOW, plans=(level,)))
    assert not plateau.rests(History(now_seconds=NOW, plans=(level, later)))
    assert not plateau.rests(History(now_seconds=NOW))
