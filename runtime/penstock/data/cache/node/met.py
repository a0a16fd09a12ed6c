"""How many different files were met, in a fixed number of bytes: pure.

A bit for each of a hash's values: from the share that is still 0 follows how many different ones
there were (linear counting; Whang et al., 1990). Within 1 % up to some millions, which is enough to
say whether what a cache does not hold would fit into the memory beside it.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.data.cache.policy import Key

BITS: Final = 1 << 22


class MetFiles:
    """Different files, and about how many bytes they have together."""

    def __init__(self) -> None:
        self._bits = bytearray(BITS // 8)
        self._zeros = BITS
        self._bytes = 0  # of those that set a bit

    def add(self, key: Key) -> bool:
        """A file was met; whether that was for the first time, as far as is known."""
        number = hash(key) % BITS
        byte, bit = number >> 3, 1 << (number & 7)
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
            self._zeros -= 1
            self._bytes += key.length
            return True
        return False

    @property
    def count(self) -> float:
        """About how many different ones there were."""
        return BITS * math.log(BITS / max(1, self._zeros))

    @property
    def total_bytes(self) -> float:
        """About how many bytes they have."""
        found = BITS - self._zeros
        return self._bytes * self.count / found if found else 0.0
