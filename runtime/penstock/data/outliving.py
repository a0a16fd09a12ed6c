"""Data workers that outlive whoever started them, and are found again by whoever comes after.

The one that keeps a share group's data workers may be killed; they hold what they have made, and to
start others takes as long as to load PyTorch. So they go on, and the next keeper takes them over:
by their numbers, and the times at which they began, since a number may be another's by then. One
that nobody keeps and nobody needs ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

ABANDONED_SECONDS: Final = 5.0
"""So long after its dispatcher's last answer a data worker waits for another, if nobody needs it.

A keeper is there again after two or three; on a busy machine another data worker starts instead."""
LEAVE_SECONDS: Final = 10.0
"""After this it ends in the middle of the user's code."""
_LOOK_SECONDS: Final = 1.0


class ProcessId(NamedTuple):
    """One process of this machine: its number, and when it began, in ticks since the boot."""

    pid: int
    began: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Of a process that runs; None: there is none of that number."""
        try:
            words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        except OSError:
            return None
        return None if words[0] == b"Z" else cls(pid, int(words[19]))


class Kept(Protocol):
    """A process that somebody keeps: one that he started (`asyncio`), or `Adopted`."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int | None:
        """Until it has ended; its exit code, if that can be known."""

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


class Adopted:
    """A process that somebody else started; made and kept in one event loop."""

    def __init__(self, process: ProcessId) -> None:
        """Raises ProcessLookupError: it has ended. OSError: the system cannot watch it."""
        self.pid = process.pid
        self._descriptor = os.pidfd_open(process.pid)
        if ProcessId.of(process.pid) != process:  # looked at when its number is nobody else's
            os.close(self._descriptor)
            raise ProcessLookupError(process.pid)
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.add_reader(self._descriptor, self._note_end)

    def _note_end(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._ended.set()

    async def wait(self) -> int | None:
        """Until it has ended; its parent alone is told its exit code."""
        await self._ended.wait()
        return None

    def send_signal(self, number: int, /) -> None:
        """Raises ProcessLookupError: it has ended."""
        signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Raises ProcessLookupError: it has ended."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """It has ended, or is kept no more."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)


def adopted(processes: Collection[ProcessId]) -> list[Adopted]:
    """Those of some processes that still run."""
    found = []
    for process in processes:
        with contextlib.suppress(OSError):
            found.append(Adopted(process))
    return found


class Worker(Protocol):
    """What is to be known of a data worker that may be abandoned."""

    @property
    def answered_at(self) -> float:
        """When its dispatcher answered last, by the monotonic clock, or when it began."""

    def serving(self) -> Collection[object]:
        """Whom it serves now."""

    def leave(self) -> None:
        """End, when what is in hand is done."""


def watch(worker: Worker, parent: int, end: Callable[[int], None] = os._exit) -> None:
    """In a thread: have a data worker end that nobody keeps and nobody needs."""
    threading.Thread(
        target=_watch, args=(worker, parent, end), name="penstock-abandoned", daemon=True
    ).start()


def _watch(worker: Worker, parent: int, end: Callable[[int], None]) -> None:
    while not is_abandoned(
        orphaned=os.getppid() != parent,
        needed=bool(worker.serving()),
        silent_seconds=time.monotonic() - worker.answered_at,
    ):
        time.sleep(_LOOK_SECONDS)
    worker.leave()
    time.sleep(LEAVE_SECONDS)
    end(1)


def is_abandoned(*, orphaned: bool, needed: bool, silent_seconds: float) -> bool:
    """Whether a data worker is nobody's: who started it has ended, and nobody took it over."""
    return orphaned and not needed and silent_seconds > ABANDONED_SECONDS
