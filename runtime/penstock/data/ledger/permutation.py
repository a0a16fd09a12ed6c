"""A shuffled order of N samples that needs no memory for the order itself.

A balanced Feistel network is a bijection on the 2^b numbers of b bits, whatever its round function;
a value that lands outside ``range(N)`` is sent through again until it lands inside ("cycle
walking", Black and Rogaway 2002), which keeps it a bijection on ``range(N)``. As 2^b < 4 N, fewer
than four rounds of walking are expected. The order of a billion samples is thus a few integers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_ROUNDS: Final = 6
_MASK64: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB


def mix64(value: int) -> int:
    """The finalizer of SplitMix64 (Steele et al. 2014): scatters the bits of a 64-bit integer."""
    value = (value + _GAMMA) & _MASK64
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK64
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK64
    return value ^ (value >> 31)


def derive_seed(*parts: int) -> int:
    """One 63-bit seed from several integers; every part and its position matters."""
    value = 0
    for part in parts:
        value = mix64(value ^ (part & _MASK64))
    return value >> 1


class Permutation:
    """A bijection on ``range(size)`` that is a pure function of ``(size, seed)``."""

    __slots__ = ("_half_bits", "_keys", "_mask", "size")

    def __init__(self, size: int, seed: int) -> None:
        if size < 1:
            raise ValueError(f"size: {size}; a permutation needs at least one element")
        if size > 1 << 62:
            raise ValueError(f"size: {size}; at most 2**62 elements")
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._half_bits = (bits + 1) // 2
        self._mask = (1 << self._half_bits) - 1
        self._keys = tuple(mix64(derive_seed(seed, turn)) for turn in range(_ROUNDS))

    def __getitem__(self, position: int) -> int:
        """The sample at ``position`` of the order."""
        if not 0 <= position < self.size:
            raise IndexError(f"position {position} is not in range({self.size})")
        value = self._encrypt(position)
        while value >= self.size:
            value = self._encrypt(value)
        return value

    def take(self, start: int, stop: int) -> NDArray[np.int64]:
        """The samples at positions ``start..stop``: int64 of shape ``(stop - start,)``."""
        if not 0 <= start <= stop <= self.size:
            raise IndexError(f"positions {start}..{stop} are not in range({self.size})")
        values = self._encrypt_all(np.arange(start, stop, dtype=np.uint64))
        size = np.uint64(self.size)
        while (outside := np.flatnonzero(values >= size)).size:
            values[outside] = self._encrypt_all(values[outside])
        return values.astype(np.int64)

    def _encrypt(self, value: int) -> int:
        left, right = value >> self._half_bits, value & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix64(right ^ key) & self._mask)
        return (left << self._half_bits) | right

    def _encrypt_all(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        half, mask = np.uint64(self._half_bits), np.uint64(self._mask)
        left, right = values >> half, values & mask
        for key in self._keys:
            left, right = right, left ^ (mix64_all(right ^ np.uint64(key)) & mask)
        result: NDArray[np.uint64] = (left << half) | right
        return result


def mix64_all(values: NDArray[Any]) -> NDArray[np.uint64]:
    """`mix64` of every element; unsigned arithmetic wraps as the scalar form masks."""
    values = values + np.uint64(_GAMMA)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX_2)
    result: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return result
