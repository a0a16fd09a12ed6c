"""With a tenth of a core for a core, every plan is a tenth of what it would be, and says so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.base.enums import Role
from penstock.brain.algorithms import cold_create, fitted_ps, hot_ps, idle_ps, optimize_ps, sample
from penstock.brain.cpu_unit import plan_in_grain
from penstock.brain.planning import History, Limits, Plan, RoleSpec
from penstock.brain.registry import Registered
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of

QUOTA = 30.0


def measured(unit: float, busy: float = 0.95, workers: int = 1) -> History:
    """A job whose cores are all `unit` times as large, in the same situation."""
    create = in_force_plan(workers, 4 * unit, 2, 4 * unit)
    return ps_history(
        run_of(
            8,
            speed=10.0 * workers,
            workers=workers,
            worker_cores=4.0 * unit,
            worker_used=2.5 * unit,
            servers=[(4.0 * unit, 4.0 * busy * unit), (4.0 * unit, 1.5 * unit)],
        ),
        create,
    )


def hot(unit: float) -> History:
    """Three workers, where one alone made a server use most of what it has."""
    wide = in_force_plan(3, 4 * unit, 2, 4 * unit, at=NOW - 600, settled=NOW - 400)
    alone = run_of(
        4,
        end=NOW - 800,
        speed=10.0,
        workers=1,
        worker_cores=4.0 * unit,
        worker_used=2.5 * unit,
        servers=[(4.0 * unit, 2.0 * unit), (4.0 * unit, 1.0 * unit)],
    )
    now = measured(unit, workers=3)
    create = in_force_plan(1, 4 * unit, 2, 4 * unit, at=NOW - 1000, settled=NOW - 900)
    return ps_history((*alone, *now.samples), create, wide)


def limits(unit: float) -> Limits:
    return Limits(
        milli_cpu=round(QUOTA * 1000 * unit),
        pod_milli_cpu=round(8000 * unit),
        core_milli_cpu=round(1000 * unit),
    )


def in_cores(plan: Plan | None, unit: float) -> object:
    assert plan is not None
    return {
        role: (
            own.replicas,
            None if own.milli_cpu is None else own.milli_cpu / unit,
            {rank: (of.milli_cpu or 0) / unit for rank, of in own.ranks.items()},
        )
        for role, own in plan.roles.items()
    }


@pytest.mark.parametrize(
    ("module", "history"),
    [
        (sample, measured),
        (fitted_ps, measured),
        (optimize_ps, measured),
        (hot_ps, hot),
        (idle_ps, lambda unit: measured(unit, busy=0.3)),
        (cold_create, lambda unit: History(now_seconds=NOW)),
    ],
)
@pytest.mark.parametrize("unit", [0.1, 0.25])
# Modules and functions as parametrized.
def test_a_plan_is_the_same_in_the_smaller_unit(module, history, unit: float) -> None:  # type: ignore[no-untyped-def]
    algorithm = module.ALGORITHM
    entry = Registered(algorithm, algorithm.params())
    whole = plan_in_grain(entry, history(1.0), ps_job(), limits(1.0))
    small = plan_in_grain(entry, history(unit), ps_job(), limits(unit))
    assert in_cores(small, unit) == in_cores(whole, 1.0)
    assert small is not None
    assert whole is not None
    assert "core" not in small.message
    milli = {float(size) for size in re.findall(r"of (\d+)m", small.message)}
    cores = {float(size) for size in re.findall(r"of (\d+) cores?", whole.message)}
    assert milli == {size * 1000 * unit for size in cores}


def test_a_message_has_the_smaller_unit_too() -> None:
    entry = Registered(fitted_ps.ALGORITHM, fitted_ps.FittedPsParams())
    made = plan_in_grain(entry, measured(0.1), ps_job(), limits(0.1))
    assert made is not None
    assert re.search(r"workers of \d+00m \(\d servers of \d+00m", made.message)


def test_the_templates_own_size_stays_what_it_is() -> None:
    job = replace(ps_job(), roles={Role.WORKER: RoleSpec(milli_cpu=300), Role.PS: RoleSpec()})
    entry = Registered(cold_create.ALGORITHM, cold_create.ColdCreateParams())
    made = plan_in_grain(entry, History(now_seconds=NOW), job, limits(0.1))
    assert made is not None
    assert made.roles[Role.WORKER].milli_cpu == 300
    assert made.roles[Role.PS].milli_cpu == 600


def test_no_plan_and_nonsense_pass() -> None:
    class Entry:
        def __init__(self, answer: object) -> None:
            self.plan = lambda *_: answer

    for answer in (None, "nonsense"):
        entry = Entry(answer)
        # A stand-in for an algorithm.
        assert plan_in_grain(entry, measured(0.1), ps_job(), limits(0.1)) is answer  # type: ignore[arg-type, comparison-overlap]
