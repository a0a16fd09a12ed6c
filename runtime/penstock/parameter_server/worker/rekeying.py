"""Ids and their rows, from a file with one number of partitions to another number of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.parameter_server.arrays import Floats, Rows
from penstock.parameter_server.buckets import Buckets
from penstock.parameter_server.spec import ModelSpec


def keyed_anew(
    wanted: ModelSpec, number: int, partition: int, stored: Sequence[Sequence[Floats]]
) -> list[Floats]:
    """The arrays that a partition has of a space with a vocabulary.

    Buckets are others than before: where more ids meet in one than it has rows, those that were
    seen most recently stay.

    Args:
        wanted: the model, with the partitions that are wanted.
        number: of the space.
        partition: of the wanted ones.
        stored: for each partition there is, its arrays of the space.
    """
    places, widths = wanted.places[number], wanted.widths(number)
    assert isinstance(places, Buckets), "a space with a vocabulary"
    old = [
        np.concatenate([arrays[array].reshape(-1, width) for arrays in stored])
        for array, width in enumerate(widths)
    ]
    found = [np.zeros((places.count(partition), width), np.float32) for width in widths]
    trained = 1 + len(wanted.optimizer.initial)
    for first, last in ((0, trained + 1), (trained + 1, len(widths))):
        if first < last:
            taken, into = _bucketed(old[last - 1].view(np.int64), places, partition)
            for array in range(first, last):
                found[array][into] = old[array][taken]
    return found


def _bucketed(keys: NDArray[np.int64], places: Buckets, partition: int) -> tuple[Rows, Rows]:
    """Which of the old rows a partition gets, and where each goes."""
    there, bucket = places.of(keys[:, 0].copy())
    mine = np.flatnonzero((keys[:, 1] > 0) & (there == partition))
    order = np.lexsort((keys[mine, 0], -keys[mine, 1], bucket[mine]))
    taken, bucket = mine[order], bucket[mine[order]]
    begins = np.searchsorted(bucket, bucket)  # where the run of its bucket begins
    rank = np.arange(len(taken)) - begins
    fits = rank < places.width
    return taken[fits], bucket[fits] + rank[fits]
