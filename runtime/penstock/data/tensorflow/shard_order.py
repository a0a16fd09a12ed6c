"""Which shards a training process reads in an epoch, in which order, and how many at a time.

A pure function of (shards, seed, epoch, place of the process): who makes the elements does not
matter, and a process that goes on in the middle of an epoch finds the same order. The shards are
shuffled as a whole and divided over the training processes; each reads its own in *rounds* of at
most ``cycle_length``, one element of each in turn as `tf.data.Dataset.interleave` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.data.ledger import Permutation, derive_seed

MAX_CYCLE: Final = 256
"""Shards of one training process that are read at a time; what one data worker hosts at most."""
_ROUND_BITS: Final = 32


@dataclass(frozen=True)
class ShardOrder:
    """See the module's docstring.

    Attributes:
        count: of all shards.
        seed: of the order, and of what the shards draw.
        shuffle: in another order in each epoch; else in their own.
        index: of this training process, in 0 .. processes - 1.
        processes: that divide the shards.
        cycle_length: shards that are read at a time.
    """

    count: int
    seed: int = 0
    shuffle: bool = True
    index: int = 0
    processes: int = 1
    cycle_length: int = 16

    def __post_init__(self) -> None:
        """Raises ValueError: a field cannot be used; says which and why."""
        if self.count < 1:
            raise ValueError(f"shards: {self.count}; there must be at least one")
        if self.processes < 1:
            raise ValueError(f"count: {self.processes}; at least one process trains")
        if not 0 <= self.index < self.processes:
            raise ValueError(
                f"index: {self.index}; must be from 0 to count - 1, which is {self.processes - 1}"
            )
        if self.count < self.processes:
            raise ValueError(
                f"shards: {self.count}; {self.processes} training processes divide them, and each "
                "needs at least one: give smaller shards"
            )
        if not 1 <= self.cycle_length <= MAX_CYCLE:
            raise ValueError(f"cycle_length: {self.cycle_length}; must be from 1 to {MAX_CYCLE}")

    @property
    def own(self) -> int:
        """Shards of this process in each epoch."""
        return len(range(self.index, self.count, self.processes))

    @property
    def rounds(self) -> int:
        """Of an epoch."""
        return -(-self.own // self.cycle_length)

    def width(self, number: int) -> int:
        """Shards of a round."""
        return min(self.cycle_length, self.own - number * self.cycle_length)

    def shard(self, epoch: int, number: int, place: int) -> int:
        """The shard that is at a place of a round."""
        position = self.index + (number * self.cycle_length + place) * self.processes
        if not self.shuffle:
            return position
        return Permutation(self.count, derive_seed(self.seed, epoch))[position]

    def places_from(self, epoch: int, number: int) -> Iterator[tuple[int, int]]:
        """All places of the rounds from one on, each with the key of its round."""
        for later in range(number, self.rounds):
            for place in range(self.width(later)):
                yield place, round_key(epoch, later)

    def seed_of(self, epoch: int, shard: int) -> int:
        """What a shard's dataset is seeded with."""
        return derive_seed(self.seed, epoch, shard)


def round_key(epoch: int, number: int) -> int:
    """An epoch and a round as one number, as data workers are sent it."""
    return epoch << _ROUND_BITS | number


def read_round_key(key: int) -> tuple[int, int]:
    """The epoch and the round of a key."""
    return key >> _ROUND_BITS, key & ((1 << _ROUND_BITS) - 1)


def elements_before(step: int, width: int, ends: dict[int, int]) -> int:
    """How many elements of a round come before a step.

    Args:
        step: element ``position`` of the shard at ``place`` is step ``position * width + place``.
        width: shards of the round.
        ends: elements of those of which that is known.
    """
    level, place = divmod(step, width)
    return sum(
        min(level + (number < place), ends.get(number, level + 1)) for number in range(width)
    )


def step_after(elements: int, width: int, ends: dict[int, int]) -> int:
    """The step that comes after the first so many elements of a round.

    Steps beyond a shard's end are none: the inverse of `elements_before`. ``ends`` has to know of
    each shard that ended before. What is beyond the round's end comes to the step after its last.
    """
    known = [ends.get(number) for number in range(width)]

    def before(level: int) -> int:
        return sum(level if end is None else min(level, end) for end in known)

    low, high = 0, max([elements, *(end for end in known if end is not None)], default=0)
    while low < high:  # the highest level that has no more elements before it
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before(middle) <= elements else (low, middle - 1)
    missing, step = elements - before(low), low * width
    for place, end in enumerate(known):
        if missing <= 0:
            break
        if end is None or low < end:
            missing, step = missing - 1, low * width + place + 1
    return step
