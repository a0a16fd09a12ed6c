"""One epoch of one loader: what of it has been handed out, as it is written into checkpoints."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.trainer.follow.orders import Source, draw
from penstock.trainer.follow.position import (
    Ranges,
    deal,
    first_of,
    step_counts,
    without_first,
)


@dataclass(frozen=True, eq=False)
class Entry:
    """Where a loader was when a checkpoint was written.

    Attributes:
        samples: of the whole epoch.
        shuffled: whether epochs have different orders.
        epoch: that the program had set; None: none.
        order: see `penstock.trainer.follow.orders`.
        todo: what was left of it.
        asked: batches that the program had asked for in this epoch.
    """

    samples: int
    shuffled: bool
    epoch: int | None
    order: dict[str, Any]
    todo: Ranges
    asked: int

    def plain(self) -> dict[str, Any]:
        """As it is saved: of types that `torch.load` reads with ``weights_only=True``."""
        return {
            "samples": self.samples,
            "shuffled": self.shuffled,
            "epoch": self.epoch,
            "order": self.order,
            "todo": [list(each) for each in self.todo],
            "asked": self.asked,
        }

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Entry:
        """From what was saved. Raises KeyError, TypeError, ValueError: it is none."""
        todo = tuple((int(begin), int(end)) for begin, end in saved["todo"])
        samples, epoch = int(saved["samples"]), saved["epoch"]
        if any(not 0 <= begin < end <= samples for begin, end in todo):
            raise ValueError(f"todo: {todo} of {samples} samples")
        return cls(
            samples,
            bool(saved["shuffled"]),
            None if epoch is None else int(epoch),
            dict(saved["order"]),
            todo,
            int(saved["asked"]),
        )

    def fits(self, source: Source, *, trusted: bool) -> bool:
        """Whether it is of the epoch that this begins.

        ``trusted``: this begins with the epoch that was left, whatever its sampler says yet.
        Where no number tells epochs apart, the program begins again with the one that it was in
        when it saved, also if nothing is left of it; unless it counts, and says otherwise.
        """
        if (self.samples, self.shuffled) != (source.samples, source.shuffles):
            return False
        if source.skips:
            return True
        if trusted:
            return bool(self.todo)
        if self.epoch is None or source.epoch is None:
            return bool(self.todo) or not source.begins_whole
        return self.epoch == source.epoch


class Record:
    """See the module's docstring."""

    def __init__(self, source: Source, owner: Any) -> None:
        """``owner``: accelerate's loader round this one, which asks for a batch ahead; or None."""
        self.source = source
        self._owner: Callable[[], Any] = weakref.ref(owner) if owner is not None else lambda: None
        self.handed = 0
        self.exhausted = False
        self._undecided = False  # whether the program passes over batches by itself
        self._resumed: Entry | None = None
        self._epoch = source.epoch
        self._order = None if source.begins_unknown else source.order()
        self._todo: Ranges = ((0, source.samples),)
        self._counts: list[int] | None = None  # of steps; None: all of a whole step
        self._batches: list[list[int]] = []
        self._passed = 0
        self._again = False

    # ------------------------------------------------------------------ what is handed out

    def begin(self) -> None:
        """The order is drawn next."""
        self._epoch, self._order = self.source.epoch, self.source.order()

    def resume(self, entry: Entry, batches: int | None) -> None:
        """Hand out what is left of an epoch; ``batches``: in so many, where a library counts on it.

        Raises:
            TypeError, RuntimeError: its order cannot be drawn.
        """
        dealing = replace(self.source.dealing, batches=batches)
        order = draw(entry.order, entry.samples)
        left = [order[at] for begin, end in entry.todo for at in range(begin, end)]
        self._resumed, self._undecided = entry, True
        self._epoch, self._order, self._todo = entry.epoch, entry.order, entry.todo
        self._counts = step_counts(len(left), dealing)
        self._batches = deal(left, order, dealing)

    @property
    def is_resumed(self) -> bool:
        """Whether the batches are its own."""
        return self._resumed is not None

    def batches(self) -> list[list[int]]:
        """Those of one pass: all, and then the ones that the program has passed over."""
        return self._batches[: self._turned] if self._again else self._batches

    def comes_again(self) -> bool:
        """At the end of a pass: whether there is another."""
        if self._resumed is None or self._again or not self._batches:
            return False
        if self._undecided:  # it still drops what it reads
            return self._owner() is None and self.handed <= self._resumed.asked
        self._again = self._turned > 0
        return self._again

    def decide(self) -> None:
        """The program trains on what it has asked for last: has it passed over the others?

        A program that counts its batches reads, after it has begun again, as many as it had read
        before and drops them. Here those were not among what is left: they are to come again.
        """
        if not self._undecided or not self.asked:
            return
        self._undecided = False
        passed = self.asked - 1
        if self._resumed is None or not self._batches or passed != self._resumed.asked:
            return
        self._passed = passed
        counts = self._counts or []
        taken = sum(counts[: self._turned])
        self._todo = (*without_first(self._todo, taken), *first_of(self._todo, taken))
        self._counts = counts[self._turned :] + counts[: self._turned]

    @property
    def _turned(self) -> int:
        """So many batches at the beginning were passed over."""
        return self._passed % max(1, len(self._batches))

    # ------------------------------------------------------------------ what is known of it

    @property
    def asked(self) -> int:
        """Batches that the program itself has."""
        owner = self._owner()
        ahead = owner is not None and self.handed > 0 and not owner.end_of_dataloader
        return self.handed - int(ahead)

    @property
    def running(self) -> bool:
        """Whether the program is within this epoch."""
        if self._order is None or not (self.asked or self.is_resumed):
            return False
        return not self.exhausted or _is_active(self._owner())

    def entry(self) -> Entry:
        """For a checkpoint that is written now."""
        assert self._order is not None, "it is running"
        if self._resumed is not None and not self.asked:
            return self._resumed
        steps, dealing = self.asked - self._passed, self.source.dealing
        if self._counts is None:
            taken = steps * dealing.world * dealing.batch
        else:
            taken = sum(self._counts[:steps])
        todo = without_first(self._todo, taken)
        shuffled = self.source.shuffles
        return Entry(self.source.samples, shuffled, self._epoch, self._order, todo, self.asked)


def owner_of(loader: Any) -> Any:
    """The loader of accelerate's that iterates this one now; None: none does."""
    active = _active_loaders()
    return next((one for one in active if getattr(one, "base_dataloader", None) is loader), None)


def _is_active(owner: Any) -> bool:
    return owner is not None and any(one is owner for one in _active_loaders())


def _active_loaders() -> list[Any]:
    module = sys.modules.get("accelerate.state")
    if module is None:
        return []
    references = module.GradientState().dataloader_references
    return [one for one in references if one is not None]
