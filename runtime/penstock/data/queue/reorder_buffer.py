"""The steps of one epoch on their way: asked for ahead, back in any order, given out in theirs.

A pure state machine round the shard ledger: it knows no socket and reads no clock. Slots are steps;
a data worker that is asked for a step holds its lease, and the step is consumed when the program
takes its batch. What it guarantees, whatever arrives, twice or never:

- `take` gives every step once and in order (with `Guarantee.AT_MOST_ONCE`: less those whose data
  worker was lost with them, which are counted in ``lost``);
- a step is always in exactly one place: ready, leased, or free for the next who asks; so if there
  is nobody to wait for, `take` says that the program must make it itself;
- at most ``ahead`` steps beyond the program's position are asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.errors import BadSampleError
from penstock.data.ledger import Ledger, LedgerOptions

MANY: Final = 1 << 60
HERE: Final = "training"


class Need(Enum):
    """What `ReorderBuffer.take` says when there is no batch to give."""

    WAIT = auto()  # somebody has the step
    MAKE = auto()  # nobody has it: make it here
    END = auto()  # the epoch is over


@dataclass(frozen=True, slots=True)
class Failure:
    """What a data worker said when it could not make a step."""

    holder: str
    message: str
    trace: str


@dataclass(slots=True)
class _Assignment:
    fence: int
    holder: str
    since: float


class _Assignments:
    """Who was asked for which step, until the program has taken it."""

    def __init__(self) -> None:
        self.by_step: dict[int, _Assignment] = {}
        self._count: Counter[str] = Counter()

    def add(self, step: int, fence: int, holder: str, now: float) -> None:
        self.by_step[step] = _Assignment(fence, holder, now)
        self._count[holder] += 1

    def remove(self, step: int) -> _Assignment:
        assignment = self.by_step.pop(step)
        self._count[assignment.holder] -= 1
        if not self._count[assignment.holder]:
            del self._count[assignment.holder]
        return assignment

    def count(self, holder: str) -> int:
        return self._count.get(holder, 0)


class ReorderBuffer:
    """See the module's docstring. Steps count from 0 at the beginning of the epoch."""

    def __init__(
        self, position: int, ahead: int, guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> None:
        self._guarantee = guarantee
        self._ledger = Ledger(LedgerOptions(total_slots=MANY, guarantee=guarantee))
        if position:
            self._ledger.adopt(position)
        self.position = position  # the step that the program gets next
        self.ahead = ahead
        self.lost = 0
        self._fed = position
        self._ended = False
        self._indices: dict[int, Any] = {}
        self._asked = _Assignments()
        self._ready: dict[int, Any] = {}
        self._gone: set[int] = set()  # at most once: died with their holder
        self._again: set[int] = set()  # at most once: came back unmade, for the program to make
        self._failures: dict[int, list[Failure]] = {}

    # ------------------------------------------------------------------ what there is to do

    def feed(self, indices: Any) -> None:
        """The next step's indices, in the sampler's order."""
        self._indices[self._fed] = indices
        self._fed += 1

    def end(self) -> None:
        """The sampler has no more."""
        self._ended = True

    @property
    def fed(self) -> int:
        """Steps whose indices are known, counted from the epoch's beginning."""
        return self._fed

    @property
    def ended(self) -> bool:
        """Whether all indices of the epoch are known."""
        return self._ended

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return len(self._ready)

    def asked_of(self, holder: str) -> int:
        """Steps that a holder was asked for and that the program has not taken yet."""
        return self._asked.count(holder)

    def ask(self, holder: str, now: float) -> tuple[int, Any] | None:
        """Lease the lowest free step to a holder: the step and its indices, if there is one."""
        if not self._free:
            return None
        limit = min(self._fed, self.position + self.ahead)
        lease = self._ledger.lease(holder, now, 1)
        if lease is None:
            return None
        if lease.start >= limit or lease.start in self._failures:
            self._ledger.give_back(lease.fence)
            self._ledger.take_events()
            return None
        self._ledger.take_events()
        self._asked.add(lease.start, lease.fence, holder, now)
        return lease.start, self._indices[lease.start]

    @property
    def _free(self) -> bool:
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            return self._ledger.watermark < min(self._fed, self.position + self.ahead)
        quarantined = sum(stop - start for start, stop in self._ledger.quarantine)
        known = self._ledger.consumed + len(self._asked.by_step) + quarantined
        return known < self._fed

    # ------------------------------------------------------------------ what came of it

    def arrived(self, holder: str, step: int, batch: Any) -> bool:
        """A batch has come; False when it is not wanted (any more) from this holder."""
        if self._outstanding(step, holder) is None:
            return False
        self._ready[step] = batch
        return True

    def failed(self, step: int, failure: Failure) -> None:
        """A holder could not make a step: the program is the next to try."""
        if self.given_back(failure.holder, step):
            self._failures.setdefault(step, []).append(failure)

    def given_back(self, holder: str, step: int) -> bool:
        """A holder returns a step unmade; False when the step is not its own."""
        asked = self._outstanding(step, holder)
        if asked is None:
            return False
        self._asked.remove(step)
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            self._again.add(step)
        else:
            self._ledger.give_back(asked.fence)
            self._ledger.take_events()
        return True

    def gone(self, holder: str, *, crashed: bool) -> int:
        """A holder is no more; says how many steps went back.

        One that crashed did so on the first of its steps: a step that this happens to on three
        holders is not tried again, or it would end the training process too.
        """
        steps = sorted(
            step
            for step, asked in self._asked.by_step.items()
            if asked.holder == holder and step not in self._ready
        )
        for step in steps:
            if self._guarantee is Guarantee.AT_MOST_ONCE:
                self._asked.remove(step)
                self._gone.add(step)
            elif crashed and step == steps[0]:
                self._ledger.fail(self._asked.remove(step).fence, step)
                self._ledger.take_events()
            else:
                self.given_back(holder, step)
        return len(steps)

    def overdue(self, since: float) -> list[tuple[str, int]]:
        """Holders and steps that were asked for before ``since`` and have not come."""
        return [
            (asked.holder, step)
            for step, asked in self._asked.by_step.items()
            if asked.since < since and step not in self._ready
        ]

    def _outstanding(self, step: int, holder: str) -> _Assignment | None:
        asked = self._asked.by_step.get(step)
        if asked is None or asked.holder != holder or step in self._ready:
            return None
        return asked

    # ------------------------------------------------------------------ what the program gets

    def take(self) -> tuple[Need | None, Any]:
        """The next batch as ``(None, batch)``, or what is needed first.

        Raises:
            BadSampleError: three data workers died while they made this step.
        """
        while self.position in self._gone:
            self._gone.discard(self.position)
            self._indices.pop(self.position, None)
            self.lost += 1
            self.position += 1
        if self.position >= self._fed:
            assert self._ended, "feed the window before taking from it"
            return Need.END, None
        if self.position in self._ready:
            return None, self._consume(self._ready.pop(self.position))
        if self.position in self._asked.by_step:
            return Need.WAIT, None
        if any(start <= self.position < stop for start, stop in self._ledger.quarantine):
            raise BadSampleError(
                f"step {self.position}, samples {str(self._indices[self.position])[:500]}: "
                f"{self._ledger.state.options.max_failures} data workers died while they made it; "
                "look at their logs, a sample may crash the decoder or need more memory than a "
                "data worker has"
            )
        return Need.MAKE, None

    def skip(self) -> Any:
        """Leave out the step for which `take` has just raised; its indices."""
        self._failures.pop(self.position, None)
        indices = self._indices.pop(self.position)
        self.position += 1
        return indices

    def make_here(self, now: float) -> tuple[Any, list[Failure]]:
        """The program makes the step at its position itself: its indices and who failed on it."""
        if self.position in self._again:
            self._again.discard(self.position)
            fence = 0  # handed out is consumed: there is no lease to end
        else:
            lease = self._ledger.lease(HERE, now, 1)
            assert lease is not None
            assert lease.start == self.position, "the lowest free step is the program's next"
            self._ledger.take_events()
            fence = lease.fence
        self._asked.add(self.position, fence, HERE, now)
        return self._indices[self.position], self._failures.get(self.position, [])

    def made_here(self) -> None:
        """The program has its batch, or has skipped it."""
        self._consume(None)

    def _consume(self, batch: Any) -> Any:
        step = self.position
        asked = self._asked.remove(step)
        self._ledger.complete(asked.fence, step, step + 1)
        self._ledger.take_events()
        self._indices.pop(step, None)
        self._failures.pop(step, None)
        self.position = step + 1
        return batch
