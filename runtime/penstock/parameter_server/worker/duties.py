"""The duties of a chief, as its trainer orders them: to fill layouts, and to save the model.

Every worker has them and but one is asked for any. What became of them stands in `report`, to be
told to the trainer with every exchange until it orders something else.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from penstock.data.errors import DataError
from penstock.parameter_server.arrays import Floats
from penstock.parameter_server.connection import UnavailableError
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import WorkerReply
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFiles
from penstock.parameter_server.worker.chief import Filler, Save

logger = logging.getLogger(__name__)

SAVE_RETRY_SECONDS: Final = 5.0


class ChiefDuties:
    """See the module's docstring.

    Attributes:
        checkpoint: slots in the newest checkpoint; None: there is none.
        save_failure: why the newest save failed; empty: it did not.
    """

    def __init__(
        self, spec: ModelSpec, token: str, name: str, dense: Floats, files: ModelFiles | None
    ) -> None:
        """``dense``: the initial values, for a model that begins afresh.

        Raises:
            CheckpointError: the newest checkpoint is of another model or other data.
        """
        saved = files.newest() if files else None
        if files is not None and saved is not None:
            files.open(saved)  # of another model or other data: said at once
        self.checkpoint = saved.slots if saved else None
        self.save_failure = ""
        self._spec = spec
        self._token = token
        self._name = name
        self._files = files
        self._filler = Filler(spec, token, name, dense, files)
        self._filled = 0
        self._saved: int | None = None
        self._failed = ""
        self._saving: Save | None = None
        self._abandoned: Save | None = None  # the newest one that a disk has taken too long for
        self._save_failed = -SAVE_RETRY_SECONDS  # when

    @property
    def saving(self) -> bool:
        """Whether a save is under way, or has ended and was not yet looked at."""
        return self._saving is not None

    @property
    def save_ended(self) -> bool:
        """Whether a save has ended and was not yet looked at."""
        return self._saving is not None and self._saving.ended

    def report(self) -> dict[str, Any]:
        """Fields of a `WorkerReport`."""
        return {
            "checkpoint": self.checkpoint,
            "filled": self._filled,
            "read": self._saving.snapshot if self._saving and self._saving.read else None,
            "saved": self._saved,
            "failed": self._failed,
        }

    def carry_out(self, reply: WorkerReply) -> None:
        """Do what the trainer asks; a save goes on on a thread of its own."""
        if self._failed and reply.fill is None and reply.save is None:
            self._failed = ""  # what it failed at is not asked of it any more
        if reply.fill is not None and reply.fill.number != self._filled:
            self._fill(reply.fill, reply.fill_checkpoint)
        layout = reply.save_from.layout if reply.save_from is not None else reply.layout
        if reply.save is not None and layout is not None and self._files is not None:
            known = self._saving.snapshot if self._saving else self._saved
            tired = time.monotonic() - self._save_failed < SAVE_RETRY_SECONDS
            hurry = reply.save_from is not None and reply.save_from.training_waits
            if reply.save == known or tired:
                return
            if hurry and self._abandoned is not None and not self._abandoned.ended:
                self._failed = self._abandoned.failure  # the disk still hangs: not again
            else:
                self._failed = ""
                self._saving = Save(
                    self._spec,
                    self._token,
                    self._name,
                    self._files,
                    layout,
                    reply.save,
                    reply.save_from,
                )

    def _fill(self, layout: Layout, checkpoint: int | None) -> None:
        try:
            self._filler.fill(layout, checkpoint)
        except (DataError, UnavailableError, CheckpointError, OSError) as error:
            logger.warning("layout %d could not be filled: %s", layout.number, error)
            self._failed = str(error)[:4096] or repr(error)
        else:  # a snapshot of as many slots will be another one from now on
            self._filled, self._saved, self._failed = layout.number, None, ""
        newest = self._files.newest() if self._files else None
        self.checkpoint = newest.slots if newest else None

    def collect_save(self) -> None:
        """Note how a save went, once it has ended."""
        if self._saving is None:
            return
        if self._saving.is_stalled():
            self._saving.abandon()
            self._abandoned = self._saving
        elif not self._saving.ended:
            return
        save, self._saving = self._saving, None
        self.save_failure = self._failed = save.failure
        if save.failure:
            logger.warning("the model was not saved: %s", save.failure)
            self._save_failed = time.monotonic()
        else:
            self._saved, self.checkpoint = save.snapshot, save.slots

    def wait_until_read(self, seconds: float) -> bool:
        """Wait, at most so long, while servers stay frozen for a save; False: for none."""
        if self._saving is None or not self._saving.holds_up:
            return False
        self._saving.wait_until_read(seconds)
        return True

    def wait(self, seconds: float) -> None:
        """Wait for the end of a save that is under way, at most so long."""
        if self._saving is not None:
            self._saving.wait(seconds)

    def stop(self) -> None:
        """Give a save that is under way a moment to end, then leave it."""
        if self._saving is not None:
            self._saving.stop()
