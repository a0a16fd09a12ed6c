"""The trainer's state on disk: a journal that is appended, synced in batches and compacted.

What is in the file (`penstock.data.ledger.journal`) can be cut off at any byte and still gives back
a state that the trainer really had. Compaction writes a new file and renames it over the old one.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

from penstock.data.ledger import SnapshotError
from penstock.data.ledger.journal import MAGIC, Recovered, recover, unframe
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.control.model.saved_state import SavedState

logger = logging.getLogger(__name__)

FILE_NAME: Final = "ledger.journal"
COMPACT_ABOVE_BYTES: Final = 4 << 20


class Journal:
    """The journal of one trainer in its state folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE_NAME
        self._bytes = 0
        self._descriptor: int | None = None

    def load(self) -> bytes | None:
        """What an earlier trainer left behind; None when there is nothing."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def rewrite(self, whole: bytes) -> None:
        """Begin anew with a snapshot (compaction); durable when this returns.

        Raises:
            OSError: the file is as it was.
        """
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self.close()
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._bytes = len(whole)

    def append(self, more: bytes) -> None:
        """Write records behind the rest; durable when this returns. `rewrite` comes first.

        Raises:
            OSError: also where the disk took only a part. What is appended behind a torn record
                would never be read, so the caller writes the whole anew.
        """
        assert self._descriptor is not None
        if (taken := os.write(self._descriptor, more)) != len(more):
            raise OSError(errno.ENOSPC, f"only {taken} of {len(more)} bytes were taken")
        os.fdatasync(self._descriptor)
        self._bytes += len(more)

    @property
    def begun(self) -> bool:
        """Whether there is a snapshot to append to."""
        return self._descriptor is not None

    @property
    def too_long(self) -> bool:
        """Whether it is time to compact."""
        return self._bytes > COMPACT_ABOVE_BYTES

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_journal(data: bytes, coordinator: Coordinator, now: float) -> tuple[Recovered, SavedState]:
    """The state in a journal. Raises SnapshotError when not even its head is whole."""
    head = next(unframe(data, len(MAGIC)), None)
    if data[: len(MAGIC)] != MAGIC or head is None or not isinstance(head[0], dict):
        raise SnapshotError("the journal's snapshot is cut off or damaged")
    saved = SavedState.read(head[0].get("extra") or {})
    options = saved.ledger_options(coordinator.state.facts)
    return recover(data, options, now, coordinator.state.fence_floor), saved


def restore(data: bytes, name: str, coordinator: Coordinator, now: float) -> None:
    """Give a coordinator the state that its predecessor wrote, as far as it can be read."""
    try:
        recovered, saved = read_journal(data, coordinator, now)
        coordinator.recover(recovered.ledger, saved, now)
    except SnapshotError as error:
        logger.warning("%s cannot be used (%s): the ranks will say where they are", name, error)
        coordinator.await_survivors(now)
        return
    torn = f"; its last {recovered.lost_bytes} bytes were torn" if recovered.lost_bytes else ""
    logger.info("took up %s at step %d%s", name, coordinator.state.committed_steps, torn)
