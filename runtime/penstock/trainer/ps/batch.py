"""The batch in work: what was looked up for it, and what comes of that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from penstock.parameter_server.arrays import Floats, Gradients, Rows
from penstock.trainer.ps.transfer import Transfer


class Batch:
    """A slot, and the rows that were looked up for it; their gradients will be in the tensors."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.looked_up: list[tuple[int, Rows, torch.Tensor]] = []

    def gradients(self, transfer: Transfer) -> list[Gradients]:
        """The gradients by space, each row once, on the host."""
        by_space: dict[int, list[tuple[Rows, Floats]]] = {}
        used = [
            (space, rows, values.grad)
            for space, rows, values in self.looked_up
            if values.grad is not None
        ]
        here = transfer.to_host([gradient for _, _, gradient in used])
        for (space, rows, _), gradient in zip(used, here, strict=True):
            by_space.setdefault(space, []).append((rows, gradient.numpy()))
        return [Gradients(space, *_merged(parts)) for space, parts in sorted(by_space.items())]


def are_finite(sparse: Sequence[Gradients], dense: Floats | None) -> bool:
    """Whether all gradients of a batch are finite."""
    arrays = [part.values for part in sparse] + ([] if dense is None else [dense])
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _merged(
    parts: Sequence[tuple[Rows, Floats]],
) -> tuple[Rows, Floats]:
    """Gradients of several look-ups in one space: those of a row that is in more are added up."""
    if len(parts) == 1:
        return parts[0]
    rows, inverse = np.unique(np.concatenate([rows for rows, _ in parts]), return_inverse=True)
    total = torch.zeros(len(rows), parts[0][1].shape[1])
    total.index_add_(
        0, torch.from_numpy(inverse), torch.from_numpy(np.concatenate([g for _, g in parts]))
    )
    return rows, total.numpy()
