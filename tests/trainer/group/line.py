"""A line on which one member of a group gives a state to another."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from penstock.trainer.group.state_codec import PackedState, assemble, receive, send


class Line:
    """What one member broadcasts and another receives."""

    def __init__(self) -> None:
        self.pieces: deque[torch.Tensor] = deque()
        self.sizes: list[int] = []

    def give(self, piece: torch.Tensor) -> None:
        self.sizes.append(piece.numel())
        self.pieces.append(piece.clone())

    def take(self, piece: torch.Tensor) -> None:
        piece.copy_(self.pieces.popleft())


def payload(packed: PackedState) -> torch.Tensor:
    """All tensors of a state behind one another, as they go to others: uint8."""
    line = Line()
    send(packed, line.give, 0)
    (whole,) = line.pieces
    return whole


def arrived(packed: PackedState, piece_bytes: int = 0, line: Line | None = None) -> Any:
    """The state as another member has it then."""
    line = line or Line()
    send(packed, line.give, piece_bytes)
    parts = receive(packed.header, line.take, piece_bytes)
    assert not line.pieces
    return assemble(packed.header, parts)
