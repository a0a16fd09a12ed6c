"""Hugging Face's Trainer: which epoch and step it goes on with in another world.

It derives both from the number of optimizer steps so far, divided by those that an epoch has *now*,
and passes over as many batches of the present world. Where its checkpoint says what was left of an
epoch, that says where it goes on. The number of steps stays what it is, since checkpoints are named
and sorted by it; how many there are in all follows from what is left, unless ``max_steps`` says it.
With ``ignore_data_skip`` epochs begin anew.
"""

from __future__ import annotations

import functools
import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any, Final

from penstock.trainer.follow.follower import KEY, Counting, entries_of, installed, of_text
from penstock.trainer.follow.orders import Source, source_of

_OPTIMIZER: Final = "optimizer.pt"
_SHARDS: Final = "optimizer_0"
"""The folder in its place where FSDP's checkpoints are sharded."""


def install(module: Any) -> None:
    """``transformers.trainer`` has been imported."""
    trainer = module.Trainer
    values, begin = trainer.set_initial_training_values, trainer._init_training_state
    prepare = trainer._prepare_for_training
    sources: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()

    @functools.wraps(values)
    def set_initial_training_values(self: Any, args: Any, dataloader: Any) -> Any:
        source = source_of(dataloader)
        if isinstance(source, Source):
            sources[self] = source
        return values(self, args, dataloader)

    @functools.wraps(begin)
    def init_training_state(
        self: Any, max_steps: Any, updates: Any, epochs: Any, checkpoint: Any, trial: Any
    ) -> Any:
        begun = begin(self, max_steps, updates, epochs, checkpoint, trial)
        if checkpoint is None or self not in sources:
            return begun
        return _place(self, begun, updates, Path(checkpoint), sources[self])

    @functools.wraps(prepare)
    def prepare_for_training(self: Any, max_steps: Any, *rest: Any) -> Any:
        return prepare(self, self.state.max_steps or max_steps, *rest)

    trainer._prepare_for_training = prepare_for_training
    trainer.set_initial_training_values = set_initial_training_values
    trainer._init_training_state = init_training_state


def _place(
    trainer: Any, begun: tuple[int, int], updates: int, checkpoint: Path, source: Source
) -> tuple[int, int]:
    """Epoch, and batches of it to be taken for done."""
    follower, saved = installed(), _saved(checkpoint)
    if follower is None or follower.has_trained or saved is None:
        return begun
    if trainer.args.ignore_data_skip:
        follower.ignore_next_load()
        return begun
    epoch = trainer.state.epoch
    try:
        entries = entries_of(saved)
    except (KeyError, TypeError, ValueError):  # the follower says so when the optimizer is loaded
        return begun
    mine = next((one for one in entries if one.fits(source, trusted=False) or not one.todo), None)
    if mine is None or epoch is None:
        return begun
    accumulation = trainer.args.gradient_accumulation_steps
    counting = Counting(accumulation)
    follower.count_on(counting)
    if not mine.todo:
        done, passed = round(epoch), 0
    else:
        done, passed = int(epoch), counting.of(mine, source)
    state, passed_steps = trainer.state, passed // accumulation
    if trainer.args.max_steps > 0:  # epochs are only so many that these steps have room in them
        done = max(0, min(done, (state.global_step - passed_steps) // updates))
    else:
        state.max_steps += state.global_step - done * updates - passed_steps
    return done, passed


def _saved(checkpoint: Path) -> Any:
    """What a checkpoint says of loaders, without reading the rest of it."""
    import torch

    if (checkpoint / _SHARDS / ".metadata").exists():
        try:
            return _saved_in_shards(checkpoint / _SHARDS)
        except Exception:  # noqa: BLE001  what is wrong with it is said when it is loaded
            return None
    path = checkpoint / _OPTIMIZER
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError):
        return None
    return state.get(KEY) if isinstance(state, dict) else None


def _saved_in_shards(folder: Path) -> Any:
    """The same of a sharded checkpoint, read by this process alone."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    there = FileSystemReader(folder).read_metadata().state_dict_metadata
    name = next((one for one in there if one.rpartition(".")[2] == KEY), None)
    if name is None:
        return None
    read: dict[str, Any] = {name: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it reads alone
        load(read, checkpoint_id=folder, no_dist=True)
    return of_text(read[name])
