"""One order of batches for all programs of a group, whatever seeds and batch sizes they have.

Samples come in one permutation for each epoch, cut into batches as each program says; with
``input.buckets`` steps come by length, and programs of different batch sizes have other steps. Who
comes later may begin where the others are, and has what it missed at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils import data as torch_data

from penstock.data.ledger import Buckets, Permutation, derive_seed
from penstock.data.torch_loading.torch_buckets import BucketBatches


class CommonBatches:
    """A batch sampler: one rank's batches of an epoch in the common order, as lists of indices."""

    def __init__(
        self, given: torch_data.BatchSampler, size: int, seed: int, epoch: int, first: int = 0
    ) -> None:
        """``given``: the loader's; ``first``: the sample of the order with which it begins."""
        sampler = cast("Any", given.sampler)
        shared = type(sampler) is torch_data.DistributedSampler
        self._ranks = int(sampler.num_replicas) if shared else 1
        self._rank = int(sampler.rank) if shared else 0
        self._batch = given.batch_size
        self._steps = len(given)
        self._size = size
        self._order = Permutation(size, derive_seed(seed, epoch))
        self._first = -(-first // (self._batch * self._ranks)) % max(1, self._steps)

    @property
    def step_samples(self) -> int:
        """Samples to a step of all ranks."""
        return self._batch * self._ranks

    @property
    def first(self) -> int:
        """The step of the order with which it begins."""
        return self._first

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self._steps):
            step = (self._first + number) % self._steps
            taken: list[int] = self._samples(step).tolist()
            yield taken

    def _samples(self, step: int) -> NDArray[np.int64]:
        start = min(step * self.step_samples, self._size)
        chosen = self._order.take(start, min(start + self.step_samples, self._size))
        if len(chosen) < self._ranks:  # as PyTorch's: some are repeated, so that none has nothing
            again = self._order.take(0, self._ranks - len(chosen))
            chosen = np.concatenate([chosen, again])
        return chosen[self._rank :: self._ranks]


class CommonBuckets(BucketBatches):
    """As `BucketBatches`, with the seed of the group."""

    def __init__(
        self, given: torch_data.BatchSampler, size: int, buckets: Buckets, seed: int, epoch: int
    ) -> None:
        super().__init__(given, size, buckets)
        self._group_seed = seed, epoch

    def _seeded(self) -> tuple[int, int]:
        return self._group_seed
