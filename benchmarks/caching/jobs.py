"""Several jobs with the same files, each in an order of its own: what they read in an epoch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.cache_figures import LeastRecentlyUsed
from benchmarks.caching.daemons import Files, Reader, Storage, daemon, patient
from penstock.data import Loader

MODELLED_FILES: Final = 5_000
EPOCHS: Final = 3
BATCH: Final = 16


class Dataset:
    """Files as a program's dataset has them: their sums, so that batches are small."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader.files.sizes)

    def __getitem__(self, number: int) -> np.int64:
        found = np.frombuffer(self._reader.read(number), np.uint8)
        return found.sum(dtype=np.int64)


def alone_with_lru(jobs: int, share: float, seed: int) -> float:
    """Data sets that all of them read in an epoch, side by side, from a cache that drops."""
    cache, source = LeastRecentlyUsed(round(share * MODELLED_FILES)), np.random.default_rng(seed)
    misses = 0
    for _ in range(EPOCHS):  # what is counted are the misses of the last
        orders = [source.permutation(MODELLED_FILES).tolist() for _ in range(jobs)]
        misses = sum(not cache.read(file) for files in zip(*orders, strict=True) for file in files)
    return misses / MODELLED_FILES


def alone_with_cache(files: Files, jobs: int, share: float, seed: int) -> float:
    """The same, with the real cache."""
    source = np.random.default_rng(seed)
    read = 0
    with daemon(files.folder, round(share * files.total)) as one:
        readers = [Reader(patient(one.place), files, Storage()) for _ in range(jobs)]
        for _ in range(2):
            before = _read(one.read_bytes, readers)
            orders = [source.permutation(len(files.sizes)).tolist() for _ in readers]
            for numbers in zip(*orders, strict=True):
                for reader, number in zip(readers, numbers, strict=True):
                    reader.read(number)
            read = _read(one.read_bytes, readers) - before
    return read / files.total


def one_stream(files: Files, jobs: int, share: float, seed: int) -> tuple[float, int]:
    """The same where one stream of batches is made for all; and samples not seen once by each."""
    wrong = 0
    read = 0
    with daemon(files.folder, round(share * files.total)) as one:
        reader = Reader(patient(one.place), files, Storage())
        loader = Loader(Dataset(reader), BATCH, seed=seed)
        expected = sorted(_sums(files))
        for _ in range(2):
            before = _read(one.read_bytes, [reader])
            had: list[list[int]] = [[] for _ in range(jobs)]
            for batch in loader:
                for taken in had:
                    taken.extend(int(value) for value in batch)
            read = _read(one.read_bytes, [reader]) - before
            wrong += sum(sorted(taken) != expected for taken in had)
    return read / files.total, wrong


def _sums(files: Files) -> list[int]:
    storage = Storage()
    found = []
    for number in range(len(files.sizes)):
        with open(files.path(number), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            found.append(int(np.frombuffer(storage.read(file.fileno()), np.uint8).sum()))
    return found


def _read(by_daemon: int, readers: list[Reader]) -> int:
    return by_daemon + sum(reader.storage.read_bytes for reader in readers)


def job_rows(files: Files, jobs: int, share: float, seed: int) -> list[dict[str, Any]]:
    """Data sets read from storage in an epoch, by what there is."""
    shared, wrong = one_stream(files, jobs, share, seed)
    found = {
        "LRU alone (model)": alone_with_lru(jobs, share, seed),
        "cache alone": alone_with_cache(files, jobs, share, seed),
        "cache and one stream": shared,
    }
    return [
        {"jobs": jobs, "cached": share, "with": name, "read": round(read, 3), "wrong_epochs": bad}
        for (name, read), bad in zip(found.items(), (0, 0, wrong), strict=True)
    ]
