"""Least squares without negative coefficients is solved exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.brain.model.nnls import nnls


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 8), columns=st.integers(1, 5))
def test_the_solution_meets_the_conditions_of_an_optimum(
    seed: int, rows: int, columns: int
) -> None:
    """No coefficient is negative, and no change of one by itself would lower the loss."""
    rng = np.random.default_rng(seed)
    matrix, values = rng.normal(size=(3, rows, columns)), rng.normal(size=(3, rows))
    solution, loss = nnls(matrix, values)
    assert (solution >= 0).all()
    for a, b, x, lost in zip(matrix, values, solution, loss, strict=True):
        residual = a @ x - b
        assert lost == pytest.approx(residual @ residual)
        gradient = a.T @ residual
        assert (gradient >= -1e-5).all()
        assert np.abs(gradient[x > 0]).max(initial=0) < 1e-5


def test_a_consistent_system_is_recovered() -> None:
    rng = np.random.default_rng(1)
    matrix, truth = rng.uniform(size=(1, 9, 4)), np.array([0.0, 2.0, 0.5, 0.0])
    solution, loss = nnls(matrix, matrix @ truth)
    assert solution[0] == pytest.approx(truth, abs=1e-6)
    assert loss[0] == pytest.approx(0, abs=1e-9)


def test_too_many_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="n = 7"):
        nnls(np.ones((1, 9, 7)), np.ones((1, 9)))
