"""What a core costs samples that come from storage, and those that come from memory.

Whoever makes a batch goes through a list of indices; that list is replaced by one that looks,
between two of them, how long the thread was on a core, and whether it read from storage. It is an
ordinary list to everybody else. What looking takes is not the batch's, and what it makes dearer is
little: the batches are looked at whose files are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any, Final

from penstock.data.profiling import thread_counts
from penstock.data.profiling.file_reads import FilesOpened
from penstock.throughput.observations.records import SampleReads

BLOCK: Final = 512
"""Bytes, in which what a thread has read is counted."""


class SampleClock:
    """Of the thread that makes batches."""

    def __init__(self, files: FilesOpened) -> None:
        """``files``: that they open."""
        self._files = files
        self._found = SampleReads()
        self._looking = 0.0

    def timed(self, fetcher: Any, indices: Any) -> Any:
        """The indices to make a batch of; as they are where samples are not made one by one."""
        dataset = getattr(fetcher, "dataset", None)
        if (
            not self._files.looks
            or type(indices) is not list
            or not getattr(fetcher, "auto_collation", False)
            or not hasattr(type(dataset), "__getitem__")
            or getattr(dataset, "__getitems__", None)
        ):
            return indices
        return _TimedIndices(indices, self)

    def take(self) -> tuple[SampleReads, float]:
        """What was seen since the last call, and the CPU seconds that looking took."""
        found, looking = self._found, self._looking
        self._found, self._looking = SampleReads(), 0.0
        return found, looking

    def walk(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Through the indices of one batch."""
        files, hits, misses, missed, looking = self._files, 0, 0, 0, 0.0
        hit_cpu = miss_cpu = 0.0
        ended = time.thread_time()
        try:
            for index in indices:
                files.begin_sample()
                before, spent, begun = thread_counts.blocks_read(), files.spent, time.thread_time()
                looking += begun - ended
                yield index
                ended = time.thread_time()
                cpu = ended - begun - (files.spent - spent)
                read = thread_counts.blocks_read() - before
                if read > 0:
                    misses, miss_cpu, missed = misses + 1, miss_cpu + cpu, missed + read
                else:
                    hits, hit_cpu = hits + 1, hit_cpu + cpu
        finally:
            files.end_samples()
            self._found += SampleReads(hits, hit_cpu, misses, miss_cpu, missed * BLOCK)
            self._looking += looking + time.thread_time() - ended


class _TimedIndices(list[Any]):
    """See the module's docstring."""

    def __init__(self, indices: list[Any], clock: SampleClock) -> None:
        super().__init__(indices)
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        return self._clock.walk(super().__iter__())

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self[:],)


def packed(reads: SampleReads) -> list[float]:
    """For a record."""
    return list(astuple(reads))
