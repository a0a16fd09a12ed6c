"""The samplers and random generators of PyTorch's DataLoaders: an epoch begins with them.

A sampler is iterated in the program's process and draws what it would have drawn without Penstock;
the program's own generators are as if nothing had been drawn ahead.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.utils import data as torch_data

from penstock.data.generator_states import generator_states, set_generator_states
from penstock.data.ledger import derive_seed
from penstock.data.torch_loading.paced_sampler import PacedItems, iterate
from penstock.data.torch_loading.torch_streams import is_iterable

KNOWN_SAMPLERS: Final = (
    torch_data.SequentialSampler,
    torch_data.RandomSampler,
    torch_data.SubsetRandomSampler,
    torch_data.WeightedRandomSampler,
    torch_data.BatchSampler,
    torch_data.DistributedSampler,
)


def is_known(loader: Any) -> bool:
    """Whether its samplers draw the same however far ahead they are asked."""
    samplers = (loader.sampler, loader.batch_sampler)
    return all(one is None or type(one) in KNOWN_SAMPLERS for one in samplers)


def sampler_name(loader: Any) -> str:
    """What a message calls the sampler that is not known."""
    samplers = (loader.batch_sampler, loader.sampler)
    unknown = [one for one in samplers if one is not None and type(one) not in KNOWN_SAMPLERS]
    return type(unknown[0]).__qualname__


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators of its own that a loader and its samplers draw from."""
    found: list[torch.Generator] = []
    holders = [loader, loader.sampler, loader.batch_sampler]
    holders.append(getattr(loader.batch_sampler, "sampler", None))
    for holder in holders:
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not one for one in found):
            found.append(generator)
    return found


def whole(sampler: Any, rank: int, epoch: int) -> Any:
    """A sampler of PyTorch's for one rank that is to see all samples, in an order of its own.

    Another sampler is the program's own business and is given back as it is.
    """
    if type(sampler) is torch_data.BatchSampler:
        inner = whole(sampler.sampler, rank, epoch)
        return torch_data.BatchSampler(inner, sampler.batch_size, sampler.drop_last)
    if type(sampler) is torch_data.DistributedSampler:
        seed = derive_seed(sampler.seed, rank) >> 2  # the epoch is added to it
        everything: Any = torch_data.DistributedSampler(
            sampler.dataset, 1, 0, sampler.shuffle, seed
        )
        everything.set_epoch(sampler.epoch)
        return everything
    if type(sampler) is torch_data.RandomSampler and rank:
        own = copy.copy(sampler)
        seeded = torch.initial_seed() if own.generator is None else own.generator.initial_seed()
        own.generator = torch.Generator().manual_seed(derive_seed(derive_seed(seeded, rank), epoch))
        return own
    return sampler


def begin_sampling(
    loader: Any,
    arrange: Callable[[], Any],
    start: dict[str, Any] | None,
    position: int,
    base_seed: int | None,
) -> tuple[int, Any, Iterator[Any], dict[str, Any]]:
    """Draw the base seed and begin the sampler, or do so again as in an epoch that was cut short.

    With a ``base_seed`` none is drawn.

    The sampler is made by ``arrange`` when the generators stand as at the epoch's beginning, since
    what it makes may depend on their seeds. The process's own generators go back to what the
    program has them at when an epoch is resumed.
    """
    generators = generators_of(loader)
    here = generator_states()
    if start is None:
        start = {"global": here, "generators": [one.get_state() for one in generators]}
    else:
        set_generator_states(start["global"])
        for generator, state in zip(generators, start["generators"], strict=True):
            generator.set_state(state)
    sampler = arrange()
    indices = iterate(sampler, (loader.prefetch_factor or 0) * loader.num_workers)
    base_seed = start.get("seed", base_seed)
    if base_seed is None:
        drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        base_seed = int(drawn)
    elif "seed" not in start:
        start["seed"] = base_seed
    if position and is_iterable(loader):
        set_generator_states(here)
        return base_seed, sampler, indices, start
    for _ in itertools.islice(indices, position):
        pass
    if position and not isinstance(indices, PacedItems):
        first = next(indices, None)  # what is drawn late is drawn before the state goes back
        indices = iter(()) if first is None else itertools.chain([first], indices)
    if position:
        set_generator_states(here)
    return base_seed, sampler, indices, start
