"""Snapshots of a loop's own checkpoint: kept in the agent's memory, and given back as a file.

A loop's checkpoint is a folder or file in a form of its own, and that is what it can go on from. So
its content is what is kept, as plain data, every few steps; under ``penstock run`` it is there when
the process has been killed, and the process that is started again writes it down once more for its
loop. What has no plain form is named once, and nothing is kept: the loop's own checkpoints stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError
from penstock.trainer.group.state_codec import StateError
from penstock.trainer.snapshot.keeper import MEMORY
from penstock.trainer.snapshot.schedule import SaveSchedule
from penstock.trainer.stored_states import Restored

logger = logging.getLogger(__name__)


class LoopSnapshots:
    """The snapshots of one loop; used by its callback."""

    def __init__(self, folder: str | Path, every_steps: int) -> None:
        """``folder``: where the agent writes the newest one when the process has died.

        Raises:
            ValueError: ``every_steps`` is less than 1.
        """
        if every_steps < 1:
            raise ValueError(f"every_steps: {every_steps}; at least 1")
        self.folder = Path(folder)
        self._schedule = SaveSchedule(None, every_steps)
        self._states = CheckpointDir(self.folder, keep=1)
        self._last = -1
        self._refused = False
        if not os.environ.get(MEMORY):
            logger.info(
                "no snapshots are kept: `penstock run` without --nproc-per-node has memory for "
                "them; the loop's own checkpoints are all there is"
            )

    def is_due(self, step: int) -> bool:
        """Whether a snapshot is to be taken after this step; if so, `take` is called next."""
        if not os.environ.get(MEMORY) or self._refused or step == self._last:
            return False
        return bool(self._schedule.after(step, complete=False, has_place=self._states.has_place))

    def take(self, step: int, state: Any) -> None:
        """Keep a state as of a step: nothing of it changes the training, whatever goes wrong."""
        self._last = step
        try:
            self._states.save(step, state, to_disk=False)
        except (StateError, CheckpointError) as error:
            self._refused = True
            logger.warning("no snapshots are kept: %s; the loop's own checkpoints stay", error)

    def restore(self, newer_than: int) -> Restored | None:
        """The newest snapshot, if it has seen more steps than the loop's own checkpoints."""
        step = self._states.stored.newest_step()
        if step is None or step <= newer_than:
            return None
        restored = self._states.stored.restore()
        if restored is None or restored.step <= newer_than:
            return None
        logger.info("going on from the snapshot of step %d in %s", restored.step, restored.place)
        return restored

    def write(self, name: str, write: Callable[[Path], None]) -> Path | None:
        """Have ``write`` make a file or folder of the loop's own form; None: there is no room.

        What was written so for a process before this one goes first. Where the loop's folder takes
        nothing, a temporary one does.
        """
        kind = f"{name.rpartition('-')[0]}-*{Path(name).suffix}"
        for old in self.folder.glob(kind):
            _remove(old)
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
        except (OSError, RuntimeError) as error:  # a file of PyTorch's that ends raises the latter
            with contextlib.suppress(OSError):
                _remove(path)
            logger.warning("%s cannot be written: %s", path, error)
        else:
            return path
        try:
            path = Path(tempfile.mkdtemp(prefix="penstock-snapshot-")) / name
            write(path)
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                _remove(path.parent)
            logger.warning(
                "nor is there room for temporary files: %s; the loop's own checkpoints are all "
                "there is",
                error,
            )
            return None
        logger.warning("the snapshot is in %s instead", path)
        return path

    def close(self) -> None:
        """The loop has ended well: leave the agent's memory."""
        self._states.abandon(1.0)
        self._states.close()


def _remove(path: Path) -> None:
    """A file, or a folder with all that is in it; it may be gone."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
