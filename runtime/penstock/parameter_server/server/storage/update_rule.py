"""How one update changes parameters: the rules of `OptimizerSpec`, on arrays of NumPy's.

Invariant: what becomes of a parameter depends on its own value, state, count and gradient, and on
the rate of the batch, whatever lies beside it. That is why the powers of Adam's correction come
from a table of ``1 - beta ** t`` in float64: a vectorized power may round differently from one
place of an array to another, and from one processor to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.parameter_server.arrays import Floats
from penstock.parameter_server.spec import OptimizerKind, OptimizerSpec

FIRST_CORRECTIONS: Final = 256
SETTLED: Final = 2.0**-54
"""A power below this changes nothing in ``1 - power``."""


class Correction:
    """``1 - beta ** t`` for the counts that occur; it grows to the largest, or until it is 1."""

    def __init__(self, beta: float) -> None:
        self._beta = beta
        self._settled = False
        self._table: NDArray[np.float64] = np.empty(0)
        self._extend(FIRST_CORRECTIONS)

    def of(self, counts: Floats) -> NDArray[np.float64]:
        """The corrections of counts of at least 1, in their shape."""
        if not self._settled and counts.size:
            largest = int(counts.max())
            while largest >= len(self._table) and not self._settled:
                self._extend(2 * len(self._table))
        found: NDArray[np.float64] = self._table.take(counts.astype(np.int64), mode="clip")
        return found

    def _extend(self, length: int) -> None:
        powers = [self._beta**count for count in range(len(self._table), length)]
        self._table = np.concatenate([self._table, 1.0 - np.array(powers)])
        self._settled = powers[-1] < SETTLED


class UpdateRule:
    """An optimizer's rule, in place."""

    def __init__(self, optimizer: OptimizerSpec) -> None:
        self._optimizer = optimizer
        self._corrections = (
            (Correction(optimizer.beta1), Correction(optimizer.beta2))
            if optimizer.counted
            else None
        )

    def update(
        self,
        values: Floats,
        states: Sequence[Floats],
        counts: Floats | None,
        gradient: Floats,
        rate: float,
    ) -> None:
        """Make one step.

        ``counts``: which update this is for each number, from 1, in a shape that goes with that of
        the others; None with a rule that does not count.
        """
        optimizer, kind = self._optimizer, self._optimizer.kind
        if kind is OptimizerKind.ADAMW:
            values *= np.float32(1 - rate * optimizer.weight_decay)
        elif optimizer.weight_decay:
            gradient = gradient + np.float32(optimizer.weight_decay) * values
        if kind is OptimizerKind.SGD:
            self._descend(values, states, gradient, rate)
        elif kind is OptimizerKind.ADAGRAD:
            self._adagrad(values, states[0], gradient, rate)
        else:
            assert counts is not None, "this rule counts"
            self._adam(values, states, counts, gradient, rate)

    def _descend(
        self, values: Floats, states: Sequence[Floats], gradient: Floats, rate: float
    ) -> None:
        step = gradient
        if states:
            momentum, [velocity] = np.float32(self._optimizer.momentum), states
            velocity *= momentum
            velocity += gradient
            step = gradient + momentum * velocity if self._optimizer.nesterov else velocity
        values -= np.float32(rate) * step

    def _adagrad(self, values: Floats, state: Floats, gradient: Floats, rate: float) -> None:
        step = gradient * gradient
        state += step
        np.sqrt(state, out=step)
        step += np.float32(self._optimizer.epsilon)
        np.divide(gradient, step, out=step)
        step *= np.float32(rate)
        values -= step

    def _adam(
        self,
        values: Floats,
        states: Sequence[Floats],
        counts: Floats,
        gradient: Floats,
        rate: float,
    ) -> None:
        assert self._corrections is not None, "this rule counts"
        optimizer = self._optimizer
        first, second = (correction.of(counts) for correction in self._corrections)
        mean, square = states
        mean += np.float32(1 - optimizer.beta1) * (gradient - mean)
        square *= np.float32(optimizer.beta2)
        square += np.float32(1 - optimizer.beta2) * gradient * gradient
        step = np.sqrt(square)
        step /= np.sqrt(second).astype(np.float32)
        step += np.float32(optimizer.epsilon)
        np.divide(mean, step, out=step)
        step *= (rate / first).astype(np.float32)
        values -= step
