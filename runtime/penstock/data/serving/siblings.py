"""Several data workers in one pod, as many as it has cores: what makes a larger pod make more.

A batch's random numbers come of generators of the whole process (`random`, NumPy's, PyTorch's), so
that two batches cannot be made in two threads with the bits that each has alone; in two processes
they can. Each process is a data worker of its own to everybody who is served; the pod's first
process makes no batches, and starts, watches and ends the others.

How many there are to be is asked again and again, since a pod may be resized where it runs. The
next one is started when there is room for it in the pod's memory, by what those that are there
take. One that is killed, as where memory is short after all, is not started again while others run.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from penstock.data.cores import usable_cores
from penstock.data.memory import read_memory
from penstock.data.variables import MOST_PROCESSES

logger = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 10.0
"""After one was started: what it takes is known once it has made batches."""
ROOM: Final = 1.25
"""For one more, by what the largest takes."""
POLL_SECONDS: Final = 0.2
_PR_SET_PDEATHSIG: Final = 1
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_COUNT: Final = struct.Struct("Q")


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod has, and what its data workers take.

    Attributes:
        resident_bytes: of each that runs; 0: not known.
        free_bytes: of its memory.
        since_seconds: since the last was started.
    """

    resident_bytes: tuple[int, ...]
    free_bytes: int
    since_seconds: float


def starts_another(pod: Pod, wanted: int) -> bool:
    """Whether one more data worker is to be started now."""
    running = len(pod.resident_bytes)
    if not running:
        return True
    if running >= wanted or pod.since_seconds < SETTLE_SECONDS:
        return False
    return pod.free_bytes >= ROOM * max(pod.resident_bytes)


class Siblings:
    """The data workers of one pod; see the module's docstring."""

    def __init__(self, work: Callable[[int], None], wanted: Callable[[], int]) -> None:
        """``work``: be a data worker, given its number; in a process of its own."""
        self._work, self._wanted, self._most = work, wanted, MOST_PROCESSES
        self._running: dict[int, int] = {}  # by process its number
        self._ending: set[int] = set()
        self._count = mmap.mmap(-1, _COUNT.size)  # which all of them read
        self._started = 0.0
        self._leaving = False

    @property
    def count(self) -> int:
        """How many there are, as any of them may ask."""
        return max(1, int(_COUNT.unpack_from(self._count)[0]))

    def run(self) -> int:
        """Until all have ended: the exit code; told to leave, they are told as well."""
        for number in _ENDING:
            signal.signal(number, self._leave)
        while not self._leaving or self._running:
            if (code := self._reap()) and not self._leaving:
                if code == -signal.SIGKILL and self._running:
                    self._most = len(self._running)
                    text = "a data worker of this pod was killed: it goes on with %d"
                    logger.warning(text, self._most)
                    continue
                logger.error("a data worker of this pod ended with %d: the others leave", code)
                self._leave()
                self._wait()
                return code if code > 0 else 1
            wanted = max(1, min(self._most, self._wanted()))
            if not self._leaving and starts_another(self._pod(), wanted):
                self._start()
            elif len(self._running) - len(self._ending) > wanted:
                self._end_one()
            time.sleep(POLL_SECONDS)
        return 0

    def _end_one(self) -> None:
        """The last of them; the first tells whether the pod is ready."""
        pid = max(self._running.keys() - self._ending, key=self._running.__getitem__)
        self._ending.add(pid)
        os.kill(pid, signal.SIGTERM)

    def _start(self) -> None:
        number = next(one for one in range(MOST_PROCESSES) if one not in self._running.values())
        sys.stderr.flush()
        # Who is told to leave in between tells it too, and it tells nobody.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            if self._leaving:
                return
            pid = os.fork()
            if not pid:
                self._be_one(number)
            self._running[pid], self._started = number, time.monotonic()
            _COUNT.pack_into(self._count, 0, len(self._running))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    def _be_one(self, number: int) -> NoReturn:
        code = 1
        try:
            for one in _ENDING:
                signal.signal(one, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            self._work(number)
            code = 0
        except BaseException:
            logger.exception("a data worker ends")
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> int | None:
        """The exit code of one that has ended; None: none has."""
        if not self._running:
            return None
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid not in self._running:
            return None
        del self._running[pid]
        self._ending.discard(pid)
        _COUNT.pack_into(self._count, 0, len(self._running))
        return os.waitstatus_to_exitcode(status)

    def _wait(self) -> None:
        while self._running:
            self._reap()
            time.sleep(POLL_SECONDS)

    def _leave(self, *_: int | FrameType | None) -> None:
        self._leaving = True
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _pod(self) -> Pod:
        memory = read_memory()
        return Pod(
            tuple(resident_bytes(self._running)),
            memory.free,
            time.monotonic() - self._started,
        )


def whole_cores(asked: int) -> int:
    """Of this pod: by its limit, and without one as many as it has asked for."""
    cores = usable_cores()
    limited = cores < (os.cpu_count() or 1)
    return max(1, min(MOST_PROCESSES, int(cores) if limited else asked))


def resident_bytes(pids: Iterable[int]) -> list[int]:
    """Of each process; 0 where it is gone, or the system does not say."""
    found = []
    for pid in pids:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            pages = 0
        found.append(pages * os.sysconf("SC_PAGE_SIZE"))
    return found
