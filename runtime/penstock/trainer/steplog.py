"""A line of JSON for every committed step: when, which, with how many workers, and the losses.

What a person plots and a test compares. Each worker writes its own file, for the slots that it
computed itself, into the folder that ``PENSTOCK_STEP_LOG`` names: put together, the files of all
workers hold every slot of every step. Writing never disturbs the training: where the disk is full,
this is said once, the newest lines wait in memory, up to a bound, and are tried again; how many are
missing is said when it works again, or at the end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.crds.conditions import JobReason
from penstock.job.protocol import MAX_TEXT, Trouble
from penstock.job.storage import RETRY_SECONDS, Backoff, cause

LOG = logging.getLogger("penstock.session")

MAX_WAITING_BYTES: Final = 1 << 20


class StepLog:
    """The step log of one worker: ``steps-RANK-INCARNATION.jsonl``."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        incarnation: int,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self._path = folder / f"steps-{rank}-{incarnation}.jsonl"
        self._descriptor: int | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._max_waiting_bytes = max_waiting_bytes
        self._torn = False  # the first that waits is the rest of a line
        self._missing = 0
        self._backoff = Backoff(retry_seconds)
        self.trouble = ""
        """Why nothing is written at present; empty: it is."""

    def write(self, step: int, world_size: int, losses: Mapping[int, float]) -> None:
        """Note a committed step; ``losses``: by slot, each weighed by its part of the step."""
        entry = {"time": time.time(), "step": step, "world": world_size, "losses": losses}
        self._wait_in_line(json.dumps(entry).encode() + b"\n")
        if not self._backoff.waits:
            self._attempt()

    def troubles(self) -> tuple[Trouble, ...]:
        """The same for the trainer."""
        if not self.trouble:
            return ()
        reason = JobReason.STEP_LOG_NOT_WRITTEN
        return (Trouble(reason=reason, message=self.trouble[:MAX_TEXT]),)

    def close(self) -> None:
        """Write what waits, in one attempt, and close the file; never an error."""
        if self._waiting:
            self._attempt()
        if self._waiting:
            missing = self._missing + len(self._waiting)
            LOG.warning("the step log %s lacks %d lines", self._path, missing)
            self._waiting.clear()
        self._close_file()

    def _wait_in_line(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        oldest = 1 if self._torn else 0  # the rest of a line that is begun goes with it
        while self._waiting_bytes > self._max_waiting_bytes and len(self._waiting) > oldest + 1:
            self._waiting_bytes -= len(self._waiting[oldest])
            del self._waiting[oldest]
            self._missing += 1

    def _attempt(self) -> None:
        try:
            if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
                LOG.warning("the step log %s was removed: it is begun anew", self._path)
                self._close_file()
            if self._descriptor is None:
                self._open()
            while self._waiting:
                self._write_first()
        except OSError as error:
            self._close_file()
            self._backoff.failed()
            if not self.trouble:
                self.trouble = (
                    f"no step log in {self._path}: {cause(error)}; make room there, or mend the "
                    "disk: it is tried again"
                )
                LOG.warning("%s", self.trouble)
            return
        self._backoff.succeeded()
        if self.trouble:
            LOG.info("the step log %s is written again, %d lines lack", self._path, self._missing)
        self.trouble, self._missing = "", 0

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # What is no file, such as a pipe that nobody reads, is an error and not waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, 0o666)
        if self._torn and os.fstat(self._descriptor).st_size == 0:  # its beginning is gone
            self._drop_first()
            self._missing += 1

    def _write_first(self) -> None:
        assert self._descriptor is not None
        line = self._waiting[0]
        taken = os.write(self._descriptor, line)
        if taken == len(line):
            self._drop_first()
            return
        self._waiting[0], self._torn = line[taken:], self._torn or taken > 0
        self._waiting_bytes -= taken
        if taken == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _drop_first(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())
        self._torn = False

    def _close_file(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # as a quota may have it
                os.close(self._descriptor)
            self._descriptor = None
