"""What memory costs that nobody has used, shared and a process's own, and what giving it back.

It depends on what the caches hold and on who else uses the memory: so workers look themselves,
between batches.
"""

from __future__ import annotations

import mmap
import os
import time
from statistics import median
from typing import Final

from penstock.data.profiling import thread_counts
from penstock.throughput.observations.new_memory import NewMemory

TRIED_BYTES: Final = 8 << 20
TRIES: Final = 3
BLOCK_BYTES: Final = 1 << 18
BLOCKS: Final = 16


def cost_of_new(tries: int = TRIES) -> NewMemory:
    """As it is on this machine now; zeros where the system does not say, or has none."""
    content = bytes(TRIED_BYTES)
    shared = [_shared_seconds(content) for _ in range(tries)]
    if any(one is None for one in shared):
        return NewMemory(page=_page_seconds())
    filled, freed = zip(*(one for one in shared if one is not None), strict=True)
    return NewMemory(median(filled) / TRIED_BYTES, median(freed) / TRIED_BYTES, _page_seconds())


def _shared_seconds(content: bytes) -> tuple[float, float] | None:
    """Of filling so much, beyond filling it again, and of giving it back when it is not mapped."""
    try:
        descriptor = os.memfd_create("penstock-profile")
    except (OSError, AttributeError):
        return None
    try:
        os.ftruncate(descriptor, len(content))
        with mmap.mmap(descriptor, len(content)) as memory:
            filled = _twice(memory, content)
    except OSError:
        os.close(descriptor)
        return None
    begun = time.thread_time()
    os.close(descriptor)
    return filled, time.thread_time() - begun


def _page_seconds() -> float:
    """In blocks as a program allocates and frees them, not in one that is much larger."""
    content, found = bytes(BLOCK_BYTES), []
    for _ in range(BLOCKS):
        before = thread_counts.faults()
        try:
            memory = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, AttributeError, ValueError):
            return 0.0
        filled = _twice(memory, content)
        begun = time.thread_time()
        memory.close()
        freed = time.thread_time() - begun
        if pages := thread_counts.faults() - before:
            found.append((filled + freed) / pages)
    return median(found) if found else 0.0


def _twice(memory: mmap.mmap, content: bytes) -> float:
    """The second time the same bytes are copied, and no page is new."""
    begun = time.thread_time()
    memory.write(content)
    new = time.thread_time() - begun
    memory.seek(0)
    begun = time.thread_time()
    memory.write(content)
    return max(0.0, new - (time.thread_time() - begun))
