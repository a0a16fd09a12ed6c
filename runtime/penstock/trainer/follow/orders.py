"""The orders of epochs that are known from outside: which samplers have one, and what it is.

An order is written down by what it was drawn with, so that another world can draw it again,
whatever it samples with itself: ``{}`` for the data's own, ``{"seed": s}`` and ``{"state": bytes}``
for a `torch.randperm` of a generator with that seed or state.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import data as torch_data

from penstock.trainer.follow.position import Dealing, batch_sizes


@dataclass(frozen=True)
class Source:
    """Where a loader's indices come from.

    Attributes:
        sampler: that orders the samples.
        samples: of an epoch.
        dealing: how its batches divide them.
        skips: the program wants to pass over the first batches: it goes on within an epoch.
        begins_whole: it counts batches, and there is none that it wants to pass over.
    """

    sampler: Any
    samples: int
    dealing: Dealing
    skips: bool = False
    begins_whole: bool = False

    @property
    def shuffles(self) -> bool:
        """Whether epochs have different orders."""
        if isinstance(self.sampler, torch_data.DistributedSampler):
            return bool(self.sampler.shuffle)
        return not isinstance(self.sampler, torch_data.SequentialSampler)

    @property
    def epoch(self) -> int | None:
        """The epoch that the program has set; None: this sampler has none, or none to rely on."""
        if isinstance(self.sampler, torch_data.DistributedSampler):
            return int(self.sampler.epoch)
        return None

    @property
    def batches(self) -> int:
        """Of each rank in a whole epoch."""
        return len(batch_sizes(self.samples, self.dealing))

    @property
    def begins_unknown(self) -> bool:
        """Whether the order is known only at the moment in which it is drawn."""
        return type(self.sampler) is torch_data.RandomSampler

    def order(self) -> dict[str, Any]:
        """That of the epoch which begins now. Draws nothing."""
        sampler = self.sampler
        if not self.shuffles:
            return {}
        if isinstance(sampler, torch_data.DistributedSampler):
            return {"seed": sampler.seed + sampler.epoch}
        if type(sampler) is not torch_data.RandomSampler:  # accelerate's, see `_ordered`
            return {"seed": sampler.epoch + sampler.initial_seed}
        if sampler.generator is not None:
            return {"state": sampler.generator.get_state()}
        ahead = torch.Generator()
        ahead.set_state(torch.get_rng_state())
        return {"seed": int(torch.empty((), dtype=torch.int64).random_(generator=ahead))}


def draw(order: dict[str, Any], samples: int) -> list[int]:
    """The samples of an order. Raises TypeError, RuntimeError: it is none."""
    if not order:
        return list(range(samples))
    generator = torch.Generator()
    if "seed" in order:
        generator.manual_seed(order["seed"])
    else:
        generator.set_state(order["state"].cpu())
    indices: list[int] = torch.randperm(samples, generator=generator).tolist()
    return indices


def source_of(loader: Any) -> Source | str:
    """Where a loader's indices come from; a text: why that is not known."""
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return "its dataset is iterable"
    batches = loader.batch_sampler
    if batches is None:
        return "it has no batches"
    skips = begins_whole = False
    if _is_accelerates(batches, "SkipBatchSampler"):
        skips, batches = batches.skip_batches > 0, batches.batch_sampler
        begins_whole = not skips
    world, rank, shard = 1, 0, None
    if _is_accelerates(batches, "BatchSamplerShard"):
        shard, batches = batches, batches.batch_sampler
        world, rank = shard.num_processes, shard.process_index
    if type(batches) is not torch_data.BatchSampler:
        return f"its batch sampler is a {type(batches).__qualname__}"
    sampler: Any = batches.sampler
    samples = _ordered(sampler)
    if samples is None:
        return f"its sampler is a {type(sampler).__qualname__}"
    batch = batches.batch_size
    if shard is not None and shard.split_batches:
        batch //= world
    uneven = False
    if isinstance(sampler, torch_data.DistributedSampler):
        if shard is not None:
            return "it is divided twice, by DistributedSampler and by accelerate"
        world, rank, uneven = sampler.num_replicas, sampler.rank, sampler.drop_last
    elif world == 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "each process has all of it"
    dealing = Dealing(world, rank, batch, uneven, batches.drop_last)
    return Source(sampler, samples, dealing, skips, begins_whole)


def _ordered(sampler: Any) -> int | None:
    """How many samples a sampler orders; None: that is not known."""
    if type(sampler) is torch_data.DistributedSampler:
        dataset: Any = sampler.dataset
        return len(dataset)
    if type(sampler) is torch_data.SequentialSampler:
        return len(sampler)
    if type(sampler) is torch_data.RandomSampler or _is_accelerates(
        sampler, "SeedableRandomSampler"
    ):
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
        return len(sampler) if whole else None
    return None


def _is_accelerates(given: Any, name: str) -> bool:
    module = sys.modules.get("accelerate.data_loader")
    return module is not None and type(given) is getattr(module, name, None)
