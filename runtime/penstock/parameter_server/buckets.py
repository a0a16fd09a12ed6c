"""Where ids are in a table that is keyed by them, and what its rows begin with.

Both are functions of the id, the table and the seed alone, in integers only: the same on every
server and every processor.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.permutation import mix64_all

BUCKET_ROWS: Final = 32
"""Rows among which the row of an id is."""
PARTS: Final = 8
"""Uniform numbers whose sum a first value is."""
_PART: Final = 1 << 16
_MEAN: Final = PARTS * (_PART - 1) // 2
_DEVIATION: Final = math.sqrt(PARTS * (_PART**2 - 1) / 12)


class Buckets:
    """The places of ids in a table that is keyed by them: a partition, and a bucket of it.

    Both come from a hash of the id alone. All partitions have as many rows, and at least
    ``capacity`` together.
    """

    def __init__(self, capacity: int, partitions: int) -> None:
        self.partitions = partitions
        self.width = min(BUCKET_ROWS, -(-capacity // partitions))
        self._buckets = -(-capacity // (partitions * self.width))

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return self.partitions * self.count(0)

    def count(self, partition: int) -> int:
        """Rows in a partition."""
        return self._buckets * self.width

    def of(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Partition of each id, and the index within that at which its bucket begins."""
        mixed = mix64_all(ids.view(np.uint64))
        partition = mixed % np.uint64(self.partitions)
        bucket = mixed // np.uint64(self.partitions) % np.uint64(self._buckets)
        return partition.astype(np.int64), bucket.astype(np.int64) * self.width


def first_values(
    seed: int, ids: NDArray[np.int64], dim: int, deviation: float
) -> NDArray[np.float32]:
    """What the rows of ids begin with, (rows, dim): noise of this deviation, all but normal.

    A value is the sum of eight uniform numbers of 16 bits, so it is within 4.9 deviations of 0.
    ``seed``: of the table.
    """
    rows = mix64_all(ids.view(np.uint64) ^ np.uint64(seed))
    columns = mix64_all(np.arange(1, 2 * dim + 1, dtype=np.uint64))
    bits = mix64_all(rows[:, None] ^ columns)
    parts = bits.view(np.uint16).reshape(len(ids), dim, PARTS)
    values: NDArray[np.float32] = (parts.sum(axis=2, dtype=np.int32) - _MEAN).astype(np.float32)
    values *= np.float32(deviation / _DEVIATION)
    return values
