"""What one server holds, what it answers from that, and how the trainer's orders change it.

No sockets: `answer` takes a request that has arrived and gives what to send, from any thread;
`apply_orders` carries out orders; `status` says how things stand. One lock is held while parameters
are read or changed, never while anything is sent or awaited.

Invariants: only requests of the present layout are answered, and only as far as its stage allows;
while FROZEN nothing changes, so partitions may be read without the lock; orders of one trainer that
are older than those carried out are passed over, so it does not matter which reply comes first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec
from penstock.parameter_server.arrays import Floats, sizes_of
from penstock.parameter_server.connection import UnavailableError
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import (
    Applied,
    ServerFigures,
    ServerOrder,
    ServerReply,
    ServerStage,
    Source,
)
from penstock.parameter_server.server.lock import Lock
from penstock.parameter_server.server.migration import (
    LayoutBuild,
    PartitionInitialization,
    PartitionMigration,
)
from penstock.parameter_server.server.requests import RequestReader, Response
from penstock.parameter_server.server.snapshots import Snapshots
from penstock.parameter_server.server.staleness import Gate
from penstock.parameter_server.server.store import BadRequestError, Store
from penstock.parameter_server.spec import FLOAT_BYTES, ModelSpec
from penstock.parameter_server.wire import (
    BEGIN,
    DONE,
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
SPARE_BYTES: Final = 64 << 20
"""What a server needs beside its parameters: the interpreter and messages under way."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How things stand with a server; fields as in `ServerReport`."""

    stage: ServerStage
    layout: Layout | None
    built: int
    snapshot: int | None
    applied: Applied
    spec: ModelSpec | None
    data: DataSpec | None
    trouble: str
    figures: ServerFigures
    seen_revision: int


class ServerShard:
    """See the module's docstring."""

    def __init__(
        self,
        me: ServerId,
        token: str,
        changed: Callable[[], None],
        memory_limit_bytes: int | None = None,
    ) -> None:
        """``changed``: called when something has happened that the trainer waits for."""
        self._me = me
        self._token = token
        self._changed = changed
        self._limit = memory_limit_bytes
        self._stage = ServerStage.EMPTY
        self._layout: Layout | None = None
        self._store: Store | None = None
        self._building: LayoutBuild | None = None
        self._data: DataSpec | None = None  # of all that is held or built
        self._gates = False  # whether this server is the one that keeps the bound on staleness
        self._gate = Gate()
        self._trouble = ""
        self._seen: tuple[str, int] = ("", 0)
        self._lock = Lock()
        self._turn = threading.Condition(self._lock.plain)
        self._snapshots = Snapshots(self._lock, changed)
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
        }

    # ------------------------------------------------------------------ requests

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
            if self._gate.leave(caller):
                self._turn.notify_all()

    def _begin(self, caller: Hashable, header: Any, _: memoryview) -> Response:
        number, slot, staleness = header
        if slot is not None and staleness is not None:
            self._take_turn(number, int(slot), int(staleness), caller)
        with self._lock:
            store = self._serving(number, begins=slot is not None)
            self._pulls += 1
            values = store.begin()
            return self._values(store, [values])

    def _take_turn(self, number: object, slot: int, staleness: int, caller: Hashable) -> None:
        if slot < 0 or staleness < 0:
            raise BadRequestError(f"slot {slot}, staleness {staleness}; neither may be below 0")
        until = time.monotonic() + BUSY_SECONDS
        with self._turn:
            while True:
                store = self._serving(number, begins=True)
                now = time.monotonic()
                if not self._gates or self._gate.begin(slot, staleness, store.version, caller, now):
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
            store = self._serving(number)
            self._pulls += 1
            self._bytes_in += size
            return self._values(store, [store.pull(space, rows) for space, rows in wanted])

    def _values(self, store: Store, values: list[Floats]) -> Response:
        size = sum(array.nbytes for array in values)
        self._bytes_out += size
        return Response(VALUES, [store.version], values, size)

    def _push(self, _: Hashable, header: Any, body: memoryview) -> Response:
        number, slot, pieces, has_dense = header
        content = RequestReader(body)
        with self._lock:
            store = self._serving(number)
            gradients = content.gradients(store.spec, pieces)
            dense = content.floats(store.dense_size) if has_dense else None
            size = content.end()
            applied = store.push(int(slot), gradients, dense)
            self._bytes_in += size
            self._pushes += applied
            self._duplicates += not applied
            version = store.version
            if self._gate.end(slot):
                self._turn.notify_all()
            tell = self._stage is ServerStage.HALTED
        if tell:
            self._changed()
        return Response(DONE, [int(applied), version])

    def _read(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, snapshot, partition = header
        with self._lock:
            if snapshot is None:
                store = self._present(number)
                if self._stage is not ServerStage.FROZEN:
                    raise UnavailableError(
                        Unavailable.FROZEN, "partitions are read while nothing changes them"
                    )
            else:
                store = self._snapshot_of(snapshot)
            arrays = store.partition(partition)
            size = sum(array.nbytes for array in arrays)
            self._bytes_out += size
        return Response(PARTITION, [[array.size for array in arrays]], arrays, size)

    def _state(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, of_snapshot = header
        with self._lock:
            store = self._snapshot_of(number) if of_snapshot else self._present(number)
            return Response(STATED, [[list(one) for one in store.applied], store.pushes])

    def _write(self, _: Hashable, header: Any, body: memoryview) -> Response:
        number, partition, sizes = header
        self._filling(number).write(partition, sizes, body)
        with self._lock:
            self._bytes_in += len(body)
        return Response(DONE, [])

    def _seal(self, _: Hashable, header: Any, __: memoryview) -> Response:
        number, ranges, pushes = header
        applied = RangeSet((int(start), int(stop)) for start, stop in ranges)
        self._filling(number).seal(applied, int(pushes))
        self._changed()
        return Response(DONE, [])

    def _present(self, number: object) -> Store:
        if self._layout is None or self._store is None:
            raise UnavailableError(Unavailable.LAYOUT, f"{self._me} holds no parameters now")
        if number != self._layout.number:
            raise UnavailableError(
                Unavailable.LAYOUT, f"{self._me} holds layout {self._layout.number}, not {number}"
            )
        return self._store

    def _serving(self, number: object, *, begins: bool = False) -> Store:
        store = self._present(number)
        if self._stage is ServerStage.FROZEN:
            raise UnavailableError(Unavailable.FROZEN, f"{self._me} is frozen")
        if begins and self._stage is ServerStage.HALTED:
            raise UnavailableError(Unavailable.HALTED, f"{self._me} begins no batch now")
        return store

    def _snapshot_of(self, number: object) -> Store:
        copy = self._snapshots.get(number)
        if copy is None:
            raise UnavailableError(Unavailable.LAYOUT, f"{self._me} holds no snapshot {number}")
        return copy

    def _filling(self, number: object) -> PartitionInitialization:
        with self._lock:
            building = self._building
        if not isinstance(building, PartitionInitialization) or building.layout.number != number:
            raise UnavailableError(
                Unavailable.LAYOUT, f"{self._me} has no layout {number} to be filled"
            )
        return building

    # ------------------------------------------------------------------ orders

    def apply_orders(self, reply: ServerReply) -> None:
        """Carry out the trainer's orders; what cannot be done is said in the next report."""
        with self._lock:
            if reply.trainer == self._seen[0] and reply.revision < self._seen[1]:
                return
            self._trouble = ""
            if reply.order is ServerOrder.IDLE:
                self._empty()
            elif reply.order is ServerOrder.BUILD:
                self._keep_present(reply.layout)
                self._data = reply.data
                self._build(reply)
            elif reply.order is not ServerOrder.REFUSED:
                self._take_up(reply)
            frozen = self._store if self._stage is ServerStage.FROZEN else None
            self._snapshots.order(reply.snapshot, frozen)
            self._seen = (reply.trainer, reply.revision)
            self._turn.notify_all()

    def status(self) -> ServerStatus:
        """How things stand now."""
        with self._lock:
            building, store = self._building, self._store
            trouble = self._trouble or self._snapshots.trouble
            if not trouble and building is not None:
                trouble = building.trouble
            return ServerStatus(
                stage=self._stage,
                layout=self._layout,
                built=building.layout.number if building is not None and building.built else 0,
                snapshot=self._snapshots.number,
                applied=Applied() if store is None else Applied.of(store.applied, store.pushes),
                spec=store.spec
                if store is not None
                else (building.store.spec if building is not None else None),
                data=self._data,
                trouble=trouble[:4096],
                figures=ServerFigures(
                    pulls=self._pulls,
                    pushes=self._pushes,
                    bytes_in=self._bytes_in,
                    bytes_out=self._bytes_out,
                    busy_seconds=self._lock.busy_seconds,
                    waited_seconds=self._lock.waited_seconds,
                    duplicates=self._duplicates,
                ),
                seen_revision=self._seen[1],
            )

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self._empty()
            self._snapshots.order(None, None)

    def _keep_present(self, present: Layout | None) -> None:
        """While another layout is built: frozen, or dropped where nobody can come back to it."""
        held = self._layout
        if held is not None and present is not None and held.number == present.number:
            self._enter(ServerStage.FROZEN)
        else:
            self._drop_present()

    def _drop_present(self) -> None:
        self._enter(ServerStage.EMPTY)
        self._layout = self._store = None

    def _empty(self) -> None:
        self._abandon()
        self._drop_present()
        self._data = None

    def _abandon(self) -> None:
        if self._building is not None:
            self._building.abandoned.set()
        self._building = None

    def _enter(self, stage: ServerStage) -> None:
        if stage is not ServerStage.FROZEN:
            self._snapshots.withdraw()
        self._stage = stage

    def _take_up(self, reply: ServerReply) -> None:
        """SERVE, HALT or FREEZE a layout: the one that is held, or the one that has been built."""
        wanted, building = reply.layout, self._building
        if wanted is None:
            self._trouble = f"ordered to {reply.order.value} without a layout"
            return
        if building is not None and building.built and building.layout.number == wanted.number:
            self._layout, self._store, self._building = building.layout, building.store, None
            self._gate = Gate()
            self._gates = self._layout.index_of(self._me) == 0
            self._snapshots.withdraw()
        self._abandon()
        if self._layout is None or self._layout.number != wanted.number:
            held = "nothing" if self._layout is None else f"layout {self._layout.number}"
            self._trouble = f"ordered to {reply.order.value} layout {wanted.number}; holding {held}"
            if self._store is not None:
                self._enter(ServerStage.FROZEN)
            return
        stages = {
            ServerOrder.SERVE: ServerStage.SERVING,
            ServerOrder.HALT: ServerStage.HALTED,
            ServerOrder.FREEZE: ServerStage.FROZEN,
        }
        self._enter(stages[reply.order])

    def _build(self, reply: ServerReply) -> None:
        wanted, present, spec = reply.next, reply.layout, reply.spec
        if wanted is None or spec is None or wanted.index_of(self._me) is None:
            self._trouble = "ordered to build without a layout that has this server, or a model"
            return
        if self._building is not None and self._building.layout.number == wanted.number:
            return
        self._abandon()
        mine = self._store  # if there is any, it is that of the present layout
        owned = wanted.owned_by(self._me)
        stays = reply.source is Source.SERVERS and mine is not None and mine.owned == owned
        store = mine if stays else self._new_share(wanted.number, spec, owned)
        if store is None:
            return
        if reply.source is Source.CHIEF:
            self._building = PartitionInitialization(wanted, store)
        elif present is None or len(present.owners) != len(wanted.owners):
            self._trouble = "ordered to take over from servers of no layout, or of another model"
        else:
            taking = PartitionMigration(
                wanted, store, present, mine, self._token, self._me, self._changed
            )
            self._building = taking
            taking.start()

    def _new_share(self, number: int, spec: ModelSpec, owned: Sequence[int]) -> Store | None:
        """Room for partitions of a layout; None: there is none, which the next report says."""
        size = FLOAT_BYTES * sum(sum(sizes_of(spec, partition)) for partition in owned)
        held = self._store.bytes if self._store is not None else 0
        if self._limit is not None and size + held + SPARE_BYTES > self._limit:
            self._trouble = (
                f"its share of layout {number} takes {size} bytes; with {held} that it holds "
                f"meanwhile and {SPARE_BYTES} beside them that is more than its memory of "
                f"{self._limit}: more servers, or more memory for each"
            )
            return None
        try:
            return Store(spec, owned)
        except MemoryError:
            self._trouble = f"no memory for the {size} bytes of its share of layout {number}"
            return None
