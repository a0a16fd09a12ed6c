"""A sampler that is asked ahead, while its generator stays where it is in the program alone.

`RandomSampler` draws from the generator that it was given whenever it has nothing left: with
replacement for every 32 samples, otherwise for every pass over the dataset, and once more when it
has come to its end. A program that leaves an epoch early, or has two loaders share a generator,
would see that it was asked farther ahead than by PyTorch: its next order would be another. So a
copy of the sampler is asked, with a generator of its own, and the program's follows as far as
PyTorch would have drawn by then.

PyTorch's other samplers draw what they draw when they are begun, or from generators of their own.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch.utils import data as torch_data


def iterate(sampler: Any, ahead: int) -> Iterator[Any]:
    """Begin a sampler; ``ahead``: items that PyTorch asks for beyond those that are taken."""
    random = _lazy_sampler(sampler)
    return iter(sampler) if random is None else PacedItems(sampler, random, ahead)


class PacedItems:
    """An iterator of a sampler's items; see the module's docstring."""

    def __init__(self, sampler: Any, random: torch_data.RandomSampler, ahead: int) -> None:
        """``random``: what draws within the ``sampler``, which may be itself."""
        self._sampler = sampler
        self._random = random
        self._ahead = ahead
        self._items: Iterator[Any] | None = None
        self._own = torch.Generator()
        self._drawn = self._placed = self._program_state()
        self._asked = 0
        self._moves: deque[tuple[int, torch.Tensor]] = deque()  # items asked for, state after them

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._items is None:  # the generator has given the loader its base seed by now
            self._drawn = self._placed = self._program_state()
            self._own.set_state(self._drawn)
            self._items = iter(_with_generator(self._sampler, self._own))
        self._asked += 1
        try:
            return next(self._items)
        finally:
            state = self._own.get_state()
            if not torch.equal(state, self._drawn):
                self._drawn = state
                self._moves.append((self._asked, state))

    def follow(self, taken: int) -> None:
        """So many items were taken: move the program's generator as far as PyTorch would have."""
        while self._moves and self._moves[0][0] <= taken + self._ahead:
            _, state = self._moves.popleft()
            if torch.equal(self._program_state(), self._placed):
                self._random.generator.set_state(state)
            else:  # somebody else draws from it too, and what they drew is not to come again
                self._draw()
            self._placed = self._program_state()

    def _program_state(self) -> torch.Tensor:
        state: torch.Tensor = self._random.generator.get_state()
        return state

    def _draw(self) -> None:
        size, generator = len(self._random.data_source), self._random.generator
        if self._random.replacement:
            torch.randint(size, (32,), generator=generator)
        else:
            torch.randperm(size, generator=generator)


def _lazy_sampler(sampler: Any) -> torch_data.RandomSampler | None:
    """What of a sampler draws from a generator of the program's as it goes on, if anything does."""
    if type(sampler) is torch_data.BatchSampler:
        return _lazy_sampler(sampler.sampler)
    if type(sampler) is torch_data.RandomSampler and sampler.generator is not None:
        return sampler
    return None


def _with_generator(sampler: Any, generator: torch.Generator) -> Any:
    own = copy.copy(sampler)
    if type(sampler) is torch_data.BatchSampler:
        own.sampler = _with_generator(sampler.sampler, generator)
    else:
        own.generator = generator
    return own
