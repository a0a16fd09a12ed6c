"""When a batch may begin, so that no batch is computed from parameters that are too old.

A batch is *open* from its beginning until its push. Every update between is one that the batch has
not seen: its staleness. With a bound S, a batch may begin only if for every open batch, itself
included, the updates since its beginning and the other open batches, all of which may be pushed
before it, are at most S together. A push turns an open batch into an update and leaves that sum as
it is, so it holds until the end: no batch that was let in is ever more stale than S.

What is outside the rule: the push of a batch that had been closed for it, because its connection
ended or it took longer than `BATCH_SECONDS`. Without that, one dead worker would stop all others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

BATCH_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Batch:
    caller: Hashable
    staleness: int
    version: int  # updates made when it began
    until: float


class Gate:
    """The open batches of one layout; pure: the time and the version are arguments."""

    def __init__(self) -> None:
        self._open: dict[int, _Batch] = {}  # by slot

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, slot: int, staleness: int, version: int, caller: Hashable, now: float) -> bool:
        """Whether the batch of a slot may begin now; if so, it is open."""
        others = {s: b for s, b in self._open.items() if s != slot and now < b.until}
        count = len(others)
        fits = count <= staleness and all(
            version - batch.version + count <= batch.staleness for batch in others.values()
        )
        if fits:
            others[slot] = _Batch(caller, staleness, version, now + BATCH_SECONDS)
        self._open = others
        return fits

    def end(self, slot: int) -> bool:
        """The batch of a slot has been pushed. Whether it was open."""
        return self._open.pop(slot, None) is not None

    def leave(self, caller: Hashable) -> bool:
        """A caller is gone, and with it its batches. Whether it had any."""
        kept = {slot: batch for slot, batch in self._open.items() if batch.caller != caller}
        changed = len(kept) < len(self._open)
        self._open = kept
        return changed
