"""What a read costs that does not find its file in memory.

It waits, and it costs a core something, which is more than the read's own work: who was off the
core comes back to caches that others have used, or to a core that was asleep. So samples are
compared that were made in the same loop, with a miss and without. Where few were of one kind, files
are dropped while the program runs (`session.Phase.COLD`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from penstock.throughput.observations.records import Made, SampleReads

LEAST_SAMPLES: Final = 16
"""Of each kind: means of fewer say nothing."""


@dataclass(frozen=True, slots=True)
class ColdReads:
    """What reading the program's own files costs when they are not in memory.

    Attributes:
        blocked_per_byte: seconds off the core, one reader after the other.
        bytes_per_second: with as many readers as the loader has workers.
        cpu_seconds_of_file: of the reader's thread, beyond a read of the same file from memory.
        bytes_of_file: on average.
    """

    blocked_per_byte: float
    bytes_per_second: float
    cpu_seconds_of_file: float = 0.0
    bytes_of_file: float = 0.0


def cpu_of_miss(cold: ColdReads, size: float, made: Sequence[Made]) -> float:
    """CPU seconds of a sample of so many bytes that come from storage, beyond one from memory.

    Never less than the read itself costs, be they several files or a part of one.
    """
    alone = cold.cpu_seconds_of_file * size / cold.bytes_of_file if cold.bytes_of_file else 0.0
    # Batches that were made in another way cost something else: they are not mixed.
    as_it_runs = _sum([one for one in made if one.as_it_runs])
    for reads in (as_it_runs, _sum([one for one in made if one.cooled])):
        if min(reads.hits, reads.misses) >= LEAST_SAMPLES and reads.missed:
            more = reads.miss_cpu / reads.misses - reads.hit_cpu / reads.hits
            return max(alone, more * size * reads.misses / reads.missed)
    return alone


def _sum(made: Sequence[Made]) -> SampleReads:
    return reduce(add, (one.reads for one in made), SampleReads())
