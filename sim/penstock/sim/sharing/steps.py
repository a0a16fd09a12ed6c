"""Steps of samples of like length, beside steps as they come: tf.data service's Figure 11.

A step takes as long as its longest sample on its slowest rank. Lengths are drawn from a named
distribution, since everything depends on it: lognormal with mean and deviation of the logarithm of
4.6 and 0.9, cut to 4 and 512. The paper's models M5 to M8 have the paper's ranks and widths of
buckets (SoCC 23, section 4.4); their lengths are not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger import BucketOrder, Buckets, SampleOrder, Slot
from penstock.sim.report.goals import Goal, at_least

LONGEST: Final = 512
SHORTEST: Final = 4
MEAN: Final = 4.6
DEVIATION: Final = 0.9
BATCH: Final = 32
SIMULATED: Final = 50_000
"""Samples of the figure."""


@dataclass(frozen=True)
class Model:
    """One of the paper's: its ranks, the width of its buckets, and what was published."""

    name: str
    ranks: int
    width: int
    published: float


MODELS: Final = (
    Model("M5", 64, 64, 1.62),
    Model("M6", 8, 128, 1.53),
    Model("M7", 64, 64, 3.5),
    Model("M8", 4, 128, 2.15),
)


def lengths_of(seed: int, count: int) -> NDArray[np.int64]:
    """Of so many samples."""
    drawn = np.exp(np.random.default_rng(seed).normal(MEAN, DEVIATION, count))
    return np.clip(drawn, SHORTEST, LONGEST).astype(np.int64)


@dataclass(frozen=True)
class Epoch:
    """What an epoch of an order comes to, in padded tokens."""

    steps: int
    time: float
    real: float
    slowest: float
    seen: int
    distinct: int


def measured(order: SampleOrder, lengths: NDArray[np.int64], epoch: int) -> Epoch:
    """All ranks pad their own batch to its longest sample, and wait for the slowest."""
    cost, tokens, padded, slowest, seen = 0.0, 0, 0, [], []
    for step in range(order.steps_per_epoch):
        parts = [order.samples(Slot(epoch, step, rank)) for rank in range(order.slots_per_step)]
        parts = [part for part in parts if len(part)]
        own = [len(part) * int(lengths[part].max()) for part in parts]
        real = [int(lengths[part].sum()) for part in parts]
        cost += max(own)
        tokens += sum(real)
        padded += sum(own)
        slowest.append(max(own) / fmean(own))
        seen += parts
    everything = np.concatenate(seen)
    return Epoch(
        order.steps_per_epoch,
        cost,
        tokens / padded,
        fmean(slowest),
        len(everything),
        len(np.unique(everything)),
    )


@dataclass(frozen=True, slots=True)
class StepRow:
    """A bar of Figure 11: time of an epoch without buckets by that with them."""

    model: str
    ranks: int
    buckets_of: int
    speedup: float
    published: float


def figure_11(seed: int, samples: int = SIMULATED) -> list[StepRow]:
    """Each model with buckets and without."""
    lengths, rows = lengths_of(seed, samples), []
    for model in MODELS:
        shape = (samples, BATCH * model.ranks, model.ranks, 1, seed)
        buckets = Buckets.of(lengths, range(model.width, LONGEST + 1, model.width))
        plain = measured(SampleOrder(*shape), lengths, 0)
        bucketed = measured(BucketOrder(*shape, buckets=buckets), lengths, 0)
        speedup = round(plain.time / bucketed.time, 2)
        rows.append(StepRow(model.name, model.ranks, model.width, speedup, model.published))
    return rows


def goals_11(rows: Sequence[StepRow]) -> list[Goal]:
    """The least and the mean of what was published."""
    return [
        at_least("least speed-up of a step", 1.5, min(row.speedup for row in rows)),
        at_least("mean speed-up of a step", 2.2, fmean(row.speedup for row in rows)),
    ]
