"""`penstock sim table4`: GoldMiner's production model, its input in one stage and in two.

GoldMiner (SIGMOD 2023, section 5.4, Table 4 and Fig. 11): a model trains on 4 GPUs; its input is
some work on CPUs and then a `Unique` on a GPU, for which k GPUs are added, in VMs with a quarter of
the training VM's CPUs for each. In one stage a data worker does both, on the CPUs of its own VM; in
two, all CPUs there are do the first.

The model, with figures of the paper alone:

- Training without `Unique` takes 1 / 1.43 of a step: the highest speed that anything brings.
- One GPU does `Unique` for the 4 that train ("a single GPU is enough").
- CPUs, in units of one added GPU's: the first does 0.74 of the baseline's speed (single stage, 4+1)
  and n do ``0.74 n / (1 + s (n - 1))``, with s from single stage, 4+2. Both are read off the table,
  so these two entries are no results; the third single entry, all of two stages, the savings and
  the choice are.
- A GPU more in training brings 1.17.

Which configuration is taken is found by `penstock.scheduler.stage_tuning`, which is told nothing of
this but what each stage does in an interval: how many workers it ends with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.scheduler.stage_tuning import MeasuredStage, StageTuning, begin, step
from penstock.scheduler.tuning import IDEAL_RATIO
from penstock.sim.report.goals import Goal, at_least, near

TRAINING_GPUS: Final = 4
ADDED: Final = (1, 2, 4)
MOST: Final = 1.43
"""Times the baseline: the training itself."""
FIRST_UNIT: Final = 0.74
TWO_UNITS: Final = 1.13
EXTRA_TRAINING_GPU: Final = 1.17
_SUBLINEAR: Final = 2 * FIRST_UNIT / TWO_UNITS - 1

PUBLISHED: Final = {
    ("single", 1): (0.74, -0.70),
    ("single", 2): (1.13, -0.33),
    ("single", 4): (1.43, -0.40),
    ("multi", 1): (1.43, 0.13),
    ("multi", 2): (1.43, -0.049),
    ("multi", 4): (1.43, -0.40),
}
"""Speed over the baseline, and cost saved, as printed."""
SAVING_POINTS: Final = 0.01
MULTI_SHARE: Final = 0.01
SINGLE_SHARE: Final = 0.05

_MOST_INTERVALS: Final = 20


@dataclass(frozen=True, slots=True)
class Table4Row:
    """One entry: ours beside what was published."""

    stages: str
    added_gpus: int
    speed: float
    saving: float
    published_speed: float | None = None
    published_saving: float | None = None

    def as_json(self) -> dict[str, object]:
        """The entry under the names that other programs read."""
        return {
            "stages": self.stages,
            "added_gpus": self.added_gpus,
            "speed": round(self.speed, 4),
            "saving": round(self.saving, 4),
            "published_speed": self.published_speed,
            "published_saving": self.published_saving,
        }


def cpu_speed(units: float) -> float:
    """What so many units of CPUs do, as a multiple of the baseline's speed."""
    return FIRST_UNIT * units / (1 + _SUBLINEAR * (units - 1))


def unique_speed(gpus: int) -> float:
    """What so many GPUs do of `Unique` for all that train; one is enough."""
    return MOST * gpus


def speed(stages: str, added: int) -> float:
    """Of the whole job, over that of 4 GPUs without data workers."""
    units = added if stages == "single" else TRAINING_GPUS + added
    return min(MOST, cpu_speed(units), unique_speed(added))


def saving(of_speed: float, added: int) -> float:
    """Of the cost of a step; a GPU has a quarter of the price of four."""
    return 1 - (1 + added / TRAINING_GPUS) / of_speed


def rows() -> list[Table4Row]:
    """All of the table, and a GPU more in training."""
    found = []
    for (stages, added), (theirs, saved) in PUBLISHED.items():
        ours = speed(stages, added)
        found.append(Table4Row(stages, added, ours, saving(ours, added), theirs, saved))
    ours = EXTRA_TRAINING_GPU
    found.append(Table4Row("training", 1, ours, saving(ours, 1), EXTRA_TRAINING_GPU, None))
    return found


def choices() -> Iterator[StageTuning]:
    """The stage tuning of the job, interval by interval, until it is over.

    Stage 0 is the CPUs', in units; stage 1 the GPUs' that do `Unique`.
    """
    tuning = begin(2)
    for _ in range(_MOST_INTERVALS):
        yield tuning
        if tuning.is_final:
            return
        units, gpus = tuning.workers
        able = (cpu_speed(units), unique_speed(gpus))
        limits = (TRAINING_GPUS + gpus, max(ADDED))
        rate = min(MOST, *able)
        tuning = step(tuning, [MeasuredStage(rate, rate / one) for one in able], MOST, limits)


def chosen() -> tuple[int, float]:
    """GPUs that the tuning ends with beside the training's, and the speed with them."""
    last = list(choices())[-1]
    units, gpus = last.workers
    return gpus, min(MOST, cpu_speed(units), unique_speed(gpus))


def goals() -> list[Goal]:
    """What is to be reached."""
    found = []
    for row in rows():
        if row.published_speed is None or row.published_saving is None:
            continue
        share = MULTI_SHARE if row.stages == "multi" else SINGLE_SHARE
        name = f"{row.stages} 4+{row.added_gpus}"
        found.append(near(f"{name}: speed", row.published_speed, row.speed, share))
        if row.stages == "multi":
            off = abs(row.saving - row.published_saving)
            bound = f"{row.published_saving:g} within {SAVING_POINTS:g}"
            ok = off <= SAVING_POINTS
            found.append(Goal(f"{name}: saving", bound, round(row.saving, 4), ok))
    gpus, reached = chosen()
    found.append(Goal("added GPUs of the tuning", "1", gpus, gpus == 1))
    found.append(at_least("speed of the tuning over the highest", IDEAL_RATIO, reached / MOST))
    return found
