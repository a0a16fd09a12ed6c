"""Counts, sample by sample, what the model that survives was trained on.

The counts travel with the model: they are part of its checkpoints, a member that takes over another
member's model takes over its counts, and they change only when a step's gradients were applied. So
"lost" and "repeated" are measured on the history of the surviving model, not derived from a plan.
What is counted are the samples that the training loop was handed and ran its backward pass on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.job.protocol import EpochAudit

MAX_COUNTED_SAMPLES: Final = 1 << 26
"""Above this the counts are kept per block of neighbouring samples: what is lost or repeated is
then a lower bound (a loss and a repetition within one block cancel out)."""

MAX_KEPT_EPOCHS: Final = 256


class Audit:
    """The counts of one model."""

    def __init__(self, dataset_size: int) -> None:
        self._size = dataset_size
        self._block = -(-dataset_size // MAX_COUNTED_SAMPLES)
        blocks = -(-dataset_size // self._block)
        self._counts: NDArray[np.int32] = np.zeros(blocks, dtype=np.int32)
        self._epoch = 0
        self._seen = self._lost = self._repeated = 0
        self._closed: dict[int, EpochAudit] = {}

    def consume(self, epoch: int, samples: NDArray[np.int64]) -> None:
        """The model was trained on these samples, in this epoch."""
        if epoch != self._epoch:
            self._close_epoch()
            self._epoch = epoch
        np.add.at(self._counts, samples // self._block, 1)

    def finish(self) -> None:
        """The job's last step is done: close its last epoch."""
        self._close_epoch()

    @property
    def closed(self) -> list[EpochAudit]:
        """The newest closed epochs, oldest first."""
        return list(self._closed.values())

    def totals(self) -> dict[str, int]:
        """The sums over all closed epochs."""
        return {
            "samples_seen": self._seen,
            "samples_lost": self._lost,
            "samples_repeated": self._repeated,
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts as plain data and one array."""
        return {
            "counts": self._counts.copy(),
            "epoch": self._epoch,
            "totals": self.totals(),
            "closed": [audit.model_dump() for audit in self._closed.values()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the counts of another model."""
        counts = np.asarray(state["counts"], dtype=np.int32)
        if counts.shape != self._counts.shape:
            raise ValueError(f"counts: {counts.shape}; this dataset needs {self._counts.shape}")
        self._counts = counts.copy()
        self._epoch = int(state["epoch"])
        self._seen = int(state["totals"]["samples_seen"])
        self._lost = int(state["totals"]["samples_lost"])
        self._repeated = int(state["totals"]["samples_repeated"])
        audits = [EpochAudit.model_validate(audit) for audit in state["closed"]]
        self._closed = {audit.epoch: audit for audit in audits}

    def _close_epoch(self) -> None:
        if self._epoch in self._closed:
            return
        expected = np.full(self._counts.shape, self._block, dtype=np.int64)
        expected[-1] = self._size - self._block * (len(expected) - 1)
        difference = self._counts.astype(np.int64) - expected
        audit = EpochAudit(
            epoch=self._epoch,
            samples_seen=int(self._counts.sum(dtype=np.int64)),
            samples_lost=int(-difference[difference < 0].sum()),
            samples_repeated=int(difference[difference > 0].sum()),
        )
        self._closed[self._epoch] = audit
        self._seen += audit.samples_seen
        self._lost += audit.samples_lost
        self._repeated += audit.samples_repeated
        self._counts[:] = 0
        while len(self._closed) > MAX_KEPT_EPOCHS:
            del self._closed[next(iter(self._closed))]
