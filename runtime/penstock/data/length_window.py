"""Batches of samples of like length from a stream whose lengths nobody knows beforehand.

`penstock.data.ledger.buckets` needs the length of every sample before an epoch begins. A dataset
that is iterated tells a sample's length when the sample has come, so its batches are made from a
window of as many samples as are held in memory: what a program calls where it iterates, in the
training process or, as part of an ``IterableDataset``, wherever that is iterated.

Guarantees, for any stream: every sample once, and as many batches as without, all of which but the
last have the same number of samples; a pure function of the samples and the seed, so a stream that
is begun again is the same. It holds for one stream alone: ranks that each iterate one have neither
like lengths in the same step nor, if their streams differ, as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np

from penstock.data.ledger import Permutation, derive_seed
from penstock.data.torch_loading.lengths import length_of

Sample = TypeVar("Sample")

WINDOW: Final = 64
"""Batches whose samples are held together."""


def like_lengths(
    samples: Iterable[Sample],
    batch_size: int,
    *,
    window: int = WINDOW,
    length: Callable[[Any], int] = length_of,
    seed: int | None = None,
) -> Iterator[list[Sample]]:
    """The samples as batches of like length, each a list.

    Of every ``window * batch_size`` samples the shortest are a batch, then the next, and so on; the
    batches of a window come mixed, so that training does not go from short to long. Memory is that
    of one window.

    Args:
        samples: are iterated once.
        batch_size: samples of a batch; the last of all may have fewer.
        window: batches.
        length: of a sample, in any unit; by default the longest first dimension in it.
        seed: mixes the batches of each window; give another one in each epoch. None: from short to
            long within a window.

    Raises:
        ValueError: ``batch_size`` or ``window`` is below 1.
        LengthsError: a sample has no length.
    """
    for name, value in (("batch_size", batch_size), ("window", window)):
        if value < 1:
            raise ValueError(f"{name}: {value}; must be at least 1")
    return _windows(iter(samples), batch_size, window, length, seed)


def _windows(
    samples: Iterator[Sample],
    batch_size: int,
    window: int,
    length: Callable[[Any], int],
    seed: int | None,
) -> Iterator[list[Sample]]:
    number = 0
    while held := list(islice(samples, window * batch_size)):
        by_length = np.argsort([length(one) for one in held], kind="stable").tolist()
        # What is left over is of the longest; it comes last, so that all before it are whole.
        whole, rest = divmod(len(held), batch_size)
        sequence = list(range(whole))
        if seed is not None and whole:
            sequence = Permutation(whole, derive_seed(seed, number)).take(0, whole).tolist()
        for at in [*sequence, whole] if rest else sequence:
            yield [held[one] for one in by_length[at * batch_size : (at + 1) * batch_size]]
        number += 1
