"""Which files the makers of batches open: some of them are read again, cold, when all is over.

An audit hook cannot be taken back, so that it is installed in loader workers and where the training
makes its batches itself, and only looks at a flag once it has seen enough. It looks at one batch in
some, since what it costs is the batch's. At the end of a session it drops what every other sample
opens from memory before, which makes reading it a miss; so many times, and no longer than some
seconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Any, Final

from penstock.data.profiling.page_cache import give_up, open_regular_file

MOST_FILES: Final = 200
EVERY: Final = 4
"""One batch in so many is looked at."""
MOST_DROPPED: Final = 200
MOST_SECONDS: Final = 2.0
"""For which files are dropped; a slow storage makes few misses in it."""
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NOT_DATA: Final = ("/proc/", "/sys/", "/dev/")
_CODE: Final = (".py", ".pyc", ".so")


class FilesOpened:
    """Paths that this process has opened for reading, as far as there is room."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self.spent = 0.0
        """CPU seconds of the thread that makes batches that went into dropping files."""
        self.looks = False
        """Whether the batch that is made now is looked at."""
        self._maker = 0
        self._droppers: set[int] = set()
        self._drops = False
        self._turn = False
        self._sample_drops = False
        self._batches = 0
        self._dropped = 0
        self._until = 0.0
        self._installed = False

    def look(self, on: bool) -> None:
        """Begin or stop; batches are made between the two."""
        if on and not self._installed:
            self._installed = True
            sys.addaudithook(self._seen)
        self.looks = on and (self._drops or self._batches % EVERY == 0)
        self._batches += on
        self._maker = threading.get_ident()

    def drop(self, on: bool) -> None:
        """Whether files are dropped while the next batch is made."""
        if on and not self._until:
            self._until = time.monotonic() + MOST_SECONDS
        self._drops = on and self._may_drop()

    def _may_drop(self) -> bool:
        return self._dropped < MOST_DROPPED and time.monotonic() < self._until

    def begin_sample(self) -> None:
        """The next of a batch's samples is made; files are dropped for every other one."""
        self._turn = not self._turn
        self._sample_drops = self._turn

    def end_samples(self) -> None:
        """All of a batch's samples are made."""
        self._sample_drops = False

    def _seen(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.looks or event != "open" or threading.get_ident() in self._droppers:
            return
        if not self._drops and len(self.paths) >= MOST_FILES:
            return
        path, _, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or (isinstance(flags, int) and flags & _WRITING):
            return
        try:
            path = os.path.abspath(path)  # noqa: PTH100 - links are not followed
        except OSError:  # the folder in which the program works is gone
            return
        if path.startswith(_NOT_DATA) or path.endswith(_CODE):
            return
        if self._drops:
            if self._sample_drops and self._may_drop():
                self._drop(path)
        elif len(self.paths) < MOST_FILES:
            self.paths.setdefault(path)

    def _drop(self, path: str) -> None:
        thread, begun = threading.get_ident(), time.thread_time()
        self._droppers.add(thread)  # to drop it is to open it
        self._dropped += 1
        with contextlib.suppress(OSError, ValueError, AttributeError):
            descriptor = open_regular_file(path)
            if descriptor is not None:
                try:
                    give_up(descriptor)
                finally:
                    os.close(descriptor)
        self._droppers.discard(thread)
        if thread == self._maker:
            self.spent += time.thread_time() - begun
