"""Random augmentation that depends on (seed, epoch, index) only, not on who computes it.

Before each sample the generators that datasets draw from (``random``, ``numpy.random``, PyTorch's
default one) are seeded from the loader's seed for the epoch and the sample's index. So any data
worker, any number of them and the training process itself make the same sample. Whoever works in
the training process does so inside `preserved`, so that the model's own random numbers do not
depend on where a batch was made.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.data.ledger import derive_seed

_MASK32 = (1 << 32) - 1


def number_of(index: Any) -> int:
    """An index as a number: itself if it is one, else a digest of how it is written."""
    if type(index) is int:
        return index
    if isinstance(index, int | np.integer):
        return int(index)
    return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")


def seed_for(seed: int, index: Any, *, python: bool = True) -> None:
    """Seed all generators for one sample (or, with a tuple of indices, for one batch).

    Without ``python``: all but that of the module ``random``; see `Draws`.
    """
    value = derive_seed(seed, number_of(index))
    if python:
        random.seed(value)
    np.random.seed(value & _MASK32)  # datasets draw from this one
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(value)


class Draws:
    """Whether the samples of a pipeline draw from the module ``random``.

    To seed that generator takes 5 us, and most pipelines never draw from it. So as long as none has
    done so, it is seeded once per batch and asked afterwards (`touched`) whether it still stands
    where it stood; if not, the samples are made again, each of them seeded, and so are all from
    then on. The numbers that a sample draws are therefore always its own.
    """

    def __init__(self) -> None:
        self.seen = False
        self._value = 0

    def __reduce__(self) -> tuple[type[Draws], tuple[()]]:
        return Draws, ()  # what was learned is no part of the pipeline's identity

    def watch(self, seed: int, index: Any) -> None:
        """From here on, `touched` tells."""
        self._value = derive_seed(seed, number_of(index))
        random.seed(self._value)

    def touched(self) -> bool:
        """Whether there were draws since `watch`, which goes on from here."""
        now = random.getrandbits(64)
        random.seed(self._value)
        self.seen = self.seen or now != random.getrandbits(64)
        random.seed(self._value)
        return self.seen


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the process's generators, and PyTorch's number of threads, as they were.

    A data worker computes with one thread, and sums may round differently with more.
    """
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    if torch is not None:
        state, threads = torch.get_rng_state(), torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(state)
            torch.set_num_threads(threads)
