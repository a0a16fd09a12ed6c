"""What a server answers to the requests of workers, other servers and the chief.

No sockets: `RequestHandler.answer` takes a request that has arrived and gives what to send, from
any thread. The lock is held while parameters are read or changed, never while anything is sent or
awaited.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

from penstock.data.ledger.ranges import RangeSet
from penstock.parameter_server.arrays import Floats
from penstock.parameter_server.connection import UnavailableError
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import ServerFigures, ServerStage
from penstock.parameter_server.server.contents import ShardContents
from penstock.parameter_server.server.requests import RequestReader, Response
from penstock.parameter_server.server.storage.lock import Lock
from penstock.parameter_server.server.storage.space import BadRequestError
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.wire import (
    BEGIN,
    DONE,
    IDS,
    PARTITION,
    PULL,
    PUSH,
    READ,
    SEAL,
    STATE,
    STATED,
    UNAVAILABLE,
    VALUES,
    WRITE,
    Unavailable,
)

logger = logging.getLogger(__name__)

BUSY_SECONDS: Final = 0.5
"""How long a batch waits here for its turn, before its worker asks again."""


class RequestHandler:
    """See the module's docstring."""

    def __init__(
        self, me: ServerId, lock: Lock, contents: ShardContents, changed: Callable[[], None]
    ) -> None:
        """``changed``: called when something has happened that the trainer waits for."""
        self._me = me
        self._lock = lock
        self._contents = contents
        self._changed = changed
        self._turn = threading.Condition(lock.plain)
        self._pulls = self._pushes = self._duplicates = 0
        self._bytes_in = self._bytes_out = 0
        self._answers: dict[int, Callable[[Hashable, Any, memoryview], Response]] = {
            BEGIN: self._begin,
            PULL: self._pull,
            PUSH: self._push,
            READ: self._read,
            WRITE: self._write,
            STATE: self._state,
            SEAL: self._seal,
            IDS: self._ids,
        }

    def answer(self, caller: Hashable, kind: int, header: Any, body: memoryview) -> Response:
        """The answer to a request; whatever is wrong with it, there is one."""
        try:
            how = self._answers.get(kind)
            if how is None:
                raise BadRequestError(f"no request has kind {kind}")
            return how(caller, header, body)
        except UnavailableError as error:
            return Response(UNAVAILABLE, [error.reason.value, str(error)])
        except (ValueError, TypeError, OverflowError) as error:  # QuestionError among them
            logger.warning("a request of kind %d from %s cannot be meant: %s", kind, caller, error)
            return Response(UNAVAILABLE, [Unavailable.BAD.value, f"{self._me}: {error}"])

    def left(self, caller: Hashable) -> None:
        """A caller's connection has ended."""
        with self._lock:
            if self._contents.gate.leave(caller):
                self._turn.notify_all()

    def wake(self) -> None:
        """Something has changed, with the lock held: whoever waits for its turn is to look."""
        self._turn.notify_all()

    def figures(self) -> ServerFigures:
        """What was asked and answered so far; with the lock held."""
        return ServerFigures(
            pulls=self._pulls,
            pushes=self._pushes,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            busy_seconds=self._lock.busy_seconds,
            waited_seconds=self._lock.waited_seconds,
            duplicates=self._duplicates,
        )

    def _begin(self, caller: Hashable, header: Any, _: memoryview) -> Response:
        number, slot, staleness = header
        if slot is not None and staleness is not None:
            self._take_turn(number, int(slot), int(staleness), caller)
        with self._lock:
            store = self._contents.serving(number, begins=slot is not None)
            self._pulls += 1
            values = store.begin()
            return self._values(store, [values])

    def _take_turn(self, number: object, slot: int, staleness: int, caller: Hashable) -> None:
        if slot < 0 or staleness < 0:
            raise BadRequestError(f"slot {slot}, staleness {staleness}; neither may be below 0")
        contents, until = self._contents, time.monotonic() + BUSY_SECONDS
        with self._turn:
            while True:
                store = contents.serving(number, begins=True)
                now = time.monotonic()
                if not contents.gates:
                    return
                if contents.gate.begin(slot, staleness, store.version, caller, now):
                    return
                if now >= until:
                    raise UnavailableError(
                        Unavailable.BUSY,
                        f"slot {slot} would be more than {staleness} updates stale",
                    )
                self._turn.wait(until - now)

    def _pull(self, _: Hashable, header: Any, body: memoryview) -> Response:
        number, pieces = header
        content = RequestReader(body)
        wanted = [(space, content.rows(count)) for space, count in pieces]
        size = content.end()
        with self._lock:
            store = self._contents.serving(number)
            self._pulls += 1
            self._bytes_in += size
            return self._values(store, [store.pull(space, rows) for space, rows in wanted])

    def _ids(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, space = header
        with self._lock:
            store = self._contents.serving(number)
            ids = store.ids(int(space))
            self._bytes_out += ids.nbytes
            return Response(VALUES, [store.version], [ids], ids.nbytes)

    def _values(self, store: Store, values: list[Floats]) -> Response:
        size = sum(array.nbytes for array in values)
        self._bytes_out += size
        return Response(VALUES, [store.version], values, size)

    def _push(self, _: Hashable, header: Any, body: memoryview) -> Response:
        number, slot, pieces, has_dense = header
        content = RequestReader(body)
        with self._lock:
            store = self._contents.serving(number)
            gradients = content.gradients(store.spec, pieces)
            dense = content.floats(store.dense_size) if has_dense else None
            size = content.end()
            applied = store.push(int(slot), gradients, dense)
            self._bytes_in += size
            self._pushes += applied
            self._duplicates += not applied
            version = store.version
            if self._contents.gate.end(slot):
                self._turn.notify_all()
            tell = self._contents.stage is ServerStage.HALTED
        if tell:
            self._changed()
        return Response(DONE, [int(applied), version])

    def _read(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, snapshot, partition = header
        with self._lock:
            if snapshot is None:
                store = self._contents.present(number)
                if self._contents.stage is not ServerStage.FROZEN:
                    raise UnavailableError(
                        Unavailable.FROZEN, "partitions are read while nothing changes them"
                    )
            else:
                store = self._contents.snapshot(snapshot)
            arrays = store.partition(partition)
            size = sum(array.nbytes for array in arrays)
            self._bytes_out += size
        return Response(PARTITION, [[array.size for array in arrays]], arrays, size)

    def _state(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, of_snapshot = header
        with self._lock:
            store = (
                self._contents.snapshot(number) if of_snapshot else self._contents.present(number)
            )
            return Response(STATED, [[list(one) for one in store.applied], store.pushes])

    def _write(self, _: Hashable, header: Any, body: memoryview) -> Response:
        number, partition, sizes = header
        with self._lock:
            filled = self._contents.initialization(number)
        filled.write(partition, sizes, body)
        with self._lock:
            self._bytes_in += len(body)
        return Response(DONE, [])

    def _seal(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, ranges, pushes = header
        applied = RangeSet((int(start), int(stop)) for start, stop in ranges)
        with self._lock:
            filled = self._contents.initialization(number)
        filled.seal(applied, int(pushes))
        self._changed()
        return Response(DONE, [])
