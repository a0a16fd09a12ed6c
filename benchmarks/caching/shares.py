"""One job, and a cache of a share of its files: what is read from storage in each epoch."""

from __future__ import annotations

import os
import time
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from benchmarks.cache_figures import LeastRecentlyUsed
from benchmarks.caching.daemons import Files, Reader, Storage, daemon, patient
from benchmarks.caching.pages import TwoLists
from penstock.data.cache import interception

MODELLED_FILES: Final = 20_000
MODELLED_EPOCHS: Final = 5
PUBLISHED: Final[dict[float, dict[str, float | None]]] = {
    0.35: {"minio_published": None, "page_cache_published": 0.85, "sequential_published": None},
    0.65: {"minio_published": 0.35, "page_cache_published": 0.53, "sequential_published": 0.66},
}
"""Misses of CoorDL, of DALI that shuffles, and of DALI that reads in order (section 7.1)."""
WARM_EPOCHS: Final = 3
HITS: Final = 400
"""Timed, of files of the size that a hit's goal is for."""
MB: Final = 1e6


def modelled(kind: type[LeastRecentlyUsed | TwoLists], share: float, seed: int) -> float:
    """Misses of an epoch after the second, as a share of all files."""
    cache, source = kind(round(share * MODELLED_FILES)), np.random.default_rng(seed)
    misses = [
        sum(not cache.read(file) for file in source.permutation(MODELLED_FILES).tolist())
        for _ in range(MODELLED_EPOCHS)
    ]
    return fmean(misses[2:]) / MODELLED_FILES


def modelled_in_order(share: float) -> float:
    """The same where every epoch has the files in the same order: each is dropped before it is
    read."""
    cache = LeastRecentlyUsed(round(share * MODELLED_FILES))
    for _ in range(2):
        misses = sum(not cache.read(file) for file in range(MODELLED_FILES))
    return misses / MODELLED_FILES


def share_row(files: Files, share: float, epochs: int, rate: float, seed: int) -> dict[str, Any]:
    """One share: epochs of the real client and daemon on a storage of this rate."""
    source = np.random.default_rng(seed)
    read, seconds, claimed = [], [], []
    paged = PagedReader(files, share, rate, seed)
    cpu: list[float] = []
    with daemon(files.folder, round(share * files.total), rate=rate) as one:
        reader = Reader(patient(one.place), files, Storage(rate))
        for _ in range(epochs):
            order = source.permutation(len(files.sizes)).tolist()
            before, said = one.read_bytes + reader.storage.read_bytes, one.stat(files.folder)
            begun, busy = time.perf_counter(), time.thread_time() + one.cpu_seconds
            for number in order:
                reader.read(number)
            seconds.append(time.perf_counter() - begun)
            cpu.append(time.thread_time() + one.cpu_seconds - busy)
            reader.client.send_notes()
            read.append((one.read_bytes + reader.storage.read_bytes - before) / files.total)
            now = one.stat(files.folder)
            claimed.append((now["miss_bytes"] - said["miss_bytes"]) / files.total)
            paged.epoch(order)
    # Of the core the least: other programs only make it more.
    by_cache = min(cpu[1:]) + (fmean(read[1:]) * files.total / rate if rate else 0.0)
    by_pages = paged.busy_seconds
    return {
        "cached": share,
        "missed": [round(one, 4) for one in read],
        "worst_error": round(max(abs(one - (1 - share)) for one in read[1:]), 4),
        "daemon_says": [round(one, 4) for one in claimed],
        "lru": round(modelled(LeastRecentlyUsed, share, seed), 4),
        "page_cache": round(modelled(TwoLists, share, seed), 4),
        "in_order": round(modelled_in_order(share), 4),
        **PUBLISHED.get(share, dict.fromkeys(PUBLISHED[0.65])),
        "rate_mb": rate / MB,
        "seconds": round(by_cache, 3),
        "seconds_page_cache": round(by_pages, 3),
        "speedup": round(by_pages / by_cache, 3),
        "wall_seconds": round(median(seconds[1:]), 3),
        "wall_seconds_page_cache": round(median(paged.seconds[1:]), 3),
    }


class PagedReader:
    """The same program without a cache, where a model of the page cache says what is in memory."""

    def __init__(self, files: Files, share: float, rate: float, seed: int) -> None:
        self._files = files
        self._pages = TwoLists(round(share * len(files.sizes)))
        self._memory, self._storage = Storage(), Storage(rate)
        self._rate = rate
        self._cpu: list[float] = []
        self.seconds: list[float] = []
        source = np.random.default_rng(seed + 1)
        for _ in range(WARM_EPOCHS):
            for number in source.permutation(len(files.sizes)).tolist():
                self._pages.read(number)

    @property
    def busy_seconds(self) -> float:
        """Of the storage and of a core, for an epoch."""
        read = self._storage.read_bytes / len(self._cpu)
        return min(self._cpu) + (read / self._rate if self._rate else 0.0)

    def epoch(self, order: list[int]) -> None:
        """All files in this order."""
        begun, own = time.perf_counter(), time.thread_time()
        for number in order:
            descriptor = os.open(self._files.path(number), os.O_RDONLY)
            try:
                (self._memory if self._pages.read(number) else self._storage).read(descriptor)
            finally:
                os.close(descriptor)
        self.seconds.append(time.perf_counter() - begun)
        self._cpu.append(time.thread_time() - own)


def hit_row(files: Files) -> dict[str, Any]:
    """What ``open(path, "rb").read()`` costs for a file that the cache has, and without a cache.

    The fifth of the times that was shortest: of a machine that does other things meanwhile, they
    are those that say something of the cache.
    """
    paths = [files.path(number) for number in range(len(files.sizes))]
    with daemon(files.folder, 2 * files.total) as one:
        plain = [_timed(path) for path in (paths * HITS)[:HITS]]
        interception.install(one.place, [str(files.folder)])
        try:
            for path in paths:
                _timed(path)
            hits = [_timed(path) for path in (paths * HITS)[:HITS]]
            installed = interception.installed()
            assert installed is not None
            installed.client.send_notes()
        finally:
            interception.uninstall()
        found = one.stat(files.folder)
    return {
        "file_bytes": round(fmean(files.sizes)),
        "hits": found["hits"],
        "hit_us": round(float(np.percentile(hits, 20)) * 1e6, 1),
        "hit_us_median": round(median(hits) * 1e6, 1),
        "page_cache_us": round(float(np.percentile(plain, 20)) * 1e6, 1),
    }


def _timed(path: str) -> float:
    begun = time.perf_counter()
    with open(path, "rb") as file:  # noqa: PTH123 - what programs call
        file.read()
    return time.perf_counter() - begun
