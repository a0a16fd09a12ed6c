"""The agent's look at the stacks of its pod's processes, without any right that they lack.

`penstock.data.hook` has each Python process of the program register `faulthandler` for `SIGNAL`,
writing to a file that is named after the process (`FOLDER`). It writes of the main thread alone:
`faulthandler` reads other threads while they run, which makes a process crash that works. One that
is ended in any case is asked for all of its threads before (`ALL_THREADS`). A signal is sent to a
process only while it has a handler for it (`/proc/PID/status`): one that has become another program
since would be ended by it. A stopped process writes nothing, and is known by its state. Files are
bounded, and go with their processes. What looking makes a process do is not said of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from penstock.job.protocol import MAX_PROCESSES, CallFrame, ProcessLook
from penstock.trainer.standstill.native_threads import native_threads
from penstock.trainer.standstill.stack import Frame, are_elsewhere, main_thread

logger = logging.getLogger(__name__)

FOLDER: Final = "PENSTOCK_STACKS"
"""Name of the folder, in the program's environment; `penstock.data.hook` has the same."""
SIGNAL: Final = 43
"""A real-time signal that nothing is known to use."""
ALL_THREADS: Final = 44
"""The same, for the stacks of all threads; for processes that are about to be ended."""
WRITES_SECONDS: Final = 0.6
"""What a process gets to write its stack."""
STACKS: Final = 6
"""Of each process in one look, as far as it has time for them: one that works is in several places,
if seldom in some of them."""
_POLL_SECONDS: Final = 0.02
_MOST_BYTES: Final = 1 << 20
_SHOWN_BYTES: Final = 16384
_PATH, _NAME, _WCHAN = 1024, 256, 64


class Stacks:
    """Of the processes of one pod; close it at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-stacks-")
        self._told: set[int] = set()
        self._own: dict[int, _Own] = {}

    @property
    def folder(self) -> str:
        """For the program's environment."""
        return self._folder.name

    async def look(self, pids: Collection[int]) -> tuple[ProcessLook, ...]:
        """Look at these processes, those that live; none waits for another."""
        chosen = sorted(pids)[:MAX_PROCESSES]
        self._own = {pid: own for pid, own in self._own.items() if pid in chosen}
        deadline = asyncio.get_running_loop().time() + WRITES_SECONDS
        written = await self._write(chosen, deadline)
        self._say(written)
        seen = {pid: [main_thread(text)] for pid, text in written.items()}
        for _ in range(STACKS - 1):
            again = [pid for pid, frames in seen.items() if frames[0] and not are_elsewhere(frames)]
            if not again or asyncio.get_running_loop().time() >= deadline:
                break
            for pid, text in (await self._write(again, deadline)).items():
                seen[pid].append(main_thread(text))
        looks = (_look(pid, frames, self._own.get(pid, _Own())) for pid, frames in seen.items())
        return tuple(one for one in looks if one is not None)

    async def tell_all_threads(self, pids: Collection[int]) -> None:
        """Write the stacks of all threads to the log, of processes that are ended afterwards."""
        chosen = sorted(pids)[:MAX_PROCESSES]
        deadline = asyncio.get_running_loop().time() + WRITES_SECONDS
        for pid, text in (await self._write(chosen, deadline, ALL_THREADS)).items():
            if text:
                shown = text[-_SHOWN_BYTES:].rstrip()
                logger.warning("all threads of process %d, which is ended:\n%s", pid, shown)

    def moved_on(self) -> None:
        """Training goes on: the next standstill is another one."""
        self._told = set()

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    async def _write(
        self, pids: Collection[int], deadline: float, number: int = SIGNAL
    ) -> dict[int, str]:
        """Have each write its stack once; "" of those that had not by then."""
        begun = {pid: self._ask(pid, number) for pid in pids}
        written = dict.fromkeys(pids, "")
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            before, written = written, {pid: self._read(pid, begun[pid]) for pid in pids}
            if written == before and all(
                text for pid, text in written.items() if begun[pid] is not None
            ):
                break
        for pid, size in begun.items():
            if size is not None:
                own = self._own.get(pid, _Own())
                self._own[pid] = _Own(own.asked + 1, own.size + self._size(pid) - size)
        return written

    def _size(self, pid: int) -> int:
        with contextlib.suppress(OSError):
            return self._file(pid).stat().st_size
        return 0

    def _file(self, pid: int) -> Path:
        return Path(self._folder.name) / str(pid)

    def _ask(self, pid: int, number: int) -> int | None:
        """Have a process write its stack; where it begins, None if it cannot be asked."""
        try:
            size = self._file(pid).stat().st_size
            if size > _MOST_BYTES:
                os.truncate(self._file(pid), 0)
                size = 0
            if not _handles(pid, number):
                return None
            os.kill(pid, number)
        except OSError:
            return None
        return size

    def _read(self, pid: int, begun: int | None) -> str:
        if begun is None:
            return ""
        with contextlib.suppress(OSError), self._file(pid).open("rb") as file:
            file.seek(begun)
            return file.read(_MOST_BYTES).decode(errors="replace")
        return ""

    def _say(self, written: dict[int, str]) -> None:
        """The whole stacks stand in the pod's log, once for each standstill."""
        for pid, text in written.items():
            if text and pid not in self._told:
                self._told.add(pid)
                logger.warning(
                    "process %d takes no more steps:\n%s\n%s",
                    pid,
                    text[-_SHOWN_BYTES:].rstrip(),
                    native_threads(pid),
                )


def _handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, and not the default, which would end it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@dataclass(frozen=True, slots=True)
class _Own:
    """What looking itself has made a process do: wake up to write a stack, and write so much."""

    asked: int = 0
    size: int = 0


def _look(pid: int, seen: list[tuple[Frame, ...]], own: _Own) -> ProcessLook | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        process = psutil.Process(pid)
        times = process.cpu_times()
        wakeups = _wakeups(pid)
        tree = [process, *process.children(recursive=True)]
    except (OSError, psutil.Error):
        return None
    used, moved = _sums(tree)
    frames = (
        CallFrame(path=one.path[-_PATH:], line=one.line, function=one.function[:_NAME])
        for one in next((each for each in reversed(seen) if each), ())
    )
    return ProcessLook(
        pid=pid,
        state=stat[stat.rindex(")") + 2],
        cpu_seconds=times.user + times.system,
        frames=tuple(frames),
        tree_cpu_seconds=used,
        tree_io_bytes=max(0, moved - own.size),
        wakeups=max(0, wakeups - own.asked),
        sleeps_in=_sleeps_in(pid),
        wanders=are_elsewhere(seen),
    )


def _sleeps_in(pid: int) -> str:
    """The kernel's function in which a process's main thread sleeps; "" where it is not told."""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/wchan").read_text(errors="replace").strip()
        return "" if name == "0" else name[:_WCHAN]
    return ""


def _wakeups(pid: int) -> int:
    """How often the main thread of a process has gone to sleep by itself. Raises OSError."""
    for line in Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def _sums(tree: Collection[psutil.Process]) -> tuple[float, int]:
    """CPU seconds of these processes, and bytes that they read and wrote; of those that live."""
    seconds, size = 0.0, 0
    for one in tree:
        with contextlib.suppress(psutil.Error, OSError):
            times = one.cpu_times()
            seconds += times.user + times.system
        with contextlib.suppress(psutil.Error, OSError):
            counts = one.io_counters()
            size += counts.read_chars + counts.write_chars
    return seconds, size
