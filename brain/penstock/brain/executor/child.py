"""The process that runs algorithms: ``python -m penstock.brain.executor.child``.

Reads tasks from standard input and writes answers to what was its standard output; anything that a
plugin prints goes to standard error instead. Memory is bounded by the kernel. A plugin that hangs
is killed by the parent; should the parent be gone, an alarm with its default action ends the
process all the same.

The algorithms that are asked about a case have the same record, one call after the other: its
samples are turned into objects once, which is most of what a call costs.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from typing import BinaryIO, Final

from penstock.brain.cpu_unit import plan_in_grain
from penstock.brain.executor.task import HEADER, Task, encode_failure, encode_plan
from penstock.brain.history import HistoryRecord
from penstock.brain.planning import History, Plan

_GRACE_SECONDS: Final = 5.0
_NICENESS: Final = 10
"""A plan can wait for a moment; the requests of a thousand trainers cannot."""


def main() -> None:
    """Serve tasks until standard input ends. Arguments: bytes of memory, seconds per call."""
    memory_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    with os.fdopen(os.dup(0), "rb") as tasks, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.nice(_NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        histories = Histories()
        answers.write(HEADER.pack(0))  # ready
        answers.flush()
        while (frame := _read(tasks)) is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS)
            answer = _run(frame, histories)
            signal.setitimer(signal.ITIMER_REAL, 0)
            answers.write(HEADER.pack(len(answer)) + answer)
            answers.flush()


def _read(tasks: BinaryIO) -> bytes | None:
    header = tasks.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    frame = tasks.read(length)
    return frame if len(frame) == length else None


class Histories:
    """The history that was asked for last; one, so that memory holds no more than a call needs."""

    def __init__(self) -> None:
        self._last: tuple[HistoryRecord, History] | None = None

    def of(self, record: HistoryRecord) -> History:
        """The history of a record."""
        if self._last is None or self._last[0] != record:
            self._last = None
            self._last = (record, record.history())
        return self._last[1]


def _run(frame: bytes, histories: Histories) -> bytes:
    try:
        task: Task = pickle.loads(frame)  # noqa: S301 - from our own parent, through our own pipe
        plan = plan_in_grain(task.entry, histories.of(task.record), task.job, task.limits)
        if plan is not None and not isinstance(plan, Plan):
            return encode_failure(f"answered a {type(plan).__name__}: expected a Plan or None")
        return encode_plan(plan)
    except MemoryError:
        return encode_failure("MemoryError: needs more than executor.memory_bytes")
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises is the answer
        return encode_failure(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
