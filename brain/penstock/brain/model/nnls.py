"""Least squares with coefficients that may not be negative, for a handful of coefficients.

Solved exactly: at the optimum some coefficients are 0 and the others solve the ordinary normal
equations, so every choice of zeros is tried and the best feasible one kept. That is 2**n small
linear systems, solved in one batch: exact, deterministic, and quick for n up to 6, which is why no
iterative solver is needed.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

MOST_COEFFICIENTS: Final = 6
_TINY: Final = 1e-12


def nnls(rows: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Minimise |rows x - values|^2 over x >= 0, for a batch of problems.

    `rows` has shape (problems, observations, n), `values` (problems, observations); rows are
    weighted already. Gives the coefficients, (problems, n), and the losses, (problems,). A
    coefficient that the rows do not determine comes out as 0.

    Raises:
        ValueError: N > 6.
    """
    count = rows.shape[-1]
    if count > MOST_COEFFICIENTS:
        raise ValueError(
            f"nnls tries 2**n choices of zeros: n = {count} is above {MOST_COEFFICIENTS}"
        )
    gram = np.einsum("pik,pil->pkl", rows, rows)
    moment = np.einsum("pik,pi->pk", rows, values)
    scale = np.sqrt(np.maximum(np.einsum("pkk->pk", gram), _TINY))
    gram = gram / scale[:, :, None] / scale[:, None, :]
    moment = moment / scale
    best = np.zeros_like(moment)
    # The loss less the constant |values|^2: 0 for x = 0.
    best_gain = np.zeros(len(moment))
    for size in range(1, count + 1):
        for support in itertools.combinations(range(count), size):
            keep = np.array(support)
            part = gram[:, keep[:, None], keep] + _TINY * np.eye(size)
            solved = np.linalg.solve(part, moment[:, keep][..., None])[..., 0]
            gain = np.einsum("pk,pk->p", solved, moment[:, keep])
            better = (solved >= 0).all(axis=1) & (gain > best_gain + _TINY)
            best[better] = 0.0
            best[np.ix_(better, keep)] = solved[better]
            best_gain = np.where(better, gain, best_gain)
    coefficients = best / scale
    residual = np.einsum("pik,pk->pi", rows, coefficients) - values
    return coefficients, np.einsum("pi,pi->p", residual, residual)
