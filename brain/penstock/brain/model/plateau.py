"""A job whose speed has stopped growing for a reason that the throughput model does not know.

A shared disk, a licence, a feed of live data: something outside the job gives all its workers
together no more than so many steps per second. The model of `penstock.brain.model.ps_model` has no
term for it and would give such a job the whole quota, of which most then waits. What was measured
decides instead: where the fastest configuration falls short of what the slower ones promise by
more than the promise's error, its speed is a *level*, and what exceeds the need of that level
brought nothing.

Guarantees: a plateau needs a measured shortfall (`SHORTFALL`); the runs at the level never enter
the fit, as they do not show what the job could do; and `kept` is always a configuration that was
measured at the level, so there is a way back to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.brain.model.measurement import Measurement
from penstock.brain.model.ps_model import Fit, fit
from penstock.brain.planning import History, PlanReason

SAME: Final = 0.02
"""Speeds that differ by less are one level."""
DOUBT: Final = 1.0
"""Standard errors by which a speed has to be lower in addition: few, as a configuration that is too
small costs a part of the speed for hours, and one more change minutes."""
LITTLE: Final = 0.15
"""Part of the cores that is less worth than what they may make: see `NEARLY`."""
NEARLY: Final = 0.01
"""Where `LITTLE` more of the cores is known to make a level, a run that misses so much of it, by
its middle value, counts as below: it is dearer to be wrong about than those cores."""
SHORTFALL: Final = 0.08
"""Part of the promised speed, beyond the promise's error, that has to be missing."""
BUSY: Final = 0.85
"""Where the fullest server uses more of its CPU, it is the servers that limit."""


@dataclass(frozen=True, slots=True)
class Plateau:
    """A speed that more resources did not raise.

    `kept` is the smallest configuration measured at it, `promised` what the fastest one should
    have made by `fitted`, the model of the runs below the level.
    """

    steps_per_second: float
    kept: Measurement
    promised: float
    fitted: Fit
    free: tuple[Measurement, ...]


def find(runs: Sequence[Measurement], least_samples: int) -> Plateau | None:
    """The plateau that the runs of a job, oldest first, show; None where they show none.

    Args:
        runs: what was measured of one job.
        least_samples: of a run that counts as being at the level.
    """
    if len(runs) < 2:
        return None
    top = max((run for run in runs if run.samples >= least_samples), key=_speed, default=None)
    if top is None:
        return None
    fast = [run for run in runs if not _slower(run, top) and run.samples >= least_samples]
    free = tuple(
        run
        for run in runs
        if _slower(run, top) and not any(_has_as_much(run, other) for other in fast)
    )
    level = [run for run in runs if run not in free and run.samples >= least_samples]
    kept = min(level, key=_cores)
    near = [run for run in level if kept.cores < run.cores <= (1 + LITTLE) * kept.cores]
    if near and kept.steps_per_second < (1 - NEARLY) * _mean(run for run in level if run != kept):
        free, level = (*free, kept), [run for run in level if run != kept]
        kept = min(level, key=_cores)
    # Where all are at one level, the smallest tells at least what it made.
    timed = free or (kept,)
    fitted = fit(runs, timed)
    promised = max((_missing(run, fitted) for run in level if run not in timed), default=0.0)
    if promised <= 0:
        return None
    return Plateau(
        steps_per_second=_mean(level),
        kept=kept,
        promised=promised,
        fitted=fitted,
        free=free,
    )


def rests(history: History) -> bool:
    """Whether the job is as a plan for a plateau left it, and nothing has changed since."""
    return bool(history.plans) and history.plans[-1].reason == PlanReason.PLATEAU


def tries(history: History) -> int:
    """How many plans for a plateau came last, one after the other."""
    others = (plan.reason != PlanReason.PLATEAU for plan in reversed(history.plans))
    return next((count for count, other in enumerate(others) if other), len(history.plans))


def _missing(run: Measurement, fitted: Fit) -> float:
    """What a run should have made, where it fell short of that; 0 where it did not."""
    if max(run.server_shares) > BUSY:
        return 0.0
    promised, error = fitted.predict(run.workers, run.worker_cores, run.server_cores)
    reached = run.steps_per_second + 1.645 * run.error_steps_per_second
    return promised if reached < (promised - error) * (1 - SHORTFALL) else 0.0


def _slower(run: Measurement, top: Measurement) -> bool:
    doubt = DOUBT * math.hypot(run.error_steps_per_second, top.error_steps_per_second)
    return run.steps_per_second + doubt < top.steps_per_second * (1 - SAME)


def _has_as_much(run: Measurement, other: Measurement) -> bool:
    """Whether it has the other's pods and cores: it is as fast, and was measured too low."""
    return (
        run.workers >= other.workers
        and run.worker_cores >= other.worker_cores
        and sum(run.server_cores) >= sum(other.server_cores)
    )


def _mean(runs: Iterable[Measurement]) -> float:
    """Of their samples' speeds."""
    pairs = [(run.steps_per_second, run.samples) for run in runs]
    return sum(speed * samples for speed, samples in pairs) / sum(samples for _, samples in pairs)


def _cores(run: Measurement) -> float:
    return run.cores


def _speed(run: Measurement) -> float:
    return run.steps_per_second
