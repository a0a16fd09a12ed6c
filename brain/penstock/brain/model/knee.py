"""Which numbers of workers make all of a speed that more workers do not raise.

What an AllReduce job makes with `n` workers is taken to be

    R(n) = (F(n)^-k + L^-k)^(-1/k),    F(n) = a n / (1 + s (n - 1))

with F what its workers alone would make (Amdahl's law) and L a level that something else sets; k
says how sharply the one goes over into the other, at infinity as `min(F, L)`. There may be no
level. Of s, k, a and L a grid of hypotheses is weighed by the speeds measured at all numbers of
workers at once: one number alone is known too badly, where samples are noisy, to tell a level from
one worker too few.

Guarantees: no randomness and no clock; a chance is 0 beyond the largest number that was measured,
where nothing is known of the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

BELOW: Final = 0.75
"""What makes at most this part of the fastest speed shows how it grows below a level."""
LEAST_ERROR: Final = 0.007
"""The model is not the truth: no speed binds it closer than this part of it."""
_SERIAL: Final = np.array(
    [0, 0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35]
)
"""Hypotheses of s."""
_SHARP: Final = 0.85
"""What an infinite k counts for before anything is measured."""
_SOFT: Final = (12.0, 6.0, 3.0)
"""Hypotheses of a finite k; they share the rest."""
_SCALE_RANGE: Final = 0.06
"""Of a, on both sides of what the numbers below the level say, at least."""
_LEVEL_RANGE: Final = (0.95, 1.25)
"""Of L, over the highest speed."""
_NEGLIGIBLE: Final = 1e-5
"""A hypothesis that counts for so much less than the best one is left out."""


def chances(
    workers: Sequence[int],
    speeds: Sequence[float],
    errors: Sequence[float],
    counts: Sequence[int],
    headroom: float,
) -> Mapping[int, float]:
    """How likely each of `counts` makes at least `1 - headroom` of what the most workers make.

    Args:
        workers: numbers that were measured, ascending; at least two.
        speeds: in steps per second, all above 0.
        errors: their standard errors, in steps per second.
        counts: numbers to judge, measured or not; those above the largest measured have chance 0.
        headroom: part of the speed that may be missing.

    Raises:
        ValueError: Fewer than two numbers, or lists that differ in length.
    """
    if len(workers) < 2 or not len(workers) == len(speeds) == len(errors):
        raise ValueError(
            f"{len(workers)} numbers of workers, {len(speeds)} speeds and {len(errors)} errors: "
            "at least two, and as many of each"
        )
    own, seen = np.array(workers, dtype=float), np.array(speeds, dtype=float)
    error = np.hypot(np.array(errors, dtype=float), LEAST_ERROR * seen)
    judged = [count for count in counts if count <= workers[-1]]
    asked = np.array([*judged, workers[-1]], dtype=float)
    kinds = [_hypotheses(own, seen, error, math.inf, _SHARP, scales=31, levels=56)]
    kinds += [
        _hypotheses(own, seen, error, soft, (1 - _SHARP) / len(_SOFT), scales=16, levels=20)
        for soft in _SOFT
    ]
    best = min(float(kind.loss.min()) for kind in kinds)
    total, found = 0.0, np.zeros(len(judged))
    for kind in kinds:
        weight = kind.prior * np.exp(best - kind.loss)
        kept = weight > _NEGLIGIBLE * kind.prior.max()
        made = _made(asked, kind.serial[kept], kind.scale[kept], kind.level[kept], kind.sharpness)
        enough = made[:, :-1] >= (1 - headroom) * made[:, -1:]
        total += float(weight[kept].sum())
        found += weight[kept] @ enough
    likely = dict(zip(judged, np.minimum(found / total, 1.0).tolist(), strict=True))
    return {count: likely.get(count, 0.0) for count in counts}


@dataclass(frozen=True, slots=True)
class _Hypotheses:
    """Those of one k: arrays of shape (hypotheses,); `loss` is half of the squared misfit."""

    sharpness: float
    serial: Floats
    scale: Floats
    level: Floats
    prior: Floats
    loss: Floats


def _hypotheses(
    workers: Floats,
    speeds: Floats,
    errors: Floats,
    sharpness: float,
    prior: float,
    *,
    scales: int,
    levels: int,
) -> _Hypotheses:
    # What makes so little is below any level; the first is, as far as can be known.
    below = speeds <= BELOW * speeds.max()
    below[0] = True
    share = (speeds[below] / errors[below]) ** 2
    ratios = speeds[below] * (1 + _SERIAL[:, None] * (workers[below] - 1)) / workers[below]
    centre = ratios @ share / share.sum()
    reach = max(_SCALE_RANGE, 4 / float(np.sqrt(share.sum())))
    level = np.append(speeds.max() * np.geomspace(*_LEVEL_RANGE, levels), np.inf)
    # That there is no level counts as much as all levels together.
    each = np.append(np.full(levels, 0.5 / levels), 0.5)
    grid = np.meshgrid(np.arange(len(_SERIAL)), np.linspace(-reach, reach, scales), level)
    index, slope, bound = (part.ravel() for part in grid)
    serial, scale = _SERIAL[index], centre[index] * (1 + slope)
    weight = np.broadcast_to(each, grid[0].shape).ravel() * prior / (len(_SERIAL) * scales)
    made = _made(workers, serial, scale, bound, sharpness)
    loss = (((made - speeds) / errors) ** 2).sum(axis=1) / 2
    return _Hypotheses(sharpness, serial, scale, bound, weight, loss)


def _made(
    workers: Floats, serial: Floats, scale: Floats, level: Floats, sharpness: float
) -> Floats:
    """Speeds, (hypotheses, workers)."""
    free = scale[:, None] * workers / (1 + serial[:, None] * (workers - 1))
    if math.isinf(sharpness):
        return np.minimum(free, level[:, None])
    made: Floats = free * (1 + (free / level[:, None]) ** sharpness) ** (-1 / sharpness)
    return made
