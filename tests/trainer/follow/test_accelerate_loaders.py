"""accelerate's loaders, which ask for a batch ahead and pass over batches by themselves.

Among them the reproduction of huggingface/transformers #40245: 16 samples in batches of 4; one
process trains on one batch and saves, two go on; samples 4 to 7 are lost there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from tests.trainer.follow.worlds import Numbers, Rank, live

pytestmark = pytest.mark.slow
accelerate_loaders = pytest.importorskip("accelerate.data_loader")


def sharded(
    rank: Rank, number: int, world: int, sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """What accelerate prepares, for one process."""
    monkeypatch.setattr(accelerate_loaders, "DataLoader", rank.loader_class)
    batches = BatchSampler(sampler, 4, drop_last=False)
    shard = accelerate_loaders.BatchSamplerShard(batches, world, number)
    return accelerate_loaders.DataLoaderShard(sampler.data_source, batch_sampler=shard)


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("samples", [16, 48])
def test_nothing_is_lost_between_one_process_and_two(
    samples: int, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = [0]

    def loop(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
        numbers = Numbers(samples)
        loader = sharded(rank, number, world, SequentialSampler(numbers), monkeypatch)
        if skips and done[-1]:
            loader = accelerate_loaders.skip_first_batches(loader, done[-1])
        for batch in loader:
            rank.trains()
            yield batch.tolist()

    first, checkpoint = live(loop, 1, 1, None)
    done.append(1)
    second, _ = live(loop, 2, None, checkpoint)
    assert first == [[0, 1, 2, 3]]
    taken = sorted(sample for step in second for sample in step)
    assert sorted({*taken}) == list(range(4, samples))
    assert len(taken) - len({*taken}) <= 1


@pytest.mark.parametrize("skips", [None, 0, 4])
def test_an_epoch_that_was_saved_with_its_last_batch_is_not_done_twice(
    skips: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the program counts for itself, and goes on with the next one."""
    lives: list[int] = []

    def loop(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
        numbers = Numbers(32)
        loader = sharded(rank, number, world, SequentialSampler(numbers), monkeypatch)
        if lives and skips is not None:
            loader = accelerate_loaders.skip_first_batches(loader, skips)
        for batch in loader:
            rank.trains()
            yield batch.tolist()

    first, checkpoint = live(loop, 2, 4, None)
    lives.append(1)
    assert sorted(sample for step in first for sample in step) == list(range(32))
    again, _ = live(loop, 1, None, checkpoint)
    assert sum(map(len, again)) == (32 if skips == 0 else 0)


def test_a_shared_generator_draws_the_same_order_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def loop(rank: Rank, number: int, world: int) -> Iterator[list[int]]:
        numbers, generator = Numbers(48), torch.Generator().manual_seed(world)
        sampler = RandomSampler(numbers, generator=generator)
        for batch in sharded(rank, number, world, sampler, monkeypatch):
            rank.trains()
            yield batch.tolist()

    seen: list[int] = []
    checkpoint = None
    for world, steps in [(2, 2), (1, 2), (3, 1), (2, None)]:
        taken, checkpoint = live(loop, world, steps, checkpoint)
        seen += [sample for step in taken for sample in step]
    assert sorted(seen) == list(range(48))
