"""Steps of samples of like length for PyTorch's loaders: an order in the place of their sampler's.

Only what shuffles is replaced: a `RandomSampler` without replacement, and a `DistributedSampler`,
whose ranks, seed and epoch then divide the order. Sequential loaders, as evaluations have them, and
samplers of the program's own stay as they are, and so do datasets that are iterated: ranks with a
stream each cannot agree on a step whose samples have not come, and a stream does not say whether
its order is meant. With a number of samples to a batch a loader has as many batches as before; an
epoch has every sample once, where a `DistributedSampler` repeats some.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.crds import environment as names
from penstock.data.complaints import Complaints
from penstock.data.consuming.batch_stream import (
    BatchStream,
    Source,
    StreamOptions,
    start_local_workers,
)
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.process import job_token
from penstock.data.ledger import BucketOrder, Buckets, Slot
from penstock.data.local.workers import LocalOptions
from penstock.data.pipeline import BatchId, Pipeline, pack_pipeline
from penstock.data.protocol import BucketOptions
from penstock.data.torch_loading.lengths import (
    MEASURED_TOGETHER,
    KnownLengths,
    LengthsError,
    Measure,
    lengths_of,
)

NOT_SHUFFLED: Final = "its samples come in order"
"""Why an evaluation's loader is left alone; nothing to tell anybody."""
ITERATED: Final = (
    "its dataset is iterated, so nobody knows how long a sample is before it comes: give the "
    "loader a dataset with len() and [], or, where one rank trains, batch what it iterates by "
    "penstock.data.like_lengths"
)


def why_not_bucketed(loader: Any) -> str | None:
    """Why a loader's samples stay in the order of its own sampler; None if they need not."""
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return ITERATED
    if type(loader.batch_sampler) is not torch_data.BatchSampler:
        own = type(loader.batch_sampler).__qualname__
        return "it has no batches" if loader.batch_sampler is None else f"its {own} makes batches"
    sampler = cast("Any", loader.batch_sampler.sampler)
    shuffles = getattr(sampler, "shuffle", True)
    if type(sampler) is torch_data.SequentialSampler or not shuffles:
        return NOT_SHUFFLED
    if type(sampler) is torch_data.RandomSampler:
        if sampler.replacement or sampler.num_samples != len(loader.dataset):
            return "its RandomSampler draws with replacement, or not every sample"
        return None
    if type(sampler) is not torch_data.DistributedSampler:
        return f"its {type(sampler).__qualname__} decides which samples come"
    size = len(cast("Any", sampler.dataset))
    if size != len(loader.dataset):
        return "its DistributedSampler is of another dataset"
    if size < sampler.num_replicas:
        return "it has fewer samples than there are ranks"
    return None


class BucketBatches:
    """A batch sampler: one rank's batches of an epoch, as lists of indices."""

    def __init__(self, given: torch_data.BatchSampler, size: int, buckets: Buckets) -> None:
        """``given``: the loader's, of a dataset of ``size``; see `why_not_bucketed`."""
        self._given = given
        self._sampler = cast("Any", given.sampler)
        self.buckets = buckets
        self._size = size
        self._shared = type(self._sampler) is torch_data.DistributedSampler
        self._ranks = int(self._sampler.num_replicas) if self._shared else 1
        self._rank = int(self._sampler.rank) if self._shared else 0

    def _order(self, seed: int) -> BucketOrder:
        batch = self._given.batch_size * self._ranks
        fills = not self._given.drop_last
        return BucketOrder(
            self._size, batch, self._ranks, 1, seed, buckets=self.buckets, fills_slots=fills
        )

    def __len__(self) -> int:
        return self._steps(self._order(0))

    def _steps(self, order: BucketOrder) -> int:
        if self.buckets.tokens is None:
            if self._given.drop_last:
                return min(self._size // order.global_batch, len(self._given))
            return min(order.steps_per_epoch, len(self._given))
        least = order.step_size(order.steps_per_epoch - 1)
        whole = math.inf if self._given.drop_last else self._ranks
        return order.steps_per_epoch - (least < whole)

    def __iter__(self) -> Iterator[list[int]]:
        seed, epoch = self._seeded()
        order = self._order(seed)
        for step in range(self._steps(order)):
            yield order.samples(Slot(epoch, step, self._rank)).tolist()

    def _seeded(self) -> tuple[int, int]:
        """The seed and number of the epoch that begins."""
        sampler = self._sampler
        if self._shared:
            return int(sampler.seed), int(sampler.epoch)
        # As PyTorch's: drawn when the first batch is wanted.
        return int(torch.empty((), dtype=torch.int64).random_(generator=sampler.generator)), 0


def by_length(
    loader: Any,
    arrange: Callable[[], Any],
    asked: BucketOptions | None,
    measure: Measure,
    complaints: Complaints,
) -> Callable[[], Any]:
    """What makes the sampler of an epoch: ``arrange``, or an order by length in its place.

    Where the job asks for that and it cannot be had, one line says why.
    """
    if asked is None:
        return arrange
    problem = why_not_bucketed(loader)
    if problem is None:
        try:
            buckets = _known_lengths().buckets(loader.dataset, asked, measure)
        except LengthsError as error:
            problem = str(error)
        else:
            return lambda: BucketBatches(arrange(), len(loader.dataset), buckets)
    if problem != NOT_SHUFFLED:
        dataset = type(loader.dataset).__qualname__
        complaints.add(f"a loader of {dataset}", f"has no steps of like length: {problem}")
    return arrange


@functools.cache
def _known_lengths() -> KnownLengths:
    folder = os.environ.get(names.CHECKPOINT_DIR)
    return KnownLengths(Path(folder) if folder else None)


def measured_lengths(
    loader: Any, consumer: Consumer | None, setup: Callable[[int], None]
) -> NDArray[np.int64]:
    """One pass over a loader's dataset, by all who make its batches.

    ``setup``: of the processes that it asked for.

    Raises:
        LengthsError: a sample raises, or has no length.
    """
    prepare = setup if loader.worker_init_fn is not None else None
    pipeline = Pipeline(loader.dataset, lengths_of, prepare=prepare)
    local = None
    if loader.num_workers:
        asked = LocalOptions(loader.num_workers, loader.multiprocessing_context, setup)
        local = start_local_workers(consumer, pipeline, asked)
    token = consumer.token if consumer else job_token()
    size = len(loader.dataset)
    parts = (
        list(range(start, min(start + MEASURED_TOGETHER, size)))
        for start in range(0, size, MEASURED_TOGETHER)
    )
    stream = BatchStream(
        consumer,
        Source(pipeline, local.key if local else b"", lambda: pack_pipeline(pipeline, token)),
        0,
        BatchId("lengths", 0, 0, 0),
        parts,
        StreamOptions(Guarantee.EXACTLY_ONCE, skip_bad=False),
        [],
        local,
    )
    try:
        return np.concatenate(list(stream))
    except LengthsError:
        raise
    except Exception as error:
        raise LengthsError(f"{type(error).__name__}: {error}") from error
    finally:
        stream.close()
