"""One epoch of a training process's shards: round after round, each a stream of streams.

The shards of a round are the streams of one `IterableStream`, so what holds for these holds here:
a shard whose data worker is lost is begun again elsewhere and passes over what was had, and a
digest tells whether it is the same. A round is opened when the first shard of the one before has
ended, so data workers that are done with theirs have something to do; its elements come after all
of the round before, whoever was faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.data.consuming.batch_stream import Source, StreamOptions, Streams
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.iterable_stream import IterableStream
from penstock.data.errors import DataError
from penstock.data.pipeline import BatchId
from penstock.data.streams.pipeline import Address, StreamHost
from penstock.data.tensorflow.shard_order import (
    ShardOrder,
    elements_before,
    round_key,
    step_after,
)

OPENING_SECONDS: Final = 60.0
"""A data worker imports TensorFlow first; two of them on two cores, beside the program, at once."""


CLOSED: Final = (
    "the next epoch of this dataset was begun, or it was closed: one is iterated at a time"
)


@dataclass(frozen=True)
class Place:
    """Where a program is in an epoch.

    Attributes:
        number: of the round.
        step: of the round, that comes next.
        ends: elements of the round's shards that have ended.
        elements: of the epoch that come before.
    """

    number: int = 0
    step: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    elements: int = 0


class EpochClosedError(DataError):
    """An epoch is iterated that another one has ended."""


class ShardStream(IterableStream):
    """The streams of a round.

    What the program makes itself is made with its own generators as they are: the shards draw from
    TensorFlow's operations, and the program's thread is not the one that makes elements.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._host = StreamHost(alone=True)
        self.made_here = 0
        """Elements that the program has made itself."""

    def _make_batch(self, address: Address) -> Any:
        batch = super()._make_batch(address)
        self.made_here += 1
        return batch

    def _tend(self) -> bool:
        self._check_open()
        return super()._tend()

    def _drop_overdue(self) -> None:
        self._check_open()
        super()._drop_overdue()

    def _check_open(self) -> None:
        """Whoever waits for a batch does so in a thread of TensorFlow's, and another closes it."""
        if self._closed:
            raise EpochClosedError(CLOSED)


@dataclass
class _Round:
    """A round that has been opened; ``first``: elements of the epoch before it."""

    number: int
    width: int
    first: int
    ends: dict[int, int]
    stream: ShardStream | None

    def place(self, elements: int) -> Place:
        """Where a program is that has had so many elements of the epoch."""
        step = step_after(elements - self.first, self.width, self.ends)
        return Place(self.number, step, dict(self.ends), elements)


class Epoch:
    """An iterator of encoded elements; see the module's docstring."""

    def __init__(
        self,
        consumer: Consumer | None,
        source: Source,
        order: ShardOrder,
        epoch: int,
        options: StreamOptions,
        *,
        group: str,
        start: Place,
        read: Callable[[Any], Any],
        shared: bool = False,
    ) -> None:
        """``read``: makes of a batch what the program is given.

        ``shared``: other jobs have the same shards, so each has a data worker that it is for.
        """
        self.number = epoch
        self.given = start.elements
        """Elements of the epoch that were taken from it, or before."""
        self.finished = False
        self._lost, self._closed = 0, False
        self._start = start
        self._consumer, self._source, self._order = consumer, source, order
        self._options, self._group, self._read = options, group, read
        self._shared = shared
        self._rounds: list[_Round] = []
        self._next: ShardStream | None = None
        before = elements_before(start.step, order.width(start.number), start.ends)
        self._begin(start.number, start.elements - before, self._open(start))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        while not self.finished:
            now = self._rounds[-1]
            if self._closed:
                raise EpochClosedError(CLOSED)
            stream = now.stream
            assert stream is not None, "the newest round is open"
            try:
                batch = next(stream)
            except StopIteration:
                if not self._closed:
                    self._end(now, stream)
                continue
            self.given += 1
            if stream.ends and self._next is None and now.number + 1 < self._order.rounds:
                self._next = self._open(Place(now.number + 1))
            return self._read(batch)
        raise StopIteration

    @property
    def made_here(self) -> bool:
        """Whether the program has made any element of the newest round itself."""
        stream = self._rounds[-1].stream
        return stream is not None and stream.made_here > 0

    @property
    def lost(self) -> int:
        """Elements that were lost with their data worker, as far as they are known."""
        stream = self._rounds[-1].stream
        return self._lost + (0 if stream is None else stream.lost)

    def place(self, elements: int) -> Place | None:
        """Where a program is that has had so many elements; None: the epoch is over for it.

        Raises:
            ValueError: it cannot have had so many.
        """
        if not self._start.elements <= elements <= self.given:
            raise ValueError(
                f"given: {elements}; of epoch {self.number} from {self._start.elements} to "
                f"{self.given} elements have been taken"
            )
        if self.finished and elements == self.given:
            return None
        found = next(one for one in reversed(self._rounds) if one.first <= elements)
        if found.stream is not None:
            found.ends.update(found.stream.ends)
        return found.place(elements)

    def close(self) -> None:
        """Nothing more is wanted."""
        self._closed = True
        for stream in (self._rounds[-1].stream, self._next):
            if stream is not None:
                stream.close()

    def abandon(self) -> None:
        """`close` for a finalizer, which may run in any thread in the middle of anything."""
        self._closed = True
        for stream in (self._rounds[-1].stream, self._next):
            if stream is not None:
                stream.abandon()

    def _open(self, place: Place) -> ShardStream:
        order = self._order
        return ShardStream(
            self._consumer,
            self._source,
            round_key(self.number, place.number),
            BatchId(self._group, order.index, self.number, place.step),
            iter(()),
            self._options,
            [],
            streams=Streams(order.width(place.number), place.ends, OPENING_SECONDS),
            static=self._shared,
        )

    def _begin(self, number: int, first: int, stream: ShardStream) -> None:
        self._rounds.append(_Round(number, self._order.width(number), first, {}, stream))

    def _end(self, now: _Round, stream: ShardStream) -> None:
        """A round has no more elements: the next one, or the epoch's end."""
        now.ends, now.stream = stream.ends, None
        self._lost += stream.lost
        number = now.number + 1
        if number == self._order.rounds:
            self.finished = True
            return
        following, self._next = self._next or self._open(Place(number)), None
        self._begin(number, self.given, following)
