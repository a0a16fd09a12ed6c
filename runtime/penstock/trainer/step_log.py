"""A line of JSON for every committed step: when, which, with how many workers, and the losses.

What a person plots and a test compares. Each worker writes its own file, for the slots that it
computed itself, into the folder that ``PENSTOCK_STEP_LOG`` names: put together, the files of all
workers hold every slot of every step. Writing never disturbs the training: it is done on a thread
of its own. Where the disk is full, or hangs, this is said once, the newest lines wait in memory, up
to a bound, and are tried again; how many are missing is said when it works again, or at the end.

A step's line is waited for as long as the disk is well, so that a process that is killed has logged
what it did; a disk that hangs is waited for `PATIENCE_SECONDS`, once, and `CLOSE_SECONDS` at the
end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from penstock.crds.conditions import JobReason
from penstock.job import settings
from penstock.job.protocol import MAX_TEXT, Trouble
from penstock.job.storage import RETRY_SECONDS, Backoff, cause

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 1 << 20
PATIENCE_SECONDS: Final = 0.5
HANG_SECONDS: Final = 30.0
"""A line that is not written after so long is said to hang."""
CLOSE_SECONDS: Final = 5.0


class StepLog:
    """The step log of one worker: ``steps-RANK-INCARNATION.jsonl``."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        incarnation: int,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        hang_seconds: float = HANG_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._path = folder / f"steps-{rank}-{incarnation}.jsonl"
        self._max_waiting_bytes = max_waiting_bytes
        self._hang_seconds = hang_seconds
        self._close_seconds = close_seconds
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._torn = False  # the first that waits is the rest of a line
        self._began: float | None = None  # when the writing of the first did
        self._missing = 0
        self._backoff = Backoff(retry_seconds)
        self._late = False  # it was waited for in vain
        self._closing = False
        self._given_up = False
        self._descriptor: int | None = None  # the writer's
        self.trouble = ""
        """Why nothing is written at present; empty: it is."""

    @classmethod
    def of_process(cls) -> Self | None:
        """The log that the environment asks for; None where it asks for none."""
        folder, pod = settings.step_log(), settings.pod_identity()
        return None if folder is None else cls(folder, pod.rank, pod.incarnation)

    def write(self, step: int, world_size: int, losses: Mapping[int, float]) -> None:
        """Note a committed step; ``losses``: by slot, each weighed by its part of the step."""
        entry = {"time": time.time(), "step": step, "world": world_size, "losses": losses}
        line = json.dumps(entry).encode() + b"\n"
        with self._changed:
            self._wait_in_line(line)
            if self._writer is None:
                self._writer = threading.Thread(
                    target=self._write_all, name="penstock-steps", daemon=True
                )
                self._writer.start()
            self._changed.notify_all()
            if not self._late:
                self._late = not self._changed.wait_for(self._is_settled, PATIENCE_SECONDS)
            if self._began is not None and time.monotonic() - self._began > self._hang_seconds:
                self._fail(f"a line is not written within {self._hang_seconds:g} s")

    def troubles(self) -> tuple[Trouble, ...]:
        """The same for the trainer."""
        if not (trouble := self.trouble):
            return ()
        reason = JobReason.STEP_LOG_NOT_WRITTEN
        return (Trouble(reason=reason, message=trouble[:MAX_TEXT]),)

    def close(self) -> None:
        """Write what waits, in one attempt, and close the file; never an error."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._writer is None, self._close_seconds)
            self._given_up = True
            if self._waiting:
                missing = self._missing + len(self._waiting)
                logger.warning("the step log %s lacks %d lines", self._path, missing)
                self._waiting.clear()

    # ------------------------------------------------------------------ with the lock

    def _is_settled(self) -> bool:
        """Whether the writer has done for now what it can."""
        return self._began is None and (not self._waiting or self._backoff.waits)

    def _wait_in_line(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        begun = self._torn or self._began is not None
        oldest = 1 if begun else 0  # the rest of a line that is begun goes with it
        while self._waiting_bytes > self._max_waiting_bytes and len(self._waiting) > oldest + 1:
            self._waiting_bytes -= len(self._waiting[oldest])
            del self._waiting[oldest]
            self._missing += 1

    def _fail(self, why: str) -> None:
        if not self.trouble:
            self.trouble = (
                f"no step log in {self._path}: {why}; make room there, or mend the disk: it is "
                "tried again"
            )
            logger.warning("%s", self.trouble)

    def _drop_first(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())
        self._torn = False

    # ------------------------------------------------------------------ on the thread

    def _write_all(self) -> None:
        while (line := self._take()) is not None:
            taken, error = 0, None
            try:
                taken = self._write_some(line)
            except OSError as caught:
                error = caught
                self._close_file()
            self._note(line, taken, error)
        self._close_file()
        with self._changed:
            self._writer = None
            self._changed.notify_all()

    def _take(self) -> bytes | None:
        """The line to be written now; None: no more."""
        with self._changed:
            while not self._given_up:
                if self._waiting and (self._closing or not self._backoff.waits):
                    self._began = time.monotonic()
                    return self._waiting[0]
                if self._closing:
                    break
                self._changed.wait(self._backoff.pause if self._waiting else None)
            return None

    def _write_some(self, line: bytes) -> int:
        """How much of the line is written, or not needed. Raises OSError."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            logger.warning("the step log %s was removed: it is begun anew", self._path)
            self._close_file()
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o666)
            if self._torn and os.fstat(self._descriptor).st_size == 0:  # its beginning is gone
                with self._changed:
                    self._missing += 1
                return len(line)
        taken = os.write(self._descriptor, line)
        if taken == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return taken

    def _note(self, line: bytes, taken: int, error: OSError | None) -> None:
        with self._changed:
            self._began = None
            if self._given_up:
                return
            if error is not None:
                self._backoff.failed()
                self._fail(cause(error))
                self._given_up = self._closing
            elif taken < len(line):
                self._waiting[0], self._torn = line[taken:], True
                self._waiting_bytes -= taken
            else:
                self._drop_first()
                self._backoff.succeeded()
            if not self._waiting:
                self._caught_up()
            self._changed.notify_all()

    def _caught_up(self) -> None:
        if self.trouble:
            logger.info(
                "the step log %s is written again, %d lines lack", self._path, self._missing
            )
        self.trouble, self._missing, self._late = "", 0, False

    def _close_file(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # as a quota may have it
                os.close(self._descriptor)
            self._descriptor = None
