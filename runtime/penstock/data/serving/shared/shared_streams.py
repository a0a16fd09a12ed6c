"""The batches of streams that a data worker keeps for jobs that have the same streams.

A stream is made once, by whoever asks for its next batch first; what was made is kept as long as
there is room (`penstock.data.sharing.memo`), for the others who come to it. Who comes when it is
gone, or goes on with what was another stream before, has the rest of that stream made for itself,
as without a group: nobody waits for anybody, and nobody is given anything twice. For the main
thread of a data worker alone.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.memo_window import MemoWindow
from penstock.data.sharing.stream_pipeline import SharedStreamPipeline
from penstock.data.streams.digest import NOTHING, UNKNOWN
from penstock.data.streams.pipeline import (
    MAX_HOSTED,
    Address,
    Chain,
    StopHostingError,
    StreamEndedError,
    StreamHost,
)

MAX_FRONTS: Final = MAX_HOSTED
"""Streams of which it is known how far they are made; those that nobody asked for lately go."""
MAX_BATCHES: Final = 1 << 20
"""Of a stream: what comes after them is made for each job alone."""
_ALONE: Final = -1
_ENDED: Final = -2


@dataclass
class _Front:
    """How far a stream is made. ``digests``: of the first 0, 1, 2, ... batches."""

    number: int
    digests: list[int] = field(default_factory=lambda: [NOTHING])
    ended: bool = False

    @property
    def position(self) -> int:
        return len(self.digests) - 1


@dataclass
class SharedStreams(MemoWindow):
    """Those of one content; see the module's docstring."""

    _fronts: OrderedDict[tuple[int, ...], _Front] = field(init=False, default_factory=OrderedDict)
    _host: StreamHost = field(init=False, default_factory=StreamHost)
    _numbers: itertools.count[int] = field(init=False, default_factory=itertools.count)
    _next: dict[str, dict[tuple[int, int], int]] = field(init=False, default_factory=dict)
    """By training process, of each of its streams the batch due next, or one of the above."""

    def rest(self, line: ConsumerConnection, stream: int) -> None:
        """A training process wants nothing more of these streams."""
        streams = self._next.get(line.name, {})
        for key in [key for key in streams if key[0] == stream]:
            del streams[key]
        if not streams:
            self.leave(line)

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        self._next.pop(line.name, None)
        self.pool.leave(line.name)
        self.trim()

    def make(
        self,
        request: Request,
        pipeline: SharedStreamPipeline,
        chain: Chain,
        leaving: Callable[[], bool],
    ) -> Any:
        """The batch of an address.

        Raises:
            StreamEndedError: there is none: the stream ended before.
            NotRepeatableError: what comes before it is not what the program was given.
            StopHostingError: it was ``leaving``.
            Exception: whatever the program's own code raises.
        """
        address, line = Address(*request.indices), request.line
        streams, own = self._next.setdefault(line.name, {}), (request.stream, address.number)
        self.pool.join(line.name)
        due = streams.get(own, 0)
        if due == _ENDED:  # who asks ahead asks for batches beyond the end
            raise StreamEndedError(f"stream {address.number} has no more batches")
        if due != _ALONE:
            name = pipeline.name(pipeline.pipeline.dataset, address.number, request.seed)
            one = (*name, address.position)
            if address.position != due or not self.pool.has(one):
                front = self._front(name)
                self._extend(name, front, request, pipeline, chain, leaving)
                if address.position != due and not _goes_on(front, address):
                    due = _ALONE
                elif front.ended and address.position == front.position:
                    streams[own] = _ENDED
                    raise StreamEndedError(f"stream {address.number} has {front.position} batches")
            if due != _ALONE and self.pool.has(one):
                streams[own] = address.position + 1
                self.pool.note_had(line.name, one)
                batch = self.kept[one]
                self.trim()
                return batch
            streams[own] = _ALONE
        return line.streams.make(
            request.stream, pipeline.pipeline, request.seed, address, chain, leaving
        )

    def _front(self, name: tuple[int, ...]) -> _Front:
        front = self._fronts.get(name)
        if front is None:
            while len(self._fronts) >= MAX_FRONTS:
                _, old = self._fronts.popitem(last=False)
                self._host.drop(old.number)
            front = self._fronts[name] = _Front(next(self._numbers))
        self._fronts.move_to_end(name)
        return front

    def _extend(
        self,
        name: tuple[int, ...],
        front: _Front,
        request: Request,
        pipeline: SharedStreamPipeline,
        chain: Chain,
        leaving: Callable[[], bool],
    ) -> None:
        """Have a stream made up to the batch that is asked for, or to its end."""
        address = Address(*request.indices)
        while front.position <= min(address.position, MAX_BATCHES - 1) and not front.ended:
            if front.position < address.position and leaving():
                raise StopHostingError("this process is to leave")
            following = Address(address.number, front.position, UNKNOWN)
            try:
                batch = self._host.make(
                    front.number, pipeline.pipeline, request.seed, following, chain
                )
            except StreamEndedError:
                front.ended = True
                self._host.drop(front.number)
                return
            except BaseException:
                self._fronts.pop(name, None)
                raise
            one = (*name, front.position)
            if not self.pool.has(one):
                self.put(one, batch)
            front.digests.append(chain(front.digests[-1], batch))
            self.trim()


def _goes_on(front: _Front, address: Address) -> bool:
    """Whether a stream is, up to an address, what whoever asks for that has been given."""
    if address.position > front.position:
        return False  # it ended before
    before = front.digests[address.position]
    return UNKNOWN in (before, address.digest) or before == address.digest
