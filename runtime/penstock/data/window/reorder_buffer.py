"""The steps of one epoch on their way: asked for ahead, back in any order, given out in theirs.

A pure state machine round the shard ledger: it knows no socket and reads no clock. Slots are steps;
a data worker that is asked for a step holds its lease, and the step is consumed when the program
takes its batch. What it guarantees, whatever arrives, twice or never:

- `take` gives every step once and in order (with `Guarantee.AT_MOST_ONCE`: less those whose data
  worker was lost with them, which are counted in ``lost``);
- a step is always in exactly one place: ready, leased, or free for the next who asks; so if there
  is nobody to wait for, `take` says that the program must make it itself;
- at most ``ahead`` steps beyond the program's position are asked for; when that becomes less,
  `holders_beyond` says who is to give some back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
    FEED = auto()  # all steps that are known were lost: say which come next


@dataclass(frozen=True, slots=True)
class Failure:
    """What a maker said when it could not make a step.

    ``error``: what the program's own code raised in a local worker, pickled: the program is to get
    it. A data worker's failure is the data worker's, and others try; what a ``local`` worker cannot
    make or deliver no other can, and the program makes it itself. ``tiles``: of which the batch was
    to be, where that was the data worker's choice (int64). ``died``: workers that it asked died
    on the step, as many as may: nobody is to try again.
    """

    holder: str
    message: str
    trace: str
    error: bytes = b""
    local: bool = False
    tiles: bytes = b""
    died: bool = False

    @property
    def final(self) -> bool:
        """Whether no other maker is to try."""
        return self.local or bool(self.error)


@dataclass(slots=True)
class _Assignment:
    fence: int
    holder: str
    since: float
    made: bool = False


class _Assignments:
    """Who was asked for which step, until the program has taken it, and how many are unmade."""

    def __init__(self) -> None:
        self.by_step: dict[int, _Assignment] = {}
        self._unmade: Counter[str] = Counter()

    def add(self, step: int, fence: int, holder: str, now: float) -> None:
        self.by_step[step] = _Assignment(fence, holder, now)
        self._unmade[holder] += 1

    def note_made(self, step: int) -> None:
        assignment = self.by_step[step]
        assignment.made = True
        self._unmade[assignment.holder] -= 1
        if not self._unmade[assignment.holder]:
            del self._unmade[assignment.holder]

    def remove(self, step: int) -> _Assignment:
        if not self.by_step[step].made:
            self.note_made(step)
        return self.by_step.pop(step)

    def outstanding(self, step: int, holder: str) -> _Assignment | None:
        """The assignment of a step that a holder has and has not made yet."""
        assignment = self.by_step.get(step)
        if assignment is None or assignment.holder != holder or assignment.made:
            return None
        return assignment

    def pass_on(self, step: int, holder: str, now: float) -> None:
        """An unmade step is another's from now on."""
        before = self.by_step[step]
        self.note_made(step)
        self.add(step, before.fence, holder, now)

    def count_unmade(self, holder: str) -> int:
        return self._unmade.get(holder, 0)


class _Failures:
    """Who could not make which step."""

    def __init__(self) -> None:
        self._by_step: dict[int, list[Failure]] = {}

    def add(self, step: int, failure: Failure) -> None:
        self._by_step.setdefault(step, []).append(failure)

    def of(self, step: int) -> list[Failure]:
        return self._by_step.get(step, [])

    def forget(self, step: int) -> None:
        self._by_step.pop(step, None)

    def allow(self, step: int, *, retry: bool) -> bool:
        """Whether a maker may be asked for the step."""
        failures = self.of(step)
        return not failures or (retry and not any(failure.final for failure in failures))


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
        self.fed = position
        """Steps whose indices are known, counted from the epoch's beginning."""
        self.ended = False
        """Whether all indices of the epoch are known."""
        self.indices: dict[int, Any] = {}
        self._asked = _Assignments()
        self._ready: dict[int, Any] = {}
        self._gone: set[int] = set()  # at most once: died with their holder
        self._again: set[int] = set()  # at most once: came back unmade, for the program to make
        self._failures = _Failures()

    # ------------------------------------------------------------------ what there is to do

    def feed(self, indices: Any) -> None:
        """The next step's indices, in the sampler's order."""
        self.indices[self.fed] = indices
        self.fed += 1

    def end(self) -> None:
        """The sampler has no more."""
        self.ended = True

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return len(self._ready)

    @property
    def unmade(self) -> int:
        """Steps that somebody was asked for and that have not come yet."""
        return len(self._asked.by_step) - len(self._ready)

    def unmade_by(self, holder: str) -> int:
        """Steps that a holder was asked for and that have not come yet.

        What has come and waits for the program is not counted: it keeps nobody from working on. How
        much may wait is bounded for all together, by `ahead`.
        """
        return self._asked.count_unmade(holder)

    def holders_beyond(self) -> set[str]:
        """Who has unmade steps that may not be under way any more, since `ahead` is less now."""
        limit = self.position + self.ahead
        return {
            asked.holder
            for step, asked in self._asked.by_step.items()
            if step >= limit and not asked.made
        }

    @property
    def starved(self) -> bool:
        """Whether nobody has been asked for the very step that the program is to get next."""
        return (
            self.position < self.fed
            and self.position not in self._ready
            and self.position not in self._asked.by_step
            and self.position not in self._gone
        )

    def ask(
        self,
        holder: str,
        now: float,
        *,
        retry: bool = False,
        suits: Callable[[int, bool], bool] | None = None,
        step: int | None = None,
    ) -> tuple[int, Any] | None:
        """Lease the lowest free step to a holder: the step and its indices, if there is one.

        Args:
            holder: who is to make it.
            now: in seconds.
            retry: also one that a data worker could not make.
            suits: says of a step, and of whether somebody could not make it, if it may be leased.
            step: that very one of the `free_steps`, though lower ones are free.
        """
        limit = min(self.fed, self.position + self.ahead)
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            free = self._ledger.watermark < limit
        else:
            quarantined = sum(stop - start for start, stop in self._ledger.quarantine)
            free = self._ledger.consumed + len(self._asked.by_step) + quarantined < self.fed
        if not free:
            return None
        lease = self._ledger.lease(holder, now, 1, slot=step)
        if lease is None:
            return None
        refused = suits is not None and not suits(lease.start, bool(self._failures.of(lease.start)))
        if refused or lease.start >= limit or not self._failures.allow(lease.start, retry=retry):
            self._ledger.give_back(lease.fence)
            self._ledger.take_events()
            return None
        self._ledger.take_events()
        self._asked.add(lease.start, lease.fence, holder, now)
        return lease.start, self.indices[lease.start]

    def free_steps(self) -> dict[int, Any]:
        """Steps that nobody has and a data worker may be asked for, the lowest first; indices."""
        taken = self._asked.by_step
        return {
            step: self.indices[step]
            for step in range(self.position, min(self.fed, self.position + self.ahead))
            if step not in taken
            and self._ledger.state.is_free(step)
            and self._failures.allow(step, retry=False)
        }

    # ------------------------------------------------------------------ what came of it

    def arrived(self, holder: str, step: int, batch: Any) -> bool:
        """A batch has come; False when it is not wanted (any more) from this holder."""
        if self._asked.outstanding(step, holder) is None:
            return False
        self._ready[step] = batch
        self._asked.note_made(step)
        return True

    def pass_on(self, holder: str, step: int, to: str, now: float) -> bool:
        """A holder has begun a step that another is to finish; False if it is not its own."""
        if self._asked.outstanding(step, holder) is None:
            return False
        self._asked.pass_on(step, to, now)
        return True

    def failed(self, step: int, failure: Failure) -> None:
        """A holder could not make a step: the program is the next to try, unless others died."""
        holder, asked = failure.holder, self._asked.outstanding(step, failure.holder)
        if asked is None or not failure.died or self._guarantee is Guarantee.AT_MOST_ONCE:
            if self.given_back(holder, step, over=failure.died):
                self._failures.add(step, failure)
            return
        fence, tries = self._asked.remove(step).fence, 1
        while not self._ledger.fail(fence, step, f"{holder}, try {tries}"):
            lease = self._ledger.lease(holder, asked.since, 1, slot=step)
            assert lease is not None, "it is free again"
            fence, tries = lease.fence, tries + 1
        self._ledger.take_events()

    def given_back(self, holder: str, step: int, *, over: bool = False) -> bool:
        """A holder returns a step unmade; False when the step is not its own.

        ``over``: it had the step and has it no more; with `Guarantee.AT_MOST_ONCE` it is lost.
        """
        asked = self._asked.outstanding(step, holder)
        if asked is None:
            return False
        self._asked.remove(step)
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            (self._gone if over else self._again).add(step)
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

    # ------------------------------------------------------------------ what the program gets

    def take(self, *, elsewhere: bool = False) -> tuple[Need | None, Any]:
        """The next batch as ``(None, batch)``, or what is needed first.

        Args:
            elsewhere: there is somebody who is to make a step that nobody has: wait for that.

        Raises:
            BadSampleError: three workers died while they made this step.
        """
        while self.position in self._gone:
            self._gone.discard(self.position)
            self.indices.pop(self.position, None)
            self.lost += 1
            self.position += 1
        if self.position >= self.fed:
            return (Need.END if self.ended else Need.FEED), None
        if self.position in self._ready:
            batch = self._ready.pop(self.position)
            self.made_here()
            return None, batch
        if self.position in self._asked.by_step:
            return Need.WAIT, None
        if any(start <= self.position < stop for start, stop in self._ledger.quarantine):
            raise BadSampleError(
                f"step {self.position}, samples {str(self.indices[self.position])[:500]}: "
                f"{self._ledger.state.options.max_failures} workers died while they made it; "
                "look at their logs, a sample may crash the decoder or need more memory than a "
                "worker has"
            )
        again = self.position in self._again
        if elsewhere and not again and self._failures.allow(self.position, retry=True):
            return Need.WAIT, None
        return Need.MAKE, None

    def skip(self) -> Any:
        """Leave out the step for which `take` has just raised; its indices."""
        self._failures.forget(self.position)
        indices = self.indices.pop(self.position)
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
        return self.indices[self.position], self._failures.of(self.position)

    def made_here(self) -> None:
        """The program has its batch, or has skipped it."""
        step = self.position
        asked = self._asked.remove(step)
        self._ledger.complete(asked.fence, step, step + 1)
        self._ledger.take_events()
        self.indices.pop(step, None)
        self._failures.forget(step)
        self.position = step + 1
