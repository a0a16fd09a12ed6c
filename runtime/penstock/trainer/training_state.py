"""What the steps of a training change: model, optimizer, position and sample counts, as one thing.

It is saved, sent to newcomers and taken over as a whole or not at all, so that the counts always
belong to the model beside them: a model that goes back takes its history back with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from penstock.job.protocol import DataSpec
from penstock.trainer.audit import Audit
from penstock.trainer.checkpoint import CheckpointDir, read
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.state_codec import PackedState, pack, unpack

logger = logging.getLogger(__name__)


class Stateful(Protocol):
    """Anything whose state is saved and taken over with the model's: a scheduler, a scaler."""

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take over a state."""


class Scheduler(Stateful, Protocol):
    """A schedule of the learning rate, as torch.optim.lr_scheduler has them."""

    def step(self) -> None:
        """Go on by one step."""


class TrainingState:
    """The state of one worker, equal on all members of a group between two steps."""

    def __init__(
        self, holders: Mapping[str, Stateful], data: DataSpec, checkpoints: CheckpointDir | None
    ) -> None:
        self._holders = holders
        self._data = data
        self._checkpoints = checkpoints
        self.audit = Audit(data.dataset_size)
        self.committed: int | None = None
        """Steps that the model has seen; None before it is known where to begin."""

    def export_state(self) -> PackedState:
        """The whole state, as of the last committed step: copies."""
        return pack(self._whole())

    def import_state(self, header: bytes, flat: torch.Tensor) -> None:
        """Take over the state of another member."""
        self._load(unpack(header, flat))

    def restore_checkpoint(self) -> None:
        """Load the newest checkpoint that is whole."""
        saved = self._checkpoints.newest() if self._checkpoints else None
        if saved is None:
            raise SessionError("the checkpoint that was announced is gone")
        self._load(read(saved.path))
        logger.info("took up the checkpoint %s", saved.path)

    def begin(self) -> None:
        """Begin alone: at the newest checkpoint, or at the first step."""
        if self._checkpoints is not None and self._checkpoints.newest() is not None:
            self.restore_checkpoint()
        else:
            self.committed = 0

    def save(self) -> None:
        """Have a checkpoint written, if there is a folder for it."""
        if self._checkpoints is not None and self.committed is not None:
            self._checkpoints.save(self.committed, self._whole())

    def _whole(self) -> dict[str, Any]:
        return {
            "data": self._data.model_dump(),
            "step": self.committed or 0,
            "audit": self.audit.state_dict(),
            "holders": {name: holder.state_dict() for name, holder in self._holders.items()},
        }

    def _load(self, state: dict[str, Any]) -> None:
        theirs = DataSpec.model_validate(state["data"])
        for name in DataSpec.model_fields:
            value, other = getattr(self._data, name), getattr(theirs, name)
            if name != "slots_per_step" and other != value:
                raise SessionError(
                    f"{name}: {value or 'none'}; the state to take over has {other or 'none'}: "
                    "delete the old checkpoints to begin anew"
                )
        for name, holder in self._holders.items():
            if name not in state["holders"]:
                raise SessionError(f"extra.{name}: the state to take over does not have it")
            holder.load_state_dict(state["holders"][name])
        self.audit.load_state_dict(state["audit"])
        self.committed = int(state["step"])
