"""Lightning's Trainer: how many batches of its epoch are done when it goes on in another world.

It goes on with the number of batches that its checkpoint counted, in the world of then, and has the
loader begin anew. Where the checkpoint says what was left of the epoch, the number is that of the
present world. `limit_train_batches` makes epochs of other lengths: those begin as Lightning has it.
"""

from __future__ import annotations

import functools
from typing import Any

from penstock.trainer.follow.follower import Counting, Follower, installed


def install_fit_loop(module: Any) -> None:
    """``lightning.pytorch.loops.fit_loop`` has been imported."""
    loop = module._FitLoop
    plain = loop.setup_data

    @functools.wraps(plain)
    def setup_data(self: Any) -> Any:
        follower = installed()
        if follower is not None and self.restarting and self._combined_loader is None:
            if self.trainer.limit_train_batches == 1.0:
                follower.count_on(Counting(self.trainer.accumulate_grad_batches))
            else:
                follower.discard()
        return plain(self)

    loop.setup_data = setup_data


def install_epoch_loop(module: Any) -> None:
    """``lightning.pytorch.loops.training_epoch_loop`` has been imported."""
    loop = module._TrainingEpochLoop
    plain = loop.reset

    @functools.wraps(plain)
    def reset(self: Any) -> Any:
        follower = installed()
        if follower is not None and self.restarting:
            _place(self, follower)
        return plain(self)

    loop.reset = reset


def _place(loop: Any, follower: Follower) -> None:
    """Have a loop find itself where the rest of its epoch begins."""
    combined = loop.trainer.fit_loop._combined_loader
    loaders = [] if combined is None else combined.flattened
    if len(loaders) != 1:
        return
    progress = loop.batch_progress
    passed = follower.passed(loaders[0])
    if progress.is_last_batch:  # nothing was left, which it tells by the number
        passed = loop.trainer.num_training_batches
    if passed is None:
        return
    current = progress.current
    current.ready = current.started = current.processed = passed
    current.completed = passed - int(loop.restarted_on_train_batch_end)
