"""Which samples each step of a job holds: a pure function of (seed, epoch, step).

A job's work is counted in *slots*. A slot is one micro-batch of one step; a step has the same
number of slots for the whole job, whatever the number of workers. So no worker, and no number of
workers, changes what a step trains on: it only changes who computes which slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.permutation import Permutation, derive_seed

MAX_GLOBAL_BATCH: Final = 1 << 24


class Slot(NamedTuple):
    """One micro-batch: ``micro`` of ``step`` (within the epoch) of ``epoch``; all from 0."""

    epoch: int
    step: int
    micro: int


@dataclass(frozen=True)
class SampleOrder:
    """The order of a job's samples over its epochs.

    The last step of an epoch holds the rest: fewer samples, in as many slots (some may be empty).
    """

    dataset_size: int
    global_batch: int
    slots_per_step: int
    epochs: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("dataset_size", "global_batch", "slots_per_step", "epochs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r}; it must be an integer of at least 1")
        if self.global_batch > MAX_GLOBAL_BATCH:
            raise ValueError(f"global_batch: {self.global_batch}; at most {MAX_GLOBAL_BATCH}")
        if self.slots_per_step > self.global_batch:
            raise ValueError(
                f"slots_per_step: {self.slots_per_step}; at most global_batch, which is "
                f"{self.global_batch}: a slot holds at least one sample of a full step"
            )

    @cached_property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch, the last of which may be smaller."""
        return -(-self.dataset_size // self.global_batch)

    @cached_property
    def total_steps(self) -> int:
        """Steps of the whole job."""
        return self.steps_per_epoch * self.epochs

    @cached_property
    def total_slots(self) -> int:
        """Slots of the whole job."""
        return self.total_steps * self.slots_per_step

    @property
    def samples_per_step(self) -> float:
        """Mean over an epoch's steps: the last one may be smaller."""
        return self.dataset_size / self.steps_per_epoch

    def slot(self, number: int) -> Slot:
        """The slot with this number, counted over all epochs."""
        step, micro = divmod(number, self.slots_per_step)
        return Slot(step // self.steps_per_epoch, step % self.steps_per_epoch, micro)

    def step_size(self, step: int) -> int:
        """Samples in a step of an epoch."""
        start = step * self.global_batch
        return min(self.global_batch, self.dataset_size - start)

    def positions(self, slot: Slot) -> tuple[int, int]:
        """The half-open range of positions, in the epoch's order, that the slot holds."""
        size = self.step_size(slot.step)
        start = slot.step * self.global_batch
        return (
            start + size * slot.micro // self.slots_per_step,
            start + size * (slot.micro + 1) // self.slots_per_step,
        )

    def samples(self, slot: Slot) -> NDArray[np.int64]:
        """The indices of the slot's samples: int64 of shape ``(samples of the slot,)``."""
        start, stop = self.positions(slot)
        if not self.shuffle:
            return np.arange(start, stop, dtype=np.int64)
        return self._permutation(slot.epoch).take(start, stop)

    def step_samples(self, epoch: int, step: int) -> NDArray[np.int64]:
        """The indices of all samples of a step: int64 of shape ``(step_size(step),)``.

        Slot by slot this is what `samples` gives, in one call instead of many.
        """
        start = step * self.global_batch
        stop = start + self.step_size(step)
        if not self.shuffle:
            return np.arange(start, stop, dtype=np.int64)
        return self._permutation(epoch).take(start, stop)

    def _permutation(self, epoch: int) -> Permutation:
        return Permutation(self.dataset_size, derive_seed(self.seed, epoch))
