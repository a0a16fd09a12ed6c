"""What reading the program's own files costs when they are not in memory, without root.

Files that the program has opened are dropped from the page cache (`posix_fadvise`), which other
files and other programs do not notice, and read again: one reader first, then as many as the loader
has workers. What the kernel did not give up (dirty pages, mapped ones) is found by ``mincore`` and
left out. What comes of it is what this machine's storage gives such a program, caches of the device
and of the host included. Each file of the one reader is read again at once, from memory: what that
takes less of a core is what a miss costs it besides waiting.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from penstock.data.profiling.page_cache import LARGEST_BYTES, give_up, open_regular_file
from penstock.throughput.observations.misses import ColdReads

MOST_SECONDS: Final = 10.0
"""For which files are read, half of it by one reader; they are dropped for as long as that half."""
LEAST_FILES: Final = 4
_PIECE_BYTES: Final = 1 << 18
STILL_THERE: Final = 0.1


def read_cold(paths: Sequence[str], readers: int) -> ColdReads | None:
    """The cost of cold reads, or None where too few files could be dropped from memory."""
    deadline = time.monotonic() + MOST_SECONDS / 2
    dropped = [path for path in paths if time.monotonic() < deadline and _drop(path)]
    if len(dropped) < 2 * LEAST_FILES:
        return None
    half = max(LEAST_FILES, len(dropped) // 3)
    deadline = time.monotonic() + MOST_SECONDS / 2
    alone, rest = dropped[:half], dropped[half:]
    seconds, blocked, size, cpu = 0.0, 0.0, 0, []
    for path in alone:
        begun, begun_cpu = time.monotonic(), time.thread_time()
        read = _read(path, deadline)
        taken, cold_cpu = time.monotonic() - begun, time.thread_time()
        size += read
        seconds += taken
        blocked += max(0.0, taken - (cold_cpu - begun_cpu))
        _read(path, most=read)
        cpu.append((cold_cpu - begun_cpu) - (time.thread_time() - cold_cpu))
        if time.monotonic() > deadline:
            break
    if not size:
        return None
    begun = time.monotonic()
    deadline = begun + MOST_SECONDS / 2
    with ThreadPoolExecutor(max(1, readers)) as pool:
        together = sum(pool.map(lambda path: _read(path, deadline), rest))
    taken = time.monotonic() - begun
    rate = together / taken if together and taken > 0 else size / seconds
    return ColdReads(blocked / size, rate, max(0.0, median(cpu)), size / len(cpu))


def _drop(path: str) -> bool:
    """Have a file's pages given up; says whether they were."""
    try:
        descriptor = open_regular_file(path)
    except (OSError, ValueError):
        return False
    if descriptor is None:
        return False
    try:
        length = min(os.fstat(descriptor).st_size, LARGEST_BYTES)
        if not length:
            return False
        give_up(descriptor)
        return _resident(descriptor, length) <= STILL_THERE
    except (OSError, ValueError, AttributeError):
        return False
    finally:
        os.close(descriptor)


def _resident(descriptor: int, length: int) -> float:
    """The share of a file's pages that is in memory."""
    with mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        pages = (length + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        found = (ctypes.c_ubyte * pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        address = _address(mapped, length)
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), found):
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(page & 1 for page in found) / pages


def _address(mapped: mmap.mmap, length: int) -> int:
    """Where a mapping lies; it is read-only, so ctypes cannot take it and numpy is asked."""
    import numpy as np

    return int(np.frombuffer(mapped, np.uint8, length).ctypes.data)


def _read(path: str, deadline: float = float("inf"), most: int = LARGEST_BYTES) -> int:
    """Read a file, until the deadline; says how many bytes came."""
    if time.monotonic() > deadline:
        return 0
    size = 0
    with contextlib.suppress(OSError), Path(path).open("rb", buffering=0) as file:
        while size < most and (piece := file.read(min(_PIECE_BYTES, most - size))):
            size += len(piece)
            if time.monotonic() > deadline:
                break
    return size
