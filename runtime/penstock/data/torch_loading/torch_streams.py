"""PyTorch's ``IterableDataset`` as streams: what each worker of a loader would give, and its seeds.

The streams of a loader with ``num_workers`` = 4 are those of its four workers: who hosts one has
PyTorch's worker number and seeds, so a dataset divides its samples, and draws, as in the program
alone. Without workers there is one stream, seeded from the loader's base seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from penstock.data.errors import NotPortableError
from penstock.data.pipeline import PackedPipeline, pack_pipeline
from penstock.data.streams.pipeline import StreamPipeline, ranks_of


@dataclass(frozen=True)
class StreamSetup:
    """What PyTorch does in a worker before it begins the dataset.

    Attributes:
        count: of the loader's workers; 0: there are none, and the dataset is told of none.
        init: the program's ``worker_init_fn``.
    """

    count: int
    init: Callable[[int], Any] | None

    def __call__(self, dataset: Any, number: int, seed: int) -> None:
        """In the process that hosts the stream of that number."""
        from torch.utils.data._utils import worker

        random.seed(seed + number)
        torch.manual_seed(seed + number)
        generate: Any = worker._generate_state
        np.random.seed(generate(seed, number))
        if not self.count:
            worker._worker_info = None
            return
        worker._worker_info = worker.WorkerInfo(
            id=number, num_workers=self.count, seed=seed + number, dataset=dataset
        )
        if self.init is not None:
            self.init(number)


def is_iterable(loader: Any) -> bool:
    """Whether a loader iterates its dataset."""
    return isinstance(loader.dataset, torch_data.IterableDataset)


def stream_pipeline(loader: Any, *, watched: bool) -> StreamPipeline:
    """What makes the batches of a loader whose dataset is iterated."""
    environ = ranks_of(dict(os.environ))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        environ.setdefault("RANK", str(torch.distributed.get_rank()))
        environ.setdefault("WORLD_SIZE", str(torch.distributed.get_world_size()))
    return StreamPipeline(
        loader.dataset,
        loader.collate_fn,
        loader.batch_size,
        loader.drop_last,
        StreamSetup(loader.num_workers, loader.worker_init_fn),
        persistent=loader.persistent_workers,
        environ=environ,
        watched=watched,
    )


def pack_streams(pipeline: StreamPipeline, token: str) -> PackedPipeline:
    """As `pack_pipeline`.

    Raises:
        NotPortableError: also where the streams cannot leave their processes.
    """
    if pipeline.persistent:
        raise NotPortableError(
            "persistent_workers=True: what its dataset has become in one epoch goes on in the "
            "next, in the same process"
        )
    return pack_pipeline(pipeline, token)
