"""What the makers of batches write down, loader workers or the training process itself.

Where a maker fetches a batch is wrapped, once for map-style datasets and once for iterable ones.
What it costs to look is not part of what is written down, but for a few microseconds a batch.
"""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from penstock.data.clocks import BytesRead, ThreadClock
from penstock.data.profiling import record_files, thread_counts
from penstock.data.profiling.file_reads import FilesOpened
from penstock.data.profiling.record_files import RecordFile
from penstock.data.profiling.retained_memory import RetainedMemory
from penstock.data.profiling.sample_reads import SampleClock, packed
from penstock.data.profiling.timed_stages import StageTimes, time_stages
from penstock.throughput.observations.records import IN_LINE
from penstock.throughput.observations.session import Phase

LOADER: Final = "PENSTOCK_PROFILE_LOADER"
"""The variable that tells a worker whose it is: PROCESS:LOADER."""
_LOOK_SECONDS: Final = 1.0


class Makers:
    """What the makers of batches write down, each in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = 0
        self._over = False
        self.loader = 0

    def install(self, fetcher: Any, worker_info: Any) -> None:
        """Wrap ``fetch`` of one class of fetchers."""
        plain = fetcher.fetch

        def fetch(this: Any, indices: Any) -> Any:
            if self._over:
                return plain(this, indices)
            return self._fetch(plain, this, indices, worker_info)

        fetcher.fetch = fetch

    def end(self) -> None:
        """In this process nothing more is written down."""
        self._over = True
        if self._process == os.getpid():
            self._files.look(False)

    def _begin(self, fetcher: Any, worker_info: Any) -> None:
        """The first batch of this process: it may have been forked from one with all of this."""
        self._process = os.getpid()
        self._out = RecordFile(self._folder, self._process)
        self._clock = ThreadClock()
        self._bytes = BytesRead()
        self._files = FilesOpened()
        self._reported = 0
        self._fetchers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._datasets: set[int] = set()
        self._times = StageTimes()
        self._others = 0.0
        self._looked = 0.0
        info = worker_info()
        self._maker = IN_LINE if info is None else int(info.id)
        self._trainer = str(self._process)
        if info is not None:
            self._trainer, _, number = os.environ.get(LOADER, "0:0").partition(":")
            self.loader = int(number)
        self._collate = [0.0, 0.0]
        self._retained = RetainedMemory()
        self._samples = SampleClock(self._files)
        self._cooled: set[int] = set()

    def _fetch(self, plain: Any, fetcher: Any, indices: Any, worker_info: Any) -> Any:
        if self._process != os.getpid():
            self._begin(fetcher, worker_info)
        if fetcher not in self._fetchers:
            self._fetchers[fetcher] = None
            fetcher.collate_fn = self._timed(fetcher.collate_fn)
            if id(fetcher.dataset) not in self._datasets:
                self._datasets.add(id(fetcher.dataset))
                time_stages(fetcher.dataset, self._times)
        self._collate[:] = [0.0, 0.0]
        cooled = self.loader in self._cooled
        self._files.drop(cooled)
        self._files.look(True)
        # Where the training makes its batches itself, the other threads are the training's.
        others = 0.0 if self._maker == IN_LINE else time.process_time() - time.thread_time()
        read, missed = self._bytes.read()
        faults = thread_counts.faults()
        timed, dropping = self._samples.timed(fetcher, indices), self._files.spent
        batch = None
        before = self._clock.read()
        try:
            batch = plain(fetcher, timed)
            return batch
        finally:
            after = self._clock.read()
            reads, looking = self._samples.take()
            looking += self._files.spent - dropping
            faults = thread_counts.faults() - faults
            self._files.look(False)
            now_read, now_missed = self._bytes.read()
            samples = len(indices) if hasattr(indices, "__len__") else 1
            self._out.write(
                {
                    "k": "made",
                    "t": self._trainer,
                    "l": self.loader,
                    "m": self._maker,
                    "b": before.wall,
                    "e": after.wall,
                    "c": max(0.0, after.cpu - before.cpu - looking),
                    "q": after.queued - before.queued,
                    "n": samples,
                    "cc": self._collate[0],
                    "cs": self._collate[1],
                    "s": self._times.take(),
                    "z": self._times.take_sizes(samples),
                    "o": max(0.0, others - self._others),
                    "r": now_read - read,
                    "x": now_missed - missed,
                    "f": faults,
                    "w": self._retained.batches,
                    "d": cooled,
                    "u": packed(reads),
                    "y": None if self._retained.cost is None else astuple(self._retained.cost),
                }
            )
            self._others = others
            self._tell_files()
            if self._maker != IN_LINE:
                self._look_for_end(after.wall)
                if self._retained.batches or self._has_begun(Phase.RETAINED):
                    self._retained.keep(batch)
            if not cooled and self._has_begun(Phase.COLD):
                self._cooled.add(self.loader)

    def _has_begun(self, phase: Phase) -> bool:
        return record_files.has_begun(phase, self._folder, self._trainer, self.loader)

    def _timed(self, collate: Any) -> Any:
        def timed(samples: Any) -> Any:
            cpu, wall = time.thread_time(), time.monotonic()
            try:
                return collate(samples)
            finally:
                self._collate[0] += time.thread_time() - cpu
                self._collate[1] += time.monotonic() - wall

        return timed

    def _tell_files(self) -> None:
        paths = list(self._files.paths)[self._reported :]
        if paths:
            self._reported += len(paths)
            self._out.write({"k": "files", "t": self._trainer, "l": self.loader, "paths": paths})

    def _look_for_end(self, now: float) -> None:
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            if record_files.is_finished(self._folder):
                self.end()
