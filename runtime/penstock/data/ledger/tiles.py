"""What one process has had of an epoch whose order is free: each tile once, whoever brings it.

A tile is some samples of the dataset. `Ledger` hands slots out in order; here any tile may come
next, so what counts is the set of those that were consumed. One that comes a second time is a
duplicate and dropped. Pure: no I/O, no clock.

Guarantees, for any interleaving: each tile of an epoch is consumed once; a snapshot holds what was
consumed, a bit for each tile, so that what had arrived and was not consumed comes again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.errors import LedgerError, SnapshotError

MAX_TILES: Final = 1 << 29
"""A checkpoint holds a bit for each: 64 MiB at most."""
TILES_VERSION: Final = 1


class TileLedger:
    """One process's tiles of one epoch; see the module's docstring."""

    def __init__(self, tiles: int, own: NDArray[np.bool_] | None = None) -> None:
        """``own``: those of the epoch that are this process's, where several divide it.

        Raises:
            LedgerError: there is no such number of tiles.
        """
        if not 1 <= tiles <= MAX_TILES:
            raise LedgerError(f"tiles: {tiles}; from 1 to {MAX_TILES}")
        if own is not None and own.shape != (tiles,):
            raise LedgerError(f"own: {own.shape[0]} tiles; the epoch has {tiles}")
        self._own = np.ones(tiles, np.bool_) if own is None else own.copy()
        self._consumed = np.zeros(tiles, np.bool_)
        self._lacks = self._own.copy()
        self._arrived: set[int] = set()
        self._lacking = int(self._own.sum())

    @property
    def lacks(self) -> NDArray[np.bool_]:
        """Tiles that are neither here nor consumed: bool of shape ``(tiles,)``.

        To be read; only this ledger changes it.
        """
        return self._lacks

    @property
    def lacking(self) -> int:
        """Tiles that are neither here nor consumed."""
        return self._lacking

    def arrive(self, tile: int) -> bool:
        """A tile comes, from whomever; False if it is here or consumed already: to be dropped."""
        if not 0 <= tile < len(self._lacks):
            raise LedgerError(f"tile {tile}; the epoch has {len(self._lacks)}")
        if not self._lacks[tile]:
            return False
        self._lacks[tile] = False
        self._lacking -= 1
        self._arrived.add(tile)
        return True

    def consume(self, tile: int) -> None:
        """The program has it.

        Raises:
            LedgerError: it has not arrived.
        """
        if tile not in self._arrived:
            raise LedgerError(f"tile {tile} has not arrived")
        self._arrived.discard(tile)
        self._consumed[tile] = True

    def snapshot(self) -> dict[str, Any]:
        """What was consumed, as plain data (msgpack, pickle); `restore` takes it back."""
        return {
            "version": TILES_VERSION,
            "tiles": len(self._consumed),
            "consumed": zlib.compress(np.packbits(self._consumed).tobytes(), 1),
        }

    @classmethod
    def restore(
        cls, tiles: int, snapshot: Mapping[str, Any], own: NDArray[np.bool_] | None = None
    ) -> Self:
        """The ledger of which the snapshot was made; what was under way is lacking again.

        Raises:
            SnapshotError: it is of another version or number of tiles, or damaged.
        """
        if snapshot.get("version") != TILES_VERSION:
            raise SnapshotError(
                f"version: {snapshot.get('version')!r}; this ledger reads {TILES_VERSION}"
            )
        if snapshot.get("tiles") != tiles:
            raise SnapshotError(
                f"tiles: the snapshot has {snapshot.get('tiles')!r}, the epoch has {tiles}: the "
                "dataset, or the number of samples in a tile, is another"
            )
        ledger = cls(tiles, own)
        try:
            expected = -(-tiles // 8)
            opened = zlib.decompressobj()
            packed = opened.decompress(snapshot["consumed"], expected + 1)
        except (KeyError, TypeError, zlib.error) as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
        if len(packed) != expected:
            raise SnapshotError(f"the snapshot is damaged: {len(packed)} bytes for {tiles} tiles")
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=tiles).astype(np.bool_)
        ledger._consumed = bits & ledger._own
        ledger._lacks = ledger._own & ~bits
        ledger._lacking = int(ledger._lacks.sum())
        return ledger

    def check_invariants(self) -> None:
        """Assert that every tile is in exactly one place: for tests, after every event."""
        arrived = np.zeros(len(self._own), np.bool_)
        arrived[list(self._arrived)] = True
        places = self._lacks.astype(int) + self._consumed + arrived
        assert (places == self._own).all(), "a tile is in two places, or nowhere"
        assert self._lacking == int(self._lacks.sum())
