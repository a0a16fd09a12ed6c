"""Which samples the tiles of a dataset have: by its size alone, so the same for all who divide it.

The ranks of a program take parts of one order together, also where their datasets are not the same
bit by bit, as one that holds its rank: what a dataset contains must not decide its order. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.data.ledger import Permutation, derive_seed


@dataclass(frozen=True)
class Tiles:
    """``tile`` neighbours each of one permutation of ``size`` samples; the last may have fewer."""

    size: int
    tile: int

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.size // self.tile)

    @property
    def short(self) -> int | None:
        """The tile that has fewer samples than the others, if there is one."""
        return self.count - 1 if self.size % self.tile else None

    def samples(self, tile: int) -> list[int]:
        """The indices of a tile's samples."""
        order = Permutation(self.size, derive_seed(self.size, self.tile))
        start = tile * self.tile
        taken: list[int] = order.take(start, min(start + self.tile, self.size)).tolist()
        return taken

    def indices(self, tiles: Iterable[int]) -> list[int]:
        """Of the samples of several tiles, in their order."""
        return [index for tile in tiles for index in self.samples(int(tile))]
