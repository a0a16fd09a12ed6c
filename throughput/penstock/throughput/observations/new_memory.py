"""What memory that nobody has used costs: a worker and its training, and not who works in line.

A worker collates into shared memory that is new for each batch. The pages of that are filled by the
worker and given back by the training. And an allocator gives a worker's freed memory back to the
system, to be filled again for the next sample, where it would keep that of a training which makes
its own batches: glibc keeps twice as much as the largest block that was freed (`mallopt(3)`,
M_MMAP_THRESHOLD), and the training frees whole batches. How many pages that is of each sample is
seen in the program, whose workers free a block of a batch's size for some batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.throughput.observations.records import Made

LEAST_RETAINED: Final = 4
"""Batches; of fewer it is not known what a worker does with memory that it keeps."""


@dataclass(frozen=True, slots=True)
class NewMemory:
    """CPU seconds, beyond those of memory that has been used; 0: not known.

    Attributes:
        shared_byte: to fill one of shared memory.
        shared_byte_freed: to give one back, once nobody has it in use.
        page: to fill one of a process's own memory, and to give it back.
    """

    shared_byte: float = 0.0
    shared_byte_freed: float = 0.0
    page: float = 0.0


NOT_KNOWN: Final = NewMemory()


def typical(found: Sequence[NewMemory]) -> NewMemory:
    """Of what was found several times; some of it in the middle of something else."""
    return NewMemory(
        median(one.shared_byte for one in found),
        median(one.shared_byte_freed for one in found),
        median(one.page for one in found),
    )


def is_kept(one: Made) -> bool:
    """Whether a batch was made with memory that its worker had kept."""
    return one.retained > 1  # the first fills what is kept from then on


def pages_given_back(made: Sequence[Made]) -> float:
    """New pages of a sample that would be none if the worker kept what it frees."""
    kept = [one.faults / one.samples for one in made if is_kept(one) and not one.cooled]
    plain = [one.faults / one.samples for one in made if one.as_it_runs]
    if len(kept) < LEAST_RETAINED or len(plain) < LEAST_RETAINED:
        return 0.0
    return max(0.0, median(plain) - median(kept))
