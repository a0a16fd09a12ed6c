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

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from penstock.trainer.callbacks.loop_snapshots import LoopSnapshots


class Snapshots(Callback):
    """A callback of the Trainer; see the module's docstring."""

    def __init__(self, folder: str | Path, every_steps: int = 20) -> None:
        """``folder``: for what is written of snapshots. Raises ValueError: ``every_steps`` < 1."""
        self._snapshots = LoopSnapshots(Path(folder) / "snapshots", every_steps)

    def resume(self, own: str | Path | None = None) -> str | None:
        """A file for ``ckpt_path``; None: there is nothing to go on from.

        Args:
            own: a checkpoint that Lightning has written.
        """
        done = -1
        if own is not None:
            done = int(torch.load(own, map_location="cpu", weights_only=False)["global_step"])
        restored = self._snapshots.restore(done)
        if restored is None:
            return None if own is None else str(own)
        path = self._snapshots.folder / f"step-{restored.step}.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(restored.state, path)
        return str(path)

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
