"""How many different files were met lately, in a fixed number of bytes: pure.

A bit for each of a hash's values: from the share that is still 0 follows how many different ones
there were (linear counting; Whang et al., 1990). Within 1 % up to some millions, which is enough to
say whether what a cache does not hold would fit into the memory beside it.

There are two generations of bits: after `AGE_SECONDS` the older is forgotten, so that a data set
that nobody reads any more counts for twice that at most. One that takes longer to be read once
seems smaller than it is.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.data.cache.policy import Key

BITS: Final = 1 << 22
AGE_SECONDS: Final = 3600.0


class _Bits:
    """Those of one generation."""

    def __init__(self) -> None:
        self._bits = bytearray(BITS // 8)
        self.count = 0  # of those that are set
        self.length = 0  # bytes of the files that set them

    def has(self, number: int) -> bool:
        return bool(self._bits[number >> 3] & 1 << (number & 7))

    def set(self, number: int, length: int) -> None:
        self._bits[number >> 3] |= 1 << (number & 7)
        self.count += 1
        self.length += length


class MetFiles:
    """Different files, and about how many bytes they have together."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._before: _Bits | None = None
        self._bits = _Bits()
        self._new_count = self._new_length = 0  # of those that the generation before has not

    def age(self, now: float) -> bool:
        """Time has passed; whether a generation has ended."""
        passed = now - self._since
        if passed <= AGE_SECONDS:
            return False
        self._before = self._bits if passed <= 2 * AGE_SECONDS and self._bits.count else None
        self._bits, self._since = _Bits(), now
        self._new_count = self._new_length = 0
        return True

    def add(self, key: Key) -> bool:
        """A file was met; whether that was for the first time, as far as is known."""
        number = hash(key) % BITS
        known = self._before is not None and self._before.has(number)
        if self._bits.has(number):
            return False
        self._bits.set(number, key.length)
        if not known:
            self._new_count += 1
            self._new_length += key.length
        return not known

    @property
    def count(self) -> float:
        """About how many different ones there were."""
        return BITS * math.log(BITS / max(1, BITS - self._found))

    @property
    def total_bytes(self) -> float:
        """About how many bytes they have."""
        length = self._new_length + (0 if self._before is None else self._before.length)
        return length * self.count / self._found if self._found else 0.0

    @property
    def _found(self) -> int:
        return self._new_count + (0 if self._before is None else self._before.count)
