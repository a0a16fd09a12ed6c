"""What a data worker keeps of one content, beside the `Memo` that says for how long."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from penstock.data.sharing.memo import Memo
from penstock.data.sizes import batch_bytes


@dataclass
class MemoWindow:
    """See the module's docstring.

    Attributes:
        window: bytes that are kept.
        pool: who has had what, and what is kept.
        kept: that itself, by name; what is kept no more is here until the next `trim`.
    """

    window: int
    pool: Memo = field(init=False)
    kept: dict[Hashable, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = Memo(self.window)

    @property
    def idle(self) -> bool:
        """Whether nobody is in an epoch."""
        return not self.pool.members

    def resize(self, window: int) -> None:
        """From now on so many bytes are kept."""
        self.pool.resize(window)
        self.trim()

    def put(self, name: Hashable, made: Any) -> None:
        """Something is made; it stays at least until the next `trim`."""
        self.kept[name] = made
        self.pool.put(name, max(1, batch_bytes(made)))

    def trim(self) -> None:
        """Let go of what is kept no more."""
        for name in self.pool.take_dropped():
            self.kept.pop(name, None)
