"""The tensors of a job with parameter servers, inferred from how its work spread over servers.

Parameters are placed by whole tensors, so another number of servers has another fullest server, and
a change of servers is too dear to try many numbers. Where tensors were placed in turn (tensor k on
server k mod n, as TensorFlow's default device setter does), the work of the servers under a few
numbers n says what each tensor takes: every server is one equation in the tensors it holds.

Guarantees:
- nothing is inferred unless the measurements overdetermine the tensors and agree with them within
  the error of CPU accounting: placed in any other way, they do not, and `infer` gives None;
- the fewest tensors that explain the measurements are the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

_MOST_TENSORS: Final = 96
_SPARE_EQUATIONS: Final = 2
"""How many equations must be left to contradict the assumption."""
_ERROR: Final = 0.006
"""Standard error of a server's share of the work, relative to it."""
_LEAST_ERROR: Final = 0.0003
_FIT: Final = 1.5
"""Root mean square of the residuals, in standard errors, up to which a number explains."""


def infer(work: Mapping[int, Floats]) -> Floats | None:
    """Shares of the tensors, in the order in which they were placed, or None.

    `work` has the core-seconds per step on each server, by the numbers of servers measured.
    """
    if len(work) < 2:
        return None
    counts = sorted(work)
    # Shares, because the speed that each run is divided by errs for all its servers alike.
    shares = np.concatenate([work[count] / work[count].sum() for count in counts])
    errors = np.maximum(_ERROR * shares, _LEAST_ERROR)
    everything = _placements(counts, _MOST_TENSORS) / errors[:, None]
    equations = int(np.linalg.matrix_rank(everything))
    for tensors in range(max(counts), min(equations - _SPARE_EQUATIONS, _MOST_TENSORS) + 1):
        rows = everything[:, :tensors]
        solved, _, rank, _ = np.linalg.lstsq(rows, shares / errors, rcond=None)
        if rank < tensors:
            return None
        residual = rows @ np.maximum(solved, 0.0) - shares / errors
        if float(residual @ residual) <= _FIT**2 * (equations - tensors):
            found: Floats = np.maximum(solved, 0.0) / np.maximum(solved, 0.0).sum()
            return found
    return None


def spread(tensors: Floats, servers: int) -> Floats:
    """The share of each of `servers` servers; they add up to 1."""
    shares: Floats = _placements([servers], len(tensors)) @ tensors
    return shares


def _placements(counts: list[int], tensors: int) -> Floats:
    """Which tensors each server of each number holds, (servers of all numbers, tensors)."""
    order = np.arange(tensors)
    return np.concatenate(
        [(order % count == np.arange(count)[:, None]).astype(float) for count in counts]
    )
