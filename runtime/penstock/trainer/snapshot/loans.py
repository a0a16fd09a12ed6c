"""Which slots are read by who takes a state up: their bytes must stay until nobody has them.

A state that is taken up out of memory need not be copied before a program copies it into its own
tensors. Whether the program keeps a tensor all the same is not asked but seen: what keeps the bytes
alive is one object for each tensor, and a slot is on loan as long as any of its objects lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch


class Loans:
    """The slots that are on loan."""

    def __init__(self) -> None:
        self._held: dict[int, list[weakref.ref[Any]]] = {}

    def lend(
        self, slot: int, flat: torch.Tensor, parts: Sequence[tuple[int, int]]
    ) -> list[torch.Tensor]:
        """Parts of a slot as tensors: its own bytes, not copies, uint8 each.

        Args:
            slot: that they are of.
            flat: the memory.
            parts: where each begins in it, and how many bytes it has.
        """
        memory = flat.numpy()
        lent = [memory[at : at + size] for at, size in parts]
        self._held.setdefault(slot, []).extend(weakref.ref(part) for part in lent)
        return [torch.from_numpy(part) for part in lent]

    def slots(self) -> set[int]:
        """Those of which somebody still has a part."""
        for slot, held in list(self._held.items()):
            self._held[slot] = left = [part for part in held if part() is not None]
            if not left:
                del self._held[slot]
        return set(self._held)
