"""One step of training as a script sees it: its micro-batches, and its commit.

A step knows its samples and which of its slots are this worker's; what a commit means is the
session's. Slots in quarantine hold no samples for anybody, and the weights of the others make up
for them: the update is the mean over the samples that are left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from penstock.data.ledger import SampleOrder, Slot, derive_seed
from penstock.trainer.group.division import WHOLE, Division
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.step_slots import filled_slots


class Committer(Protocol):
    """The session that a step belongs to."""

    order: SampleOrder

    @property
    def interrupted(self) -> bool:
        """Whether the step that is being computed cannot be committed any more."""

    def skips(self, slot: int) -> bool:
        """Whether a slot, counted over all epochs, is in quarantine."""

    def commit(self, step: Step, seconds: float, /) -> bool:
        """Carry out `Step.commit`."""


class MicroBatch:
    """One slot of a step: some samples whose gradients this worker computes."""

    def __init__(
        self,
        slot: Slot,
        indices: np.ndarray[Any, np.dtype[np.int64]],
        weight: float,
        *,
        counted: int | None = None,
        parts: int = 1,
    ):
        self.slot = slot
        self.indices = torch.from_numpy(indices)
        """The samples: int64 of shape ``(samples of the slot,)``; in a replica group this process's
        part of them."""
        self.weight = weight
        """Samples of the slot as a part of the step's."""
        self._counted = len(indices) if counted is None else counted
        self._parts = parts
        self.loss: torch.Tensor | None = None
        """The mean loss that the script gave, detached; None until it did."""

    def __len__(self) -> int:
        return len(self.indices)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The micro-batch's mean loss as its part of the step's: call ``backward`` on it, once.

        Raises SessionError at a second call: the gradients of the slot would count twice.
        """
        if self.loss is not None:
            raise SessionError(
                f"slot {self.slot.micro} of step {self.slot.step} in epoch {self.slot.epoch} was "
                "computed already: call micro.backward (or micro.scale) once for each micro-batch, "
                "with the mean loss over all its samples"
            )
        self.loss = loss.detach()
        # A sharded model's layers take the mean of gradients over the parts, where a sum is meant.
        return loss * (self.weight * self._parts)

    @property
    def consumed(self) -> bytes:
        """The samples that count as this process's: their indices as int64."""
        return self.indices[: self._counted].numpy().tobytes()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of the micro-batch's mean loss to the step's; `scale` says when not."""
        # PyTorch leaves backward untyped.
        self.scale(loss).backward()  # type: ignore[no-untyped-call]


class Step:
    """One step of training: iterate over its micro-batches, then `commit`."""

    def __init__(
        self, session: Committer, number: int, slots: range, division: Division = WHOLE
    ) -> None:
        self._session = session
        self._division = division
        self.slots = slots
        """Those of the step that are this worker's, whether or not they hold samples."""
        self._began = time.perf_counter()
        self.number = number
        """The step, counted over all epochs, from 0."""
        self.epoch, self.in_epoch = divmod(number, session.order.steps_per_epoch)
        self.samples = session.order.step_samples(self.epoch, self.in_epoch)
        """The samples of the whole step: int64 of shape ``(samples of the step,)``."""
        self.micros: list[MicroBatch] = []
        self.working_on: int | None = None
        """The slot, counted over all epochs, that the script is computing now."""
        self.closed = False

    def __iter__(self) -> Iterator[MicroBatch]:
        order = self._session.order
        total = sum(size for _, size in self._filled)
        first = self.in_epoch * order.global_batch
        for micro, size in self._filled:
            if micro not in self.slots:
                continue
            if self._session.interrupted:
                return  # a step that cannot be committed is not worth finishing
            slot = Slot(self.epoch, self.in_epoch, micro)
            start = order.positions(slot)[0] - first
            cut, division = self._division.cut(size), self._division
            batch = MicroBatch(
                slot,
                self.samples[start + cut.start : start + cut.stop],
                cut.counted / total,
                counted=cut.counted,
                parts=division.parts,
            )
            self.micros.append(batch)
            part = (division.part,) if division.part else ()
            torch.manual_seed(derive_seed(order.seed, self.number, micro, *part))
            self.working_on = self._number_of(micro)
            yield batch
            self.working_on = None

    @property
    def filled_slots(self) -> list[int]:
        """The slots of the whole step, over all workers, that hold samples to train on."""
        return [micro for micro, _ in self._filled]

    def losses(self) -> dict[int, float]:
        """This worker's losses by slot, each weighed: over all workers they add up to the mean."""
        return {
            micro.slot.micro: float(micro.loss) * micro.weight
            for micro in self.micros
            if micro.loss is not None
        }

    @cached_property
    def _filled(self) -> list[tuple[int, int]]:
        return filled_slots(self._session.order, self.number, self._session.skips)

    def _number_of(self, micro: int) -> int:
        return self.number * self._session.order.slots_per_step + micro

    def commit(self) -> bool:
        """Sum the gradients over all workers and take the optimizer's step.

        False when the step could not be finished because the group broke: the loop then goes on
        with the same step in a new group, and nothing of this one counts.
        """
        if self.closed:
            raise SessionError(f"step {self.number} was committed already")
        missed = [micro.slot.micro for micro in self.micros if micro.loss is None]
        left = sum(micro in self.slots for micro in self.filled_slots) - len(self.micros)
        if left and not self._session.interrupted:
            raise SessionError(
                f"step {self.number}: {left} of its micro-batches were not taken: iterate over the "
                "whole step before step.commit()"
            )
        if missed:
            raise SessionError(
                f"step {self.number}: micro-batches {missed} were not trained on: call "
                "micro.backward(loss) for each of them before step.commit()"
            )
        self.closed = True
        self.working_on = None
        seconds = time.perf_counter() - self._began
        return self._session.commit(self, seconds)
