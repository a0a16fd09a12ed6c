"""What PyTorch does in the workers of a loader of numbered samples, wherever these are made."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock.data.ledger import derive_seed
from penstock.data.pipeline import Pipeline


@dataclass(frozen=True)
class WorkerSetup:
    """What PyTorch does in a worker of a loader before it makes batches.

    ``seed``: of the epoch; a worker's own is that plus its number, as with PyTorch. Only a
    ``worker_init_fn`` draws from it: each sample is seeded by itself.
    """

    dataset: Any
    count: int
    seed: int
    init: Callable[[int], Any] | None

    def __call__(self, number: int) -> None:
        """In the worker of that number."""
        from torch.utils.data._utils import worker

        torch.set_num_threads(1)
        seed = self.seed + number
        random.seed(seed)
        np.random.seed(derive_seed(self.seed, number) & 0xFFFFFFFF)
        torch.manual_seed(seed)
        worker._worker_info = worker.WorkerInfo(
            id=number, num_workers=self.count, seed=seed, dataset=self.dataset
        )
        if self.init is not None:
            self.init(number)


def indexed_pipeline(loader: Any, setup: WorkerSetup, *, watched: bool) -> Pipeline:
    """What makes the batches of a loader whose samples have numbers."""
    return Pipeline(
        loader.dataset,
        loader.collate_fn,
        batched=loader.batch_sampler is not None,
        prepare=setup if loader.worker_init_fn is not None else None,
        watched=watched,
    )
