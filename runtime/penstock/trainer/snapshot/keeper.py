"""The agent's side of snapshots: it owns their memory, and saves the newest at the breakpoint.

The memory is a file without a name (``memfd_create``), which needs neither ``/dev/shm`` nor any
right, counts as the pod's memory, and is empty until a session puts a snapshot there. It lives as
long as the agent: a training process that is killed, however, leaves its newest snapshot behind.
When the program ends other than well the agent writes that to the checkpoints' folder, if it is
newer than what is there; so the next process begins where this one was, not where its last
checkpoint is. That write is bounded in time, and its failure is a line of the log.
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.job import atomic_file
from penstock.job.folder_mark import FolderMark, this_writer
from penstock.job.storage import cause
from penstock.trainer.snapshot import slots
from penstock.trainer.snapshot.file_head import file_head
from penstock.trainer.snapshot.slots import Snapshot

logger = logging.getLogger(__name__)

MEMORY: Final = "PENSTOCK_AGENT_MEMORY"
"""Environment variable: the path under which the program can open the agent's memory."""
BREAKPOINT_SECONDS: Final = 60.0
"""How long the agent waits for the write of a snapshot when its program has ended."""


class SnapshotKeeper:
    """Memory for the snapshots of one pod's program; close it at the end."""

    def __init__(self) -> None:
        self._descriptor = -1
        self.path = ""
        """For the environment of the program; empty where there can be none."""
        if sys.platform == "linux":
            try:
                self._descriptor = os.memfd_create("penstock-snapshots", os.MFD_CLOEXEC)
            except OSError as error:
                logger.warning("no snapshots are kept: %s", cause(error))
                return
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def save_newest(self, seconds: float) -> Path | None:
        """Write the newest snapshot where its checkpoints are, if none there is as new.

        Args:
            seconds: how long the write is waited for.

        Returns:
            The file; None where there was nothing to write, or it could not be written in time.
        """
        if self._descriptor < 0 or os.fstat(self._descriptor).st_size <= slots.HEAD_BYTES:
            return None
        written: list[Path] = []
        writer = threading.Thread(
            target=self._save, args=(written,), name="penstock-breakpoint", daemon=True
        )
        writer.start()
        writer.join(seconds)
        if writer.is_alive():
            logger.warning("the newest snapshot was not written within %.0f s", seconds)
        return written[0] if written else None

    def _save(self, written: list[Path]) -> None:
        mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        with mapped, memoryview(mapped) as memory:
            snapshot = slots.newest(memory)
            if snapshot is None:
                return
            try:
                path = _write(memory, snapshot)
            except OSError as error:
                folder, why = snapshot.folder, cause(error)
                logger.warning("the newest snapshot was not written to %s: %s", folder, why)
                return
        if path is not None:
            logger.info("the state of step %d was saved from memory: %s", snapshot.step, path)
            written.append(path)

    def close(self) -> None:
        """Give the memory up."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self.path = -1, ""


def _write(memory: memoryview, snapshot: Snapshot) -> Path | None:
    """Write a snapshot as a checkpoint; None where there is one as new. Raises OSError."""
    folder = Path(snapshot.folder)
    writer = this_writer()
    if snapshot.job:
        writer = replace(writer, job=snapshot.job)
    mark = FolderMark(folder, writer)
    series = atomic_file.Series(folder, "step", snapshot.keep, mark)
    if any(step >= snapshot.step for _, step in series.list()):
        return None
    mark.claim()
    try:
        path = series.path(snapshot.step)
        head = file_head(snapshot.header, sum(size for _, size in snapshot.parts))
        parts = slots.file_parts(memory, snapshot)
        atomic_file.write(path, itertools.chain((head, snapshot.header), parts))
        series.discard_older(snapshot.step)
    finally:
        mark.close()
    return path
