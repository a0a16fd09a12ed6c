"""Snapshots for Lightning's Trainer.

    from penstock.trainer.callbacks.lightning import Snapshots

    snapshots = Snapshots("out", every_steps=20)
    trainer = lightning.Trainer(..., callbacks=[snapshots])
    trainer.fit(module, loader, ckpt_path=snapshots.resume())

Every so many steps what Lightning would write to a checkpoint is copied to the memory of
`penstock run`'s agent. `resume` gives the newest as a file that Lightning goes on from, and None
where there is none; pass it the path of a checkpoint of your own for when that is newer.
"""

from __future__ import annotations

import logging
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from penstock.trainer.callbacks.loop_snapshots import LoopSnapshots

logger = logging.getLogger(__name__)


class Snapshots(Callback):
    """A callback of the Trainer; see the module's docstring."""

    def __init__(self, folder: str | Path, every_steps: int = 20) -> None:
        """``folder``: for what is written of snapshots. Raises ValueError: ``every_steps`` < 1."""
        self._snapshots = LoopSnapshots(Path(folder) / "snapshots", every_steps)

    def resume(self, own: str | Path | None = None) -> str | None:
        """A file for ``ckpt_path``; None: there is nothing to go on from.

        Args:
            own: a checkpoint that Lightning has written. One that it did not finish is passed over
                for the newest of the others beside it.

        Raises:
            FileNotFoundError: there is no such file.
        """
        done, whole = (-1, None) if own is None else _newest_whole(Path(own))
        restored = self._snapshots.restore(done)
        if restored is None:
            return whole
        state = restored.state
        path = self._snapshots.write(f"step-{restored.step}.ckpt", partial(torch.save, state))
        return whole if path is None else str(path)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Called by Lightning."""
        step = int(trainer.global_step)
        if self._snapshots.is_due(step):
            connector = trainer._checkpoint_connector
            self._snapshots.take(step, connector.dump_checkpoint(weights_only=False))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._snapshots.close()


def _newest_whole(own: Path) -> tuple[int, str | None]:
    """The step and the path of a checkpoint, or of the newest beside it if that is damaged."""
    own.stat()
    others = [path for path in own.parent.glob("*.ckpt") if path.name != own.name]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (own, *others):
        try:
            state = torch.load(path, map_location="cpu", weights_only=False)
            return int(state["global_step"]), str(path)
        except (OSError, EOFError, RuntimeError, KeyError, pickle.UnpicklingError) as error:
            logger.warning("%s is not whole, and is passed over: %s", path, error)
    return -1, None
