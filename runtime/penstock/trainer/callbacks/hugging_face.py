"""Snapshots for Hugging Face's Trainer.

    from penstock.trainer.callbacks.hugging_face import Snapshots

    snapshots = Snapshots("out", every_steps=20)
    trainer = Trainer(..., args=TrainingArguments(output_dir="out", ...), callbacks=[snapshots])
    trainer.train(resume_from_checkpoint=snapshots.resume())

Every so many steps model, optimizer, schedule, random numbers and the Trainer's own state are
copied to the memory of `penstock run`'s agent. `resume` gives the newest of these and of the
Trainer's own checkpoints as a folder that the Trainer goes on from, and None where there is none.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import random
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers.trainer_callback import TrainerCallback

from penstock.trainer.callbacks.loop_snapshots import LoopSnapshots

logger = logging.getLogger(__name__)

_FOLDER: Final = "snapshots"
_LAST_FILE: Final = "trainer_state.json"
"""Of a checkpoint: what the Trainer writes when all else of it is there."""


class Snapshots(TrainerCallback):
    """A callback of the Trainer; see the module's docstring."""

    def __init__(self, output_dir: str | Path, every_steps: int = 20) -> None:
        """``output_dir``: the Trainer's. Raises ValueError: ``every_steps`` is less than 1."""
        self._output = Path(output_dir)
        self._snapshots = LoopSnapshots(self._output / _FOLDER, every_steps)

    def resume(self) -> str | None:
        """A folder for ``resume_from_checkpoint``; None: there is nothing to go on from.

        A checkpoint that the Trainer did not finish is passed over for the one before it.
        """
        done, own = _newest_whole(self._output)
        restored = self._snapshots.restore(done)
        if restored is None:
            return own
        state = restored.state

        def write(folder: Path) -> None:
            folder.mkdir()
            torch.save(state["model"], folder / "pytorch_model.bin")
            torch.save(state["optimizer"], folder / "optimizer.pt")
            torch.save(state["scheduler"], folder / "scheduler.pt")
            torch.save(_random_of(state["random"]), folder / "rng_state.pth")
            (folder / _LAST_FILE).write_text(state["trainer"], encoding="utf-8")

        folder = self._snapshots.write(f"checkpoint-{restored.step}", write)
        return own if folder is None else str(folder)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Called by the Trainer."""
        if not self._snapshots.is_due(state.global_step):
            return
        self._snapshots.take(
            state.global_step,
            {
                "model": dict(parts["model"].state_dict()),
                "optimizer": parts["optimizer"].state_dict(),
                "scheduler": parts["lr_scheduler"].state_dict(),
                "random": _random(),
                "trainer": json.dumps(dataclasses.asdict(state)),
            },
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Called by the Trainer."""
        self._snapshots.close()


def _newest_whole(output: Path) -> tuple[int, str | None]:
    """The Trainer's newest checkpoint that it had time to finish: its step, and its folder."""
    found = [
        (int(path.name.removeprefix("checkpoint-")), path)
        for path in output.glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdigit()
    ]
    for step, path in sorted(found, reverse=True):
        try:
            json.loads((path / _LAST_FILE).read_bytes())
        except (OSError, ValueError) as error:
            logger.warning("%s is not whole, and is passed over: %s", path, error)
        else:
            return step, str(path)
    return -1, None


def _random() -> dict[str, Any]:
    """The states of all generators, as plain data."""
    kind, keys, *rest = np.random.get_state()
    found = {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys, np.int64), *rest),
        "cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def _random_of(said: dict[str, Any]) -> dict[str, Any]:
    kind, keys, *rest = said["numpy"]
    return {**said, "numpy": (kind, np.asarray(keys, np.uint32), *rest)}
