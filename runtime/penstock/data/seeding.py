"""Random augmentation that depends on (seed, epoch, index, stage) only, not on who computes it.

Before each sample the generators that datasets draw from (``random``, ``numpy.random``, PyTorch's
default one) are seeded from the loader's seed for the epoch and the sample's index, and
before each of its later stages from these and the stage's number. So any data
worker, any number of them and the training process itself make the same sample. Whoever works in
the training process does so inside `preserved`, so that the model's own random numbers do not
depend on where a batch was made.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

import numpy as np

from penstock.data.generator_states import generator_states, set_generator_states
from penstock.data.ledger import derive_seed

_MASK32: Final = (1 << 32) - 1


def number_of(index: Any) -> int:
    """An index as a number: itself if it is one, else a digest of how it is written."""
    if type(index) is int:
        return index
    if isinstance(index, int | np.integer):
        return int(index)
    return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")


class Generator(Enum):
    """A generator of the process that datasets draw from."""

    PYTHON = "random"
    NUMPY = "numpy.random"
    TORCH = "torch"

    def seed(self, value: int) -> None:
        """Seed it, if its library is loaded."""
        if self is Generator.PYTHON:
            random.seed(value)
        elif self is Generator.NUMPY:
            np.random.seed(value & _MASK32)  # datasets draw from this one
        elif (torch := sys.modules.get("torch")) is not None:
            torch.default_generator.manual_seed(value)

    def draw(self) -> Any:
        """The next number, to be compared; None where its library is not loaded."""
        if self is Generator.PYTHON:
            return random.getrandbits(64)
        if self is Generator.NUMPY:
            return np.random.bytes(8)
        if (torch := sys.modules.get("torch")) is not None:
            return int(torch.empty((), dtype=torch.int64).random_())
        return None


ALL: Final = frozenset(Generator)


def seed_for(seed: int, index: Any, generators: Collection[Generator] = ALL) -> None:
    """Seed generators for one sample (or, with a tuple of indices, for one batch)."""
    if generators:
        _seed_all(generators, derive_seed(seed, number_of(index)))


def _seed_all(generators: Collection[Generator], value: int) -> None:
    for one in generators:
        one.seed(value)


class _Sample(threading.local):
    """The sample that a thread is making, for its later stages."""

    value: int | None = None
    generators: Collection[Generator] = ()

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}  # how often each list of stages was


_sample: Final = _Sample()


def begin_sample(seed: int, index: Any, generators: Collection[Generator]) -> None:
    """`seed_for` a sample, and have `seed_stage` seed for its stages until `end_samples`."""
    value = derive_seed(seed, number_of(index))
    _seed_all(generators, value)
    _sample.value, _sample.generators = value, generators
    _sample.begun.clear()


def end_samples() -> None:
    """No sample is being made by this thread any more."""
    _sample.value = None


def times_begun(stages: int) -> int:
    """How often this thread has begun a list of stages for its sample before.

    A dataset that gives two views of a picture goes through one list twice.
    """
    if _sample.value is None:
        return 0
    before = _sample.begun.get(stages, 0)
    _sample.begun[stages] = before + 1
    return before


def seed_stage(number: int) -> None:
    """Seed for a later stage of the sample that this thread is making, if it is making one."""
    if _sample.value is not None and _sample.generators:
        _seed_all(_sample.generators, derive_seed(_sample.value, number))


class Draws:
    """Which generators the samples of a pipeline draw from.

    To seed all of them takes 10 us, and most samples draw from one at the most. So a generator from
    which none has drawn is seeded once per batch and asked afterwards (`touched`) whether it still
    stands where it stood; if not, the samples are made again, each of them with that generator
    seeded, and so are all from then on. The numbers that a sample draws are therefore always its
    own.
    """

    def __init__(self) -> None:
        self.seen: frozenset[Generator] = frozenset()
        self.told = False
        """Whether a whole batch was made without surprise."""
        self.stages_seeded = False
        self._value = 0
        self._torch = False

    def __reduce__(self) -> tuple[type[Draws], tuple[()]]:
        return Draws, ()  # what was learned is no part of the pipeline's identity

    def watch(self, seed: int, index: Any) -> None:
        """From here on, `touched` tells."""
        self._value = derive_seed(seed, number_of(index))
        self._torch = "torch" in sys.modules
        _seed_all(ALL - self.seen, self._value)

    def touched(self) -> bool:
        """Whether there were draws from an unseen generator since `watch`, which goes on from here.

        One whose library came meanwhile may have been drawn from.
        """
        drawn = set()
        for one in ALL - self.seen:
            now = one.draw()
            one.seed(self._value)
            came = one is Generator.TORCH and not self._torch and now is not None
            if came or now != one.draw():
                drawn.add(one)
            one.seed(self._value)
        self.seen |= drawn
        return bool(drawn)


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the process's generators, and PyTorch's number of threads, as they were.

    A data worker computes with one thread, and sums may round differently with more.
    """
    states = generator_states()
    try:
        with one_thread():
            yield
    finally:
        set_generator_states(states)


@contextmanager
def one_thread() -> Iterator[None]:
    """Have PyTorch compute with one thread, as in a data worker."""
    torch = sys.modules.get("torch")
    if torch is None or (threads := torch.get_num_threads()) == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
