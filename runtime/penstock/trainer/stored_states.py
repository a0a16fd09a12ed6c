"""What a training can begin from: the newest state, in the agent's memory or on disk.

A state is read once, by whoever takes it up, and checked while it is read. Before that only its
size is looked at; so the newest that is announced may turn out damaged, and the one before it is
then the newest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.job import atomic_file
from penstock.trainer.checkpoint_file import CheckpointError, check_size, read
from penstock.trainer.group.state_codec import StateError, assemble
from penstock.trainer.object_storage import ObjectStorage
from penstock.trainer.snapshot.memory import SnapshotMemory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk: its file and the number of steps that its model has seen."""

    path: Path
    step: int


@dataclass(frozen=True)
class Restored:
    """A state that was taken up: where it was, and the number of steps that its model has seen."""

    place: str
    step: int
    state: Any
    lent: bool = False
    """Its tensors are not to be written to, nor to be kept for long."""


class StoredStates:
    """The states of one job that can be taken up; see the module's docstring."""

    def __init__(
        self,
        files: atomic_file.Series,
        memory: SnapshotMemory,
        storage: ObjectStorage | None = None,
    ) -> None:
        self._files = files
        self._memory = memory
        self._storage = storage
        self._away: int | None = None  # the newest step in object storage, not fetched yet
        self._asked = storage is None
        self._damaged: set[Path] = set()  # found so when they were read

    def list(self) -> list[Saved]:
        """All checkpoints by name, newest first; not checked."""
        return [Saved(path, step) for path, step in self._files.list()]

    def note_written(self, path: Path) -> None:
        """This file is a new one, whatever was found out about the one before it."""
        self._damaged.discard(path)

    def newest(self) -> Saved | None:
        """The newest checkpoint of the size that it is to have; others are named in the log.

        Its checksum is checked when it is read.
        """
        for saved in self.list():
            if saved.path in self._damaged:
                continue
            try:
                check_size(saved.path)
            except CheckpointError as error:
                logger.warning("%s: taking the one before it", error)
            else:
                return saved
        return None

    def newest_step(self) -> int | None:
        """Steps that the model of the newest state has seen, in memory or on disk."""
        self._ask()
        saved, kept = self.newest(), self._memory.newest_step()
        known = (saved.step if saved else None, kept, self._away)
        return max((step for step in known if step is not None), default=None)

    def _ask(self) -> None:
        """Ask object storage once what it has: a session that goes on knows what it has written."""
        if not self._asked and self._storage is not None:
            self._asked = True
            self._away = self._storage.newest_step()

    def _fetch(self, kept: int | None) -> None:
        """Have the newest checkpoint here if it is in object storage alone."""
        self._ask()
        step, self._away = self._away, None
        newest = self.newest()
        here = max((each for each in (newest.step if newest else None, kept) if each), default=-1)
        if self._storage is not None and step is not None and step > here:
            self._storage.fetch(step, self._files.path(step))

    def restore(self, *, lend: bool = False) -> Restored | None:
        """The newest state that is whole, out of memory if it is there, and else from disk.

        It is read once; what is damaged is named in the log and passed over.

        Args:
            lend: one in memory need not be copied, as its tensors are copied from at once.
        """
        kept = self._memory.newest_step()
        self._fetch(kept)
        while (saved := self.newest()) is not None or kept is not None:
            if kept is not None and (saved is None or kept >= saved.step):
                restored, kept = self._from_memory(lend=lend), None
                if restored is not None and (saved is None or restored.step >= saved.step):
                    return restored
                continue
            assert saved is not None
            try:
                return Restored(str(saved.path), saved.step, read(saved.path))
            except CheckpointError as error:
                logger.warning("%s: taking the one before it", error)
                self._damaged.add(saved.path)
        return None

    def _from_memory(self, *, lend: bool) -> Restored | None:
        found = self._memory.read(lend=lend)
        if found is None:
            return None
        snapshot, parts = found
        if snapshot.folder != str(
            self._files.folder.absolute()
        ):  # of another training of this pod's
            return None
        try:
            return Restored("memory", snapshot.step, assemble(snapshot.header, parts), lend)
        except StateError as error:
            logger.warning("a snapshot in memory is passed over: %s", error)
            return None
