"""Where the generators of a process stand, taken and put back in microseconds.

A process that makes batches for others beside its own work has two lives, each with random numbers
of its own, and changes between them with every batch. Python's and PyTorch's generators are read
quickly; NumPy's takes 50 us to read and 50 us to set, which is more than many a batch takes. Its
624 words are therefore copied where they lie (``BitGenerator.ctypes`` is NumPy's interface for
that), as long as the one number that is kept elsewhere, the second of a pair of normal ones, is
known to be absent.
"""

from __future__ import annotations

import ctypes
import operator
import random
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_RAW_BYTES: Final = 624 * 4 + 4
"""Of a Mersenne Twister: its words and its place in them."""


@dataclass(frozen=True, slots=True)
class _NumpyState:
    """What `numpy.random.get_state` gives; ``raw``: the same, but for a kept normal number."""

    whole: dict[str, Any]
    raw: bytes

    @property
    def copied(self) -> bool:
        """Whether ``raw`` is all of it."""
        return bool(self.raw) and not self.whole["has_gauss"]


class _Numpy:
    """NumPy's global generator; for one thread at a time, as it is itself."""

    def __init__(self) -> None:
        self._generator: Any = None
        self._address = 0
        self._last: _NumpyState | None = None

    def state(self) -> _NumpyState:
        raw, last = self._raw(), self._last
        if last is not None and last.copied and raw == last.raw:
            return last  # whoever draws a normal number changes the words
        self._last = _NumpyState(np.random.get_state(legacy=False), raw)
        return self._last

    def set(self, state: _NumpyState) -> None:
        if state.copied and self.state().copied:
            ctypes.memmove(self._address, state.raw, _RAW_BYTES)
        else:
            np.random.set_state(state.whole)
        self._last = state

    def _raw(self) -> bytes:
        """The generator's words; nothing where the program has set one of another kind."""
        module: Any = np.random  # whose stub leaves the next one out
        generator = module.get_bit_generator()
        if generator is not self._generator:
            known = type(generator) is np.random.MT19937
            self._address = generator.ctypes.state_address if known else 0
            self._generator, self._last = generator, None
        return ctypes.string_at(self._address, _RAW_BYTES) if self._address else b""


_numpy: Final = _Numpy()


def generator_states() -> list[Any]:
    """Where the process's generators stand, for `set_generator_states`."""
    torch = sys.modules.get("torch")
    states: list[Any] = [random.getstate(), _numpy.state()]
    return states if torch is None else [*states, torch.get_rng_state()]


def set_generator_states(states: list[Any]) -> None:
    """Put the process's generators where they stood."""
    random.setstate(states[0])
    _numpy.set(states[1])
    if len(states) > 2:  # PyTorch was there
        sys.modules["torch"].set_rng_state(states[2])


class Draws:
    """Whether the process's generators are drawn from, between this and the question."""

    def __init__(self) -> None:
        self._before = _compared()

    def seen(self) -> bool:
        """Whether they stand elsewhere; one that was loaded meanwhile does not count."""
        return any(map(operator.ne, self._before, _compared()))


def _compared() -> list[Any]:
    python, numpy, *others = generator_states()
    kept = [numpy.raw or repr(numpy.whole), *map(numpy.whole.get, ("has_gauss", "gauss"))]
    return [python, kept, *(state.numpy().tobytes() for state in others)]
