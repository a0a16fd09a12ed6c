"""The batches of one epoch of a dataset that is iterated, on their way: from streams in turn.

A pure state machine like `penstock.data.window.reorder_buffer`, with the same methods for whoever
takes and brings batches: it knows no socket and reads no clock. There are ``count`` streams
(`penstock.data.streams.pipeline`); batch ``position`` of stream ``number`` is step ``position *
count + number``, and the program gets the steps in their order, as it gets the batches of PyTorch's
workers in turn. Steps beyond a stream's end, which nobody knows before, are passed over.

What it guarantees, whatever arrives, twice or never:

- `take` gives every batch of every stream once and in order (with `Guarantee.AT_MOST_ONCE`: less
  those whose maker was lost with them, which are counted in ``lost``; likewise those of a stream
  that cannot be repeated, which ends where it was);
- a stream has one holder at a time, and only that one is asked for its batches, in their order;
- at most ``ahead`` batches beyond the program's position are asked for, evenly over the streams.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.errors import BadSampleError
from penstock.data.streams.digest import NOTHING, UNKNOWN
from penstock.data.window.reorder_buffer import HERE, Failure, Need

MAX_DEATHS: Final = 3
"""So many makers may die on the same batch."""
MAX_DEATHS_BEFORE: Final = 20
"""So many may die while they begin a stream again to come to a batch: that is not its fault."""


@dataclass(slots=True)
class _Stream:
    """One stream. Its batches in [made, asked) are what its holder was asked for and has not made.

    Attributes:
        digest: of the first ``made`` batches.
        returning: the holder gives back what it has not begun; nothing more is asked of it.
        refused: who could not make a batch of it, though others may.
        deaths: of makers, at the batch ``died_at``; ``early``: before they came to it.
        begun: the holder has made a batch of it, or had none to pass over.
    """

    number: int
    made: int
    asked: int
    end: int | None = None
    holder: str = ""
    returning: bool = False
    digest: int = NOTHING
    times: deque[float] = field(default_factory=deque)
    refused: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    deaths: int = 0
    early: int = 0
    died_at: int = -1
    begun: bool = False

    @property
    def over(self) -> bool:
        return self.end is not None and self.asked >= self.end

    def release(self) -> None:
        """Nobody holds it any more: what was asked for is to be asked for again."""
        self.holder, self.returning, self.asked = "", False, self.made
        self.begun = not self.made
        self.times.clear()

    def note_death(self) -> None:
        """A holder has died on the first batch that it had not made."""
        if self.died_at != self.made:
            self.deaths = self.early = 0
        self.died_at = self.made
        if self.begun:
            self.deaths += 1
        else:
            self.early += 1

    def allows(self, holder: str) -> bool:
        """Whether a holder may be asked."""
        return holder not in self.refused and not self.final and not self.deadly

    def awaits(self, holder: str, position: int) -> bool:
        """Whether a holder was asked for a batch, and it has not come."""
        return self.holder == holder and self.made <= position < self.asked

    @property
    def raised(self) -> bool:
        """Whether the program's own code raised on its next batch."""
        return any(failure.error for failure in self.failures)

    @property
    def final(self) -> bool:
        """Whether no other maker is to try its next batch: it is the program's."""
        return any(failure.final for failure in self.failures)

    @property
    def deadly(self) -> bool:
        """Whether its next batch is to be tried no more."""
        return self.deaths >= MAX_DEATHS or self.early >= MAX_DEATHS_BEFORE


class StreamWindow:
    """See the module's docstring.

    Attributes:
        count: streams, ended or not.
        position: the step that the program gets next.
        ahead: batches that may be under way.
        lost: batches that were lost, as far as they are known.
    """

    def __init__(
        self,
        count: int,
        position: int,
        ahead: int,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        ends: dict[int, int] | None = None,
    ) -> None:
        """``ends``: of streams that had ended when the program was at ``position``: batches."""
        self.count = count
        self._guarantee = guarantee
        self._streams = []
        for number in range(count):
            begun = max(0, -(-(position - number) // count))
            begun = min(begun, (ends or {}).get(number, begun))
            digest = UNKNOWN if begun else NOTHING
            stream = _Stream(number, begun, begun, (ends or {}).get(number), digest=digest)
            stream.begun = not begun
            self._streams.append(stream)
        self.position = position
        self.ahead = ahead
        self.lost = 0
        self._ready: dict[int, Any] = {}
        self._gone: set[int] = set()  # at most once: died with their holder

    def _of(self, step: int) -> tuple[_Stream, int]:
        """The stream of a step, and which of its batches it is."""
        return self._streams[step % self.count], step // self.count

    # ------------------------------------------------------------------ what there is to do

    @property
    def ends(self) -> dict[int, int]:
        """How many batches the streams have of which that is known."""
        return {one.number: one.end for one in self._streams if one.end is not None}

    @property
    def finished(self) -> bool:
        """Whether the program has got every batch."""
        return all(
            one.end is not None and (one.end - 1) * self.count + one.number < self.position
            for one in self._streams
        )

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return len(self._ready)

    def unmade_by(self, holder: str) -> int:
        """Batches that a holder was asked for and that have not come yet."""
        return sum(one.asked - one.made for one in self._streams if one.holder == holder)

    def held_by(self, holder: str) -> int:
        """Streams that are a holder's, and have not ended."""
        return sum(not one.over for one in self._streams if one.holder == holder)

    def free_for(self, holder: str) -> list[int]:
        """Streams that nobody holds and that a holder could."""
        return [
            one.number
            for one in self._streams
            if not one.holder and not one.over and one.allows(holder)
        ]

    def claim(self, holder: str, number: int) -> None:
        """A stream that nobody holds is a holder's."""
        stream = self._streams[number]
        assert not stream.holder, "a stream has one holder"
        stream.holder = holder

    def ask(self, holder: str, now: float) -> tuple[int, list[int]] | None:
        """The next batch that a holder is to make: its step and its address.

        See `penstock.data.streams.pipeline.Address`; None if there is none now.
        """
        live = sum(not one.over for one in self._streams) or 1
        limit = self.position + max(1, self.ahead // live) * self.count
        steps = [
            one.asked * self.count + one.number
            for one in self._streams
            if one.holder == holder and not one.over and not one.returning
        ]
        if not steps or (step := min(steps)) >= limit:
            return None
        stream, position = self._of(step)
        digest = stream.digest if stream.asked == stream.made else UNKNOWN
        stream.asked += 1
        stream.times.append(now)
        return step, [stream.number, position, digest]

    # ------------------------------------------------------------------ what came of it

    def arrived(self, holder: str, step: int, batch: Any, digest: int = UNKNOWN) -> bool:
        """A batch has come; False when it is not wanted (any more) from this holder.

        ``digest``: of all batches of the stream up to this one.
        """
        stream, position = self._of(step)
        if not stream.awaits(holder, position) or position != stream.made:
            return False  # a stream's batches come in their order
        self._ready[step] = batch
        stream.made += 1
        stream.begun = True
        stream.digest = digest
        stream.times.popleft()
        if stream.returning and stream.made == stream.asked:
            stream.release()
        return True

    def digest_before(self, step: int) -> int:
        """The digest of what came before a step that is the next of its stream to come."""
        stream, position = self._of(step)
        return stream.digest if stream.made == position else UNKNOWN

    def ended(self, holder: str, step: int, *, repeatable: bool = True) -> bool:
        """A stream has no such batch; False when the holder was not asked for it.

        Not ``repeatable``: it was begun again and is another than before, so what is left of it
        cannot be had without giving samples twice.
        """
        stream, position = self._of(step)
        if not stream.awaits(holder, position):
            return False
        if not repeatable:
            self.lost += stream.asked - stream.made
        stream.end = stream.asked = stream.made
        stream.times.clear()
        return True

    def failed(self, step: int, failure: Failure) -> None:
        """A holder could not make a batch: somebody else is the next to try."""
        stream, position = self._of(step)
        if stream.awaits(failure.holder, position):
            stream.release()
            stream.refused.add(failure.holder)
            stream.failures.append(failure)

    def given_back(self, holder: str, step: int) -> bool:
        """A holder returns a batch unmade, and with it all that come after it in the stream."""
        stream, position = self._of(step)
        if not stream.awaits(holder, position):
            return False
        stream.asked = position
        while len(stream.times) > stream.asked - stream.made:
            stream.times.pop()
        stream.returning = True
        if stream.made == stream.asked:
            stream.release()
        return True

    def gone(self, holder: str, *, crashed: bool) -> int:
        """A holder is no more; says how many batches are to be made by others."""
        returned = 0
        for stream in self._streams:
            if stream.holder != holder:
                continue
            unmade = range(stream.made, stream.asked)
            returned += len(unmade)
            if crashed and unmade:
                stream.note_death()
            if self._guarantee is Guarantee.AT_MOST_ONCE and unmade:
                self._gone |= {position * self.count + stream.number for position in unmade}
                stream.made, stream.digest = stream.asked, UNKNOWN
            stream.release()
        return returned

    def overdue(self, since: float) -> list[tuple[str, int]]:
        """Holders and steps that were asked for before ``since`` and have not come."""
        return [
            (one.holder, one.made * self.count + one.number)
            for one in self._streams
            if one.times and one.times[0] < since
        ]

    # ------------------------------------------------------------------ what the program gets

    def take(self, *, elsewhere: bool = False) -> tuple[Need | None, Any]:
        """The next batch as ``(None, batch)``, or what is needed first.

        Args:
            elsewhere: there is somebody who is to make a batch that nobody has: wait for that.

        Raises:
            BadSampleError: three makers died while they made this batch.
        """
        while True:
            if self.finished:
                return Need.END, None
            stream, position = self._of(self.position)
            if self.position in self._gone:
                self._gone.discard(self.position)
                self.lost += 1
            elif stream.end is None or position < stream.end:
                break
            self.position += 1
        if self.position in self._ready:
            batch = self._ready.pop(self.position)
            self.position += 1
            return None, batch
        if position < stream.asked:
            return Need.WAIT, None
        if stream.deadly:
            raise BadSampleError(
                f"batch {position} of stream {stream.number} of {self.count}: "
                f"{stream.deaths + stream.early} workers died while they made it; look at their "
                "logs, a sample may crash the decoder or need more memory than a worker has"
            )
        return (Need.WAIT if elsewhere and not stream.final else Need.MAKE), None

    def make_here(self, now: float) -> tuple[list[int], list[Failure]]:
        """The program makes the batch at its position itself: its address and who failed on it.

        The stream is the program's from then on.
        """
        stream, position = self._of(self.position)
        assert position == stream.made == stream.asked, "nobody was asked for it"
        stream.holder = HERE
        stream.asked += 1
        stream.times.append(now)
        return [stream.number, position, stream.digest], stream.failures

    def made_here(self) -> None:
        """The program has its batch, or what was raised instead, or has found the stream's end."""
        stream, position = self._of(self.position)
        if stream.made < stream.asked:
            stream.made += 1
            stream.times.clear()
            stream.digest = UNKNOWN
        if stream.raised:
            stream.end = position + 1  # what raised in an iterator has ended it
            stream.failures.clear()
        self.position += 1
