"""Which data worker makes which tiles for a group: the same to everybody who knows who is there.

Each tile is one data worker's, so who lacks it and whether it is held is known in one process, and
data workers need not speak to each other (the principle of tf.data service, SoCC 23, section 3.6).
Tiles go by blocks, so that a part is a whole number of batches. Blocks are dealt by rendezvous
hashing with bounded load: parts differ by one block at most, and who comes or goes moves few. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_BLOCK: Final = 32
"""Tiles; a batch of more has some of its samples from elsewhere at the end of an epoch."""
BLOCKS_EACH: Final = 8
"""Of a small dataset blocks are smaller, so that each data worker has some."""


def block_of(tiles: int, workers: int) -> int:
    """Tiles to a block: a power of two."""
    block = MAX_BLOCK
    while block > 1 and tiles < block * BLOCKS_EACH * workers:
        block //= 2
    return block


def parts_of(tiles: int, workers: Collection[str], key: bytes) -> dict[str, NDArray[np.bool_]]:
    """The tiles of each data worker: bool of shape ``(tiles,)``, each True for just one of them.

    Args:
        tiles: of the dataset.
        workers: names of the data workers that are there; at least one.
        key: of the group's data, so that several loaders are divided in different ways.
    """
    names = sorted(workers)
    block = block_of(tiles, len(names))
    blocks = -(-tiles // block)
    most = -(-blocks // len(names))
    points = np.stack([_points(name, key, blocks) for name in names])
    owners = np.full(blocks, -1, np.int64)
    load = np.zeros(len(names), np.int64)
    preferred = np.argsort(points, axis=0)[::-1]
    for place in range(len(names)):
        for number in np.flatnonzero(owners < 0).tolist():
            owner = preferred[place, number]
            if load[owner] < most:
                owners[number] = owner
                load[owner] += 1
    of_tile = np.repeat(owners, block)[:tiles]
    return {name: of_tile == number for number, name in enumerate(names)}


def _points(name: str, key: bytes, blocks: int) -> NDArray[np.uint64]:
    """Where each block lies for a data worker: uint64 of shape ``(blocks,)``."""
    digest = hashlib.blake2b(name.encode(), key=key[:64], digest_size=8).digest()
    values = np.arange(blocks, dtype=np.uint64) ^ np.uint64(int.from_bytes(digest, "little"))
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
