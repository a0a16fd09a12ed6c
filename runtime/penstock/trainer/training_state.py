"""What the steps of a training change: model, optimizer, position and sample counts, as one thing.

It is saved, sent to newcomers and taken over as a whole or not at all, so that the counts always
belong to the model beside them: a model that goes back takes its history back with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final, Protocol

import torch

from penstock.job.protocol import DataSpec
from penstock.job.storage import BEGIN_ANEW
from penstock.trainer.audit import Audit
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError, read
from penstock.trainer.group.group_channels import RestoreError, SessionError
from penstock.trainer.group.sharding import Sharding
from penstock.trainer.group.state_codec import (
    PackedState,
    StateError,
    assemble,
    copy_of,
    lend,
)
from penstock.trainer.stored_states import Restored, Saved

logger = logging.getLogger(__name__)

_SHOWN: Final = 500
"""Characters of what PyTorch says of a state that does not fit: it lists every parameter."""


_MODEL: Final = "model"
_THEIRS: Final = "the state to take over"
_OF_ANOTHER: Final = (
    RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, StateError
)  # fmt: skip
"""What `load_state_dict` raises where a state is of another kind of object."""


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
        self,
        holders: Mapping[str, Stateful],
        data: DataSpec,
        checkpoints: CheckpointDir | None,
        sharding: Sharding | None = None,
    ) -> None:
        """``sharding``: of a model of which this process holds a part, as of its state."""
        self._sharding = sharding
        self._chosen: Saved | None = None
        self._holders = holders
        self._data = data
        self._checkpoints = checkpoints
        # What a state takes while it is taken up is no step's, and leaves room for copies again.
        self._passing = nullcontext if checkpoints is None else checkpoints.room.passing
        self.audit = Audit(data.dataset_size)
        self.committed: int | None = None
        """Steps that the model has seen; None before it is known where to begin."""

    def export_state(self) -> PackedState:
        """The whole state, as of the last committed step: no copies, of which there is one less."""
        return lend(self._whole())

    def import_state(self, header: bytes, parts: list[torch.Tensor]) -> None:
        """Take over the state of another member: what it was received as, and is left empty."""
        with self._passing():
            state = assemble(header, parts)
            parts.clear()
            self._load(state)

    def restore_checkpoint(self, step: int) -> None:
        """Load the newest state that is whole, out of the agent's memory or from disk.

        Raises:
            RestoreError: it is not of that step: the one that was announced is damaged or gone.
        """
        with self._passing():
            restored = self._restored()
            if restored is None or restored.step != step:
                raise RestoreError(step, restored.step if restored else None)
            self._take_up(restored)
            del restored  # and so its memory

    @property
    def newest_step(self) -> int | None:
        """Steps that the model of the newest state has seen; None where there is none.

        Of a sharded model that which all processes of the replica group have: see `choose`.
        """
        if self._sharding is not None:
            return None if self._chosen is None else self._chosen.step
        return None if self._checkpoints is None else self._checkpoints.stored.newest_step()

    def _restored(self) -> Restored | None:
        """That state, read."""
        if self._sharding is None:
            known = self._checkpoints
            return None if known is None else known.stored.restore(lend=True)
        if (chosen := self._chosen) is None:
            return None
        return Restored(str(chosen.path), chosen.step, read(chosen.path))

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is one to begin with."""
        return self.newest_step is not None

    def saved_steps(self) -> list[int]:
        """The steps of all checkpoints, by name: they may be damaged."""
        return [] if self._checkpoints is None else [each.step for each in self._checkpoints.list()]

    def is_whole(self, step: int) -> bool:
        """Whether the checkpoint of a step can be read; why not is said in the log."""
        try:
            return (saved := self._saved(step)) is not None and bool(read(saved.path))
        except CheckpointError as error:
            logger.warning("%s: taking the one before it", error)
            return False

    def choose(self, step: int | None) -> None:
        """Begin with the checkpoint of this step of a sharded model; None: with none."""
        self._chosen = None if step is None else self._saved(step)

    def _saved(self, step: int) -> Saved | None:
        known = () if self._checkpoints is None else self._checkpoints.list()
        return next((each for each in known if each.step == step), None)

    def begin(self) -> None:
        """Begin alone: at the newest state that is whole, or at the first step."""
        with self._passing():
            restored = self._restored()
            if restored is None:
                self.committed = 0
            else:
                self._take_up(restored)
            del restored  # and so its memory

    def _take_up(self, restored: Restored) -> None:
        written, other = _release(restored.state.get("torch", "")), ""
        here = _release(torch.__version__)
        if written not in ("", here):
            state = f"the state of step {restored.step} from {restored.place}"
            other = f"{state} was written with PyTorch {written}, and this is {here}"
            logger.warning("%s", other)
        try:
            self._load(restored.state, lent=restored.lent)
        except SessionError as error:
            raise SessionError(f"{error}; {other}" if other else str(error)) from error
        logger.info("took up the state of step %d from %s", restored.step, restored.place)

    def save(self, *, to_disk: bool = True, last: bool = False) -> None:
        """Have a checkpoint written, if there is a folder for it; or kept in memory alone.

        ``last``: the model is trained, and what was saved is waited for next.
        """
        if self._checkpoints is not None and self.committed is not None:
            self._checkpoints.save(self.committed, self._whole(), to_disk=to_disk, last=last)

    def _whole(self) -> dict[str, Any]:
        return {
            "data": self._data.model_dump(),
            "step": self.committed or 0,
            "audit": self.audit.state_dict(),
            "holders": {name: self._state_of(each) for name, each in self._holders.items()},
            "kinds": self._kinds(),
            "torch": _release(torch.__version__),
        }

    def _kinds(self) -> dict[str, str]:
        """The classes of PyTorch's own among all but the model.

        Names and shapes of parameters tell models apart; a program may rename its own classes.
        """
        kinds = {name: type(each) for name, each in self._holders.items() if name != _MODEL}
        return {
            name: kind.__qualname__
            for name, kind in kinds.items()
            if kind.__module__.startswith("torch.")
        }

    def _state_of(self, holder: Stateful) -> Any:
        state = holder.state_dict()
        return state if self._sharding is None else self._sharding.take_apart(state)

    def _load(self, state: dict[str, Any], *, lent: bool = False) -> None:
        """Take a state over, holder by holder: what one has taken over is given back for the next.

        ``lent``: its tensors stay somebody else's; what a holder keeps of them are copies.
        """
        theirs = DataSpec.model_validate(state["data"])
        for name in DataSpec.model_fields:
            value, other = getattr(self._data, name), getattr(theirs, name)
            if name != "slots_per_step" and other != value:
                raise SessionError(
                    f"{name}: {value or 'none'}; {_THEIRS} has {other or 'none'}: {BEGIN_ANEW}"
                )
        theirs_of = state.get("kinds", {})
        for name, kind in self._kinds().items():
            if theirs_of.get(name, kind) != kind:
                raise SessionError(
                    f"{name}: {kind}; {_THEIRS} is one of {theirs_of[name]}: {BEGIN_ANEW}"
                )
        for name in state["holders"].keys() - self._holders.keys():
            logger.warning("%s: the state to take over has it, and this program does not", name)
        for name, holder in self._holders.items():
            if name not in state["holders"]:
                raise SessionError(f"extra.{name}: the state to take over does not have it")
            part = state["holders"].pop(name)
            self._load_holder(name, holder, copy_of(part) if lent and _keeps(holder) else part)
            del part
        self.audit.load_state_dict(copy_of(state["audit"]) if lent else state["audit"])
        self.committed = int(state["step"])

    def _load_holder(self, name: str, holder: Stateful, state: Any) -> None:
        """Raises SessionError: the state is another model's or optimizer's; says what differs."""
        try:
            if self._sharding is not None:
                state = self._sharding.put_together(state, name)
            holder.load_state_dict(state)
        except _OF_ANOTHER as error:
            if "out of memory" in str(error):
                raise
            what = " ".join(str(error).split())
            raise SessionError(
                f"{name}: {_THEIRS} is of another one: {what[:_SHOWN]}; {BEGIN_ANEW}"
            ) from error


def _keeps(holder: Stateful) -> bool:
    """Whether a holder may keep tensors that it loads; PyTorch's modules copy what is in them."""
    return getattr(type(holder), "load_state_dict", None) is not torch.nn.Module.load_state_dict


def _release(version: str) -> str:
    """Without the build of that release, which is another for each kind of device."""
    return str(version).partition("+")[0]
