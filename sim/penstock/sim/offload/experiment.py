"""Many random jobs under every rule: the distribution of what each loses against the best ratio."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from typing import Final

import numpy as np

from penstock.sim.offload.rules import metrics_of, others, ours
from penstock.sim.offload.systems import draw, measured
from penstock.throughput.decision.fastflow import stalled
from penstock.throughput.decision.offload import LEAST_GAIN

OURS_FIRST: Final = "Penstock, first decision"
OURS: Final = "Penstock, corrected once"
UNMOVED: Final = "the 10 % rule alone"
_CHUNK: Final = 250

Losses = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """Of one rule: losses against the exhaustive best, as shares."""

    rule: str
    median: float
    p90: float
    p99: float
    worst: float
    within_3_percent: float


def losses(cases: int, noise: float, seed: int, processes: int | None = None) -> Losses:
    """What each rule loses on each of so many jobs that wait for their data.

    FastFlow's rules and the constant ones get exact figures; ours what was measured with ``noise``.
    The last row is what is lost by moving nothing where less than 10 % can be won.
    """
    sizes = [min(_CHUNK, cases - begun) for begun in range(0, cases, _CHUNK)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    workers = min(len(sizes), processes or os.cpu_count() or 1)
    if workers == 1:
        return _joined(map(_chunk, sizes, seeds, repeat(noise)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return _joined(pool.map(_chunk, sizes, seeds, repeat(noise)))


def summary(found: Losses) -> list[Row]:
    """A row for each rule."""
    rows = []
    for rule, values in found.items():
        p50, p90, p99 = (float(one) for one in np.quantile(values, (0.5, 0.9, 0.99)))
        near = float(np.mean(np.asarray(values) < 0.03))
        rows.append(Row(rule, p50, p90, p99, max(values), near))
    return rows


def _joined(chunks: Iterable[Losses]) -> Losses:
    found: Losses = {}
    for chunk in chunks:
        for rule, values in chunk.items():
            found.setdefault(rule, []).extend(values)
    return found


def _chunk(size: int, seed: np.random.SeedSequence, noise: float) -> Losses:
    source = np.random.default_rng(seed)
    rules = others()
    found: Losses = {name: [] for name in (OURS, OURS_FIRST, *rules, UNMOVED)}
    while len(found[OURS]) < size:
        system = draw(source)
        if not stalled(metrics_of(system)):
            continue
        best, alone = system.best()[1], system.rate(0.0)
        for name, rule in rules.items():
            found[name].append(1 - system.rate(rule(system)) / best)
        chosen = ours(system, noise, source, measured(system, noise, source))
        found[OURS_FIRST].append(1 - system.rate(chosen.first) / best)
        found[OURS].append(1 - system.rate(chosen.corrected) / best)
        found[UNMOVED].append(1 - alone / best if best < alone * (1 + LEAST_GAIN) else 0.0)
    return found
