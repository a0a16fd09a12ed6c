"""How far an epoch has come, in samples, and how the rest of it is dealt to another world.

Pure. An epoch is an order of its samples that does not depend on the number of processes. Each step
of a world takes the next samples of it, so that what a checkpoint has seen is known from the number
of steps, and whatever is left can be dealt to any other world:

- dealt over any sequence of worlds and stops, each sample is in exactly one step, but for those
  that even out the last step (or are left out of it, where the program says so);
- every rank has equally many batches, of equal sizes.

What is left is a list of ranges of positions in the order. Mostly it is one, the end of the order;
a program that passes over batches by itself gets those at the end, which makes it two.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

Ranges = tuple[tuple[int, int], ...]
"""Positions in an order, as (first, behind the last), in the sequence in which they come."""


@dataclass(frozen=True, slots=True)
class Dealing:
    """How a world divides samples.

    Attributes:
        world: processes.
        rank: which of them this is.
        batch: most samples of one rank in one step.
        drop_uneven: samples that do not divide by the world are left out; otherwise the first ones
            of the epoch are repeated, as `torch.utils.data.DistributedSampler` does.
        drop_short: a last batch of fewer samples is left out.
        batches: deal it in so many steps, of smaller batches where need be, if all of it goes into
            them; None: in as few as can be.
    """

    world: int
    rank: int
    batch: int
    drop_uneven: bool = False
    drop_short: bool = False
    batches: int | None = None


def size_of(ranges: Ranges) -> int:
    """How many positions there are."""
    return sum(end - begin for begin, end in ranges)


def without_first(ranges: Ranges, count: int) -> Ranges:
    """What is left when the first ``count`` positions are taken."""
    left: list[tuple[int, int]] = []
    for begin, end in ranges:
        taken = min(count, end - begin)
        count -= taken
        if begin + taken < end:
            left.append((begin + taken, end))
    return tuple(left)


def first_of(ranges: Ranges, count: int) -> Ranges:
    """The first ``count`` positions."""
    taken: list[tuple[int, int]] = []
    for begin, end in ranges:
        here = min(count, end - begin)
        count -= here
        if here:
            taken.append((begin, begin + here))
    return tuple(taken)


def batch_sizes(samples: int, dealing: Dealing) -> list[int]:
    """The sizes of each rank's batches, when so many samples are dealt."""
    each = samples // dealing.world
    if samples % dealing.world and not dealing.drop_uneven:
        each += 1
    wanted = min(each, dealing.batches or 0)
    if 0 < each <= wanted * dealing.batch:
        size, larger = divmod(each, wanted)
        return [size + 1] * larger + [size] * (wanted - larger)
    full, rest = divmod(each, dealing.batch)
    return [dealing.batch] * full + ([rest] if rest and not dealing.drop_short else [])


def step_counts(samples: int, dealing: Dealing) -> list[int]:
    """How many samples each step takes of those that are dealt; repeated ones do not count."""
    counts = []
    for size in batch_sizes(samples, dealing):
        counts.append(min(samples, size * dealing.world))
        samples -= counts[-1]
    return counts


def deal(samples: Sequence[int], first: Sequence[int], dealing: Dealing) -> list[list[int]]:
    """One rank's batches of these samples; ``first``: of the epoch, to even out the last step."""
    sizes = batch_sizes(len(samples), dealing)
    needed = sum(sizes) * dealing.world
    dealt = [*samples, *itertools.islice(itertools.cycle(first), max(0, needed - len(samples)))]
    batches, begin = [], 0
    for size in sizes:
        end = begin + size * dealing.world
        batches.append(dealt[begin + dealing.rank : end : dealing.world])
        begin = end
    return batches


def passed_over(left: int, batches: int, dealing: Dealing, accumulation: int = 1) -> int:
    """With how many batches a library that counts them finds itself where the rest begins.

    Args:
        left: samples.
        batches: of the whole epoch in this world, as the library counts them.
        dealing: of this world.
        accumulation: batches of one optimizer step; what was passed over is a multiple of it.
    """
    needed = len(batch_sizes(left, dealing))
    return max(0, batches - needed) // accumulation * accumulation
