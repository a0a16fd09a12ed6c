"""`penstock sim tuning --stages 2`: random jobs of several stages, tuned stage by stage.

Each job is a model: what one worker of a stage makes in a second, how much less than linear more of
them bring, and what the training takes. Measurements have noise. The best is the least number of
workers in each stage with which no stage lacks more than the tuning lets it lack, found by counting
up. The tuning is the scheduler's own (`penstock.scheduler.stage_tuning`). GoldMiner shows no such
experiment (SIGMOD 2023, section 3.4.1, says that stages are tuned one by one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.stage_tuning import MeasuredStage, begin, step
from penstock.scheduler.tuning import IDEAL_RATIO
from penstock.sim.report.goals import Goal, at_least

INTERVALS: Final = 12
REACHED: Final = 0.95
LIMIT: Final = 64
NOISE: Final = 0.01
"""Of a rate that is measured over an interval, as a share."""


@dataclass(frozen=True, slots=True)
class StagedJob:
    """A job; ``takes``: batches a second of its training."""

    takes: float
    each: tuple[float, ...]
    loss: tuple[float, ...]

    def able(self, stage: int, workers: int) -> float:
        """Batches a second of so many workers of a stage."""
        return self.each[stage] * workers / (1 + self.loss[stage] * (workers - 1))

    def best(self) -> tuple[int, ...]:
        """The fewest workers of each stage that are enough."""
        return tuple(
            next(n for n in range(1, LIMIT + 1) if self.able(stage, n) >= IDEAL_RATIO * self.takes)
            for stage in range(len(self.each))
        )


@dataclass(frozen=True, slots=True)
class StagedRun:
    """What became of one job.

    Attributes:
        workers: by interval, of each stage.
        speeds: by interval, as a share of what the training takes.
        best: the fewest workers that are enough.
        reached: the interval from which on the speed is at least `REACHED`; None: it never is.
    """

    workers: tuple[tuple[int, ...], ...]
    speeds: tuple[float, ...]
    best: tuple[int, ...]
    reached: int | None

    @property
    def off(self) -> int:
        """Workers that the stage which is farthest from the best has more or fewer than that."""
        return max(abs(own - one) for own, one in zip(self.workers[-1], self.best, strict=True))


def draw_job(stages: int, generator: np.random.Generator) -> StagedJob:
    """A job that needs 1 to 24 workers in each stage."""
    takes = float(generator.uniform(1.0, 50.0))
    need = generator.uniform(0.5, 24.0, stages)
    loss = generator.uniform(0.0, 0.01, stages)
    each = takes / need
    return StagedJob(takes, tuple(each.tolist()), tuple(loss.tolist()))


def run(job: StagedJob, generator: np.random.Generator, noise: float = NOISE) -> StagedRun:
    """Tune one job, for three times as many intervals as it should take.

    The noise is in what is measured, not in what the job does.
    """
    stages = len(job.each)
    tuning = begin(stages)
    workers, speeds = [], []
    for _ in range(3 * INTERVALS):
        able = [job.able(stage, tuning.workers[stage]) for stage in range(stages)]
        rate = min(job.takes, *able)
        workers.append(tuning.workers)
        speeds.append(rate / job.takes)
        seen = generator.normal(1.0, noise, stages + 1)
        measured = [
            MeasuredStage(rate, min(1.0, rate / one * factor))
            for one, factor in zip(able, seen, strict=False)
        ]
        tuning = step(tuning, measured, job.takes * float(seen[-1]), (LIMIT,) * stages)
    below = [place for place, one in enumerate(speeds) if one < REACHED]
    reached = below[-1] + 1 if below else 0
    return StagedRun(
        tuple(workers), tuple(speeds), job.best(), reached if reached < len(speeds) else None
    )


def simulate(stages: int, jobs: int, seed: int, noise: float = NOISE) -> list[StagedRun]:
    """Random jobs, each tuned."""
    generator = np.random.default_rng(seed)
    return [run(draw_job(stages, generator), generator, noise) for _ in range(jobs)]


def goals(exact: list[StagedRun], noisy: list[StagedRun]) -> list[Goal]:
    """What is to be reached by each job, and with noise by 99 of 100."""
    found = []
    for name, runs in (("", exact), (", with noise", noisy)):
        wanted = 1.0 if runs is exact else 0.99
        intervals = [one.reached if one.reached is not None else 3 * INTERVALS for one in runs]
        shares = {
            f"{REACHED:g} of ideal within {INTERVALS} intervals": [
                one <= INTERVALS for one in intervals
            ],
            f"{REACHED:g} of ideal at the end": [one.speeds[-1] >= REACHED for one in runs],
            "within 1 worker of the best in each stage": [one.off <= 1 for one in runs],
        }
        found += [
            at_least(f"jobs {what}{name}", wanted, sum(met) / len(met))
            for what, met in shares.items()
        ]
    return found
