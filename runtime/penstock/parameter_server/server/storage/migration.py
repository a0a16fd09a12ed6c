"""How a server comes by the partitions that it owns in the next layout, beside what it holds.

Either from the memory of the servers that own them in the present layout, which are frozen
meanwhile, or from the chief, which writes them. What is built counts once it is whole; until then
it can be abandoned at any time, and the present layout is what it was.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.data.errors import DataError
from penstock.data.ledger.ranges import RangeSet
from penstock.parameter_server.arrays import Floats, received
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.layout import Layout, ServerAddress, ServerId
from penstock.parameter_server.server.storage.space import BadRequestError
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.wire import PARTITION, READ, STATE, STATED

logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 8
"""Partitions that are asked of one server before the first has come: small ones cost a round trip
each otherwise."""
RETRY_SECONDS: Final = 0.1


class LayoutBuild:
    """The next layout of one server."""

    def __init__(self, layout: Layout, store: Store) -> None:
        self.layout = layout
        self.store = store
        self.built = False
        self.trouble = ""
        self.abandoned = threading.Event()


class PartitionInitialization(LayoutBuild):
    """A layout that the chief fills: written partition by partition, whole once it is sealed."""

    def __init__(self, layout: Layout, store: Store) -> None:
        super().__init__(layout, store)
        self._written: set[int] = set()
        self._lock = threading.Lock()

    def write(self, partition: int, sizes: Sequence[int], body: memoryview) -> None:
        """Take in one partition; a second time as well, by a chief that begins anew.

        Raises:
            ValueError: it does not fit, or the layout is sealed.
        """
        arrays = received(body, sizes)
        with self._lock:
            self._check_open()
            wanted: list[Floats | None] = [array if array.size else None for array in arrays]
            self.store.set_partition(partition, wanted)
            self._written.add(partition)

    def seal(self, applied: RangeSet, pushes: int) -> None:
        """Everything is there. Raises QuestionError: something is not."""
        with self._lock:
            if self.built:
                return
            missing = [p for p in self.store.owned if p not in self._written]
            if missing:
                raise BadRequestError(f"partitions {missing[:10]} have not been written")
            self.store.applied = applied
            self.store.pushes = pushes
            self.built = True

    def _check_open(self) -> None:
        if self.built:
            raise BadRequestError(f"layout {self.layout.number} has been sealed")


class PartitionMigration(LayoutBuild):
    """A layout whose partitions are taken from the servers of the present one."""

    def __init__(
        self,
        layout: Layout,
        store: Store,
        present: Layout,
        mine: Store | None,
        token: str,
        me: ServerId,
        changed: Callable[[], None],
    ) -> None:
        """``mine``: what this server holds of the present layout. ``changed``: built, or trouble.

        With ``store`` the same as ``mine`` nothing has to be taken.
        """
        super().__init__(layout, store)
        self._present = present
        self._mine = mine
        self._token = token
        self._name = str(me)
        self._changed = changed
        self._lock = threading.Lock()
        self._states: list[tuple[list[list[int]], int]] = []
        own = present.index_of(me) if mine is not None else None
        self._wanted: dict[int, list[int]] = {}
        for partition in store.owned:
            self._wanted.setdefault(present.owners[partition], []).append(partition)
        self._local = self._wanted.pop(own, []) if own is not None else []
        self._left = len(self._wanted) + 1

    def start(self) -> None:
        """Take everything in, in threads of its own that end when it is there or abandoned."""
        for server, partitions in self._wanted.items():
            threading.Thread(
                target=self._take_from,
                args=(self._present.servers[server], partitions),
                name="penstock-take",
                daemon=True,
            ).start()
        threading.Thread(target=self._copy, name="penstock-copy", daemon=True).start()

    def _copy(self) -> None:
        state = None
        if self._mine is not None:
            if self._mine is not self.store:
                for partition in self._local:
                    self.store.set_partition(partition, self._mine.partition(partition))
            state = ([list(one) for one in self._mine.applied], self._mine.pushes)
        self._done(state)

    def _take_from(self, server: ServerAddress, partitions: list[int]) -> None:
        while not self.abandoned.is_set():
            try:
                connection = Connection.connect(server.address, self._token, self._name)
                try:
                    self._done(self._take(connection, partitions))
                finally:
                    connection.close()
            except (DataError, UnavailableError, MemoryError, TypeError, ValueError) as error:
                self._say(f"cannot take partitions from {server.id}: {error}")
                self.abandoned.wait(RETRY_SECONDS)
            else:
                return

    def _take(self, connection: Connection, partitions: list[int]) -> Any:
        asked: deque[int] = deque()
        for partition in [*partitions, None]:
            while asked and (partition is None or len(asked) >= IN_FLIGHT):
                if self.abandoned.is_set():
                    return None
                answer = connection.receive()
                if answer.kind != PARTITION:
                    raise BadRequestError(f"an answer of kind {answer.kind} to READ")
                [sizes] = answer.header
                self.store.set_partition(asked.popleft(), received(answer.body, sizes))
            if partition is not None:
                connection.send(READ, [self._present.number, None, partition])
                asked.append(partition)
        answer = connection.ask(STATE, [self._present.number, False])
        if answer.kind != STATED:
            raise BadRequestError(f"an answer of kind {answer.kind} to STATE")
        ranges, pushes = answer.header
        return ranges, pushes

    def _done(self, state: Any) -> None:
        with self._lock:
            self._left -= 1
            if state is not None:
                self._states.append(state)
            if self._left or self.abandoned.is_set():
                return
            first = self._states[0]
            if any(other != first for other in self._states):
                self.trouble = "the servers of the present layout have not applied the same slots"
            else:
                ranges, pushes = first
                if self.store is not self._mine:
                    self.store.applied = RangeSet((start, stop) for start, stop in ranges)
                    self.store.pushes = pushes
                self.built, self.trouble = True, ""
        self._changed()

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.warning("%s", trouble)
            self.trouble = trouble
            self._changed()
