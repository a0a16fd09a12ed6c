"""All parameter servers as one: read rows, push gradients, whatever the layout is or becomes.

A request goes to all servers that it concerns before the first answer is awaited. What fails
because a server moved, halted or died is asked again under the layout that the trainer says is the
present one: a pull changes nothing, and servers drop a push that they have applied. So a caller
sees either its answer or, after a long time without one, an error that says what was wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from penstock.data.errors import DataError, FrameError, TooLargeError
from penstock.data.transport.frame import Frame
from penstock.parameter_server.arrays import Floats, Gradients, Rows, cut
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.layout import Layout, ServerAddress, ServerId
from penstock.parameter_server.spec import ModelSpec
from penstock.parameter_server.wire import BEGIN, IDS, PULL, PUSH, STATE, Unavailable

GIVE_UP_SECONDS: Final = 900.0
NOTHING_BEGINS: Final = frozenset({Unavailable.HALTED, Unavailable.FROZEN})
PAUSES_SECONDS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

Answer = TypeVar("Answer")


class ParametersError(Exception):
    """What a training program is told when it cannot go on."""


class ServersError(ParametersError):
    """The servers refuse what they are asked, or are away for too long."""


class Pushed(Enum):
    """What became of a slot's gradients."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """The slot had been applied, by another worker."""
    OUTDATED = "outdated"
    """The parameters that they are of were lost: nothing was applied, the slot is to be redone."""


class AppliedSlots(NamedTuple):
    """What one server's parameters have seen: ranges of slots, and updates made."""

    ranges: list[tuple[int, int]]
    pushes: int


class Routes:
    """Where a layout has the parameters of a model."""

    def __init__(self, spec: ModelSpec, layout: Layout) -> None:
        self.layout = layout
        self.servers = layout.servers
        self._spec = spec
        self._owners = np.array(layout.owners, dtype=np.int64)
        pieces: list[list[slice]] = [[] for _ in layout.servers]
        for partition, owner in enumerate(layout.owners):
            start, stop = spec.dense_range(partition)
            if start == stop:
                continue
            mine = pieces[owner]
            if mine and mine[-1].stop == start:
                mine[-1] = slice(mine[-1].start, stop)
            else:
                mine.append(slice(start, stop))
        self.dense = pieces
        self._newest: dict[int, tuple[Rows, list[Rows | slice]]] = {}  # by space

    def split(self, space: int, rows: Rows) -> list[Rows | slice]:
        """For each server, which of these rows are its own.

        A batch pushes the rows that it has pulled: the newest answer for each space is kept, for
        the same array, which nobody changes.
        """
        if len(self.servers) == 1:
            return [slice(None)]
        known = self._newest.get(space)
        if known is None or known[0] is not rows:
            known = self._newest[space] = (rows, self._divided(space, rows))
        return known[1]

    def _divided(self, space: int, rows: Rows) -> list[Rows | slice]:
        partitions, _ = self._spec.places[space].of(rows)
        owners = self._owners[partitions]
        by_owner = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[by_owner], np.arange(len(self.servers) + 1))
        return [by_owner[bounds[i] : bounds[i + 1]] for i in range(len(self.servers))]

    def scatter(self, server: int, values: Floats, dense: Floats) -> None:
        """Put a server's dense pieces, one after the other, where they belong."""
        sizes = [piece.stop - piece.start for piece in self.dense[server]]
        if sum(sizes) != values.size:
            raise ServersError(
                f"{self.servers[server].id} sent {values.size} dense numbers of {sum(sizes)}"
            )
        for piece, mine in zip(self.dense[server], cut(values, sizes), strict=True):
            dense[piece] = mine


class Request(NamedTuple):
    """What one server is asked."""

    server: int
    header: list[Any]
    body: list[Any]


class ParameterClient:
    """The servers of one job, as one worker sees them; for one thread."""

    def __init__(
        self,
        spec: ModelSpec,
        token: str,
        name: str,
        present: Callable[[], Layout],
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        """``present``: asks the trainer for the layout that is served; waits until there is one."""
        self.lost: set[ServerId] = set()
        """Servers that do not answer: the trainer wants to know."""
        self._spec = spec
        self._token = token
        self._name = name
        self._present = present
        self._give_up_seconds = give_up_seconds
        self._routes: Routes | None = None
        self._begun_after = 0  # restores of the model that the batch in work read
        self._connections: dict[ServerId, Connection] = {}

    @property
    def count(self) -> int:
        """Servers of the layout that was used last."""
        return len(self._routes.servers) if self._routes else 0

    @property
    def layout(self) -> int:
        """Number of the layout that was used last; 0: none was."""
        return self._routes.layout.number if self._routes else 0

    def begin(self, slot: int | None, staleness: int | None = None) -> Floats | None:
        """Begin a batch: all dense parameters. None when nothing may begin now.

        With a ``staleness`` it waits until the first server lets it begin. Without a slot they are
        only read, which is refused to nobody.
        """

        def ask(routes: Routes) -> Floats:
            header = [routes.layout.number, slot]
            first = [Request(0, [*header, staleness], [])]
            rest = [Request(i, [*header, None], []) for i in range(1, len(routes.servers))]
            dense = np.empty(self._spec.dense_size, np.float32)
            for requests in [first + rest] if staleness is None else [first, rest]:
                for request, answer in zip(
                    requests, self._exchange(routes, BEGIN, requests), strict=True
                ):
                    values = np.frombuffer(answer.body, np.float32)
                    routes.scatter(request.server, values, dense)
            self._begun_after = routes.layout.restores
            return dense

        try:
            return self._asked(ask, frozenset() if slot is None else NOTHING_BEGINS)
        except UnavailableError:
            return None

    def pull(self, wanted: Sequence[tuple[int, Rows]]) -> list[Floats]:
        """The values of rows, given as (space, rows), each row once: (rows, dim) for each."""

        def ask(routes: Routes) -> list[Floats]:
            splits = [routes.split(space, rows) for space, rows in wanted]
            requests, parts = [], []
            for server in range(len(routes.servers)):
                mine = [
                    (i, split[server], rows[split[server]])
                    for i, ((_, rows), split) in enumerate(zip(wanted, splits, strict=True))
                ]
                mine = [part for part in mine if part[2].size]
                if mine:
                    counts = [[wanted[i][0], rows.size] for i, _, rows in mine]
                    header = [routes.layout.number, counts]
                    requests.append(Request(server, header, [rows for _, _, rows in mine]))
                    parts.append(mine)
            values = [
                np.empty((rows.size, self._spec.spaces[space].dim), np.float32)
                for space, rows in wanted
            ]
            answers = self._exchange(routes, PULL, requests)
            for answer, mine in zip(answers, parts, strict=True):
                flat, at = np.frombuffer(answer.body, np.float32), 0
                for i, places, rows in mine:
                    dim = self._spec.spaces[wanted[i][0]].dim
                    values[i][places] = flat[at : at + rows.size * dim].reshape(rows.size, dim)
                    at += rows.size * dim
            return values

        return self._asked(ask)

    def ids(self, space: int) -> Rows:
        """The ids that have a row in a space with a vocabulary, ascending."""

        def ask(routes: Routes) -> Rows:
            header = [routes.layout.number, space]
            requests = [Request(i, header, []) for i in range(len(routes.servers))]
            answers = self._exchange(routes, IDS, requests)
            parts = [np.frombuffer(answer.body, np.int64) for answer in answers if answer.body]
            return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

        return self._asked(ask)

    def push(self, slot: int, sparse: Sequence[Gradients], dense: Floats | None) -> Pushed:
        """Hand in the gradients of the slot that was begun last.

        Gradients of a model that went back to a checkpoint since are not those of the model that
        there is now, and are not handed in.
        """

        def ask(routes: Routes) -> Pushed:
            if routes.layout.restores != self._begun_after:
                return Pushed.OUTDATED
            splits = [routes.split(part.space, part.rows) for part in sparse]
            requests = []
            for server in range(len(routes.servers)):
                counts, body = [], []
                for part, split in zip(sparse, splits, strict=True):
                    rows = part.rows[split[server]]
                    if rows.size:
                        counts.append([part.space, rows.size])
                        body += [rows, part.values[split[server]]]
                if dense is not None:
                    body += [dense[piece] for piece in routes.dense[server]]
                header = [routes.layout.number, slot, counts, dense is not None]
                requests.append(Request(server, header, body))
            answers = self._exchange(routes, PUSH, requests)
            applied = any(answer.header[0] for answer in answers)
            return Pushed.APPLIED if applied else Pushed.REPEATED

        return self._asked(ask)

    def applied(self) -> list[AppliedSlots]:
        """What each server's parameters have seen."""

        def ask(routes: Routes) -> list[AppliedSlots]:
            header = [routes.layout.number, False]
            requests = [Request(i, header, []) for i in range(len(routes.servers))]
            answers = [answer.header for answer in self._exchange(routes, STATE, requests)]
            return [
                AppliedSlots([(int(a), int(b)) for a, b in ranges], int(pushes))
                for ranges, pushes in answers
            ]

        return self._asked(ask)

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ------------------------------------------------------------------ inside

    def _asked(
        self, ask: Callable[[Routes], Answer], stops: frozenset[Unavailable] = frozenset()
    ) -> Answer:
        """The answer, under whatever layout. Raises AwayError for the reasons that stop it."""
        began, failures = time.monotonic(), 0
        while True:
            routes = self._routed()
            try:
                return ask(routes)
            except UnavailableError as error:
                if error.reason in stops:
                    raise
                if error.reason is Unavailable.BAD:
                    raise ServersError(f"a parameter server refused: {error.text}") from error
                if error.reason is Unavailable.BUSY:  # it answers, and had us wait already
                    began, failures = time.monotonic(), 0
                problem: Exception = error
            except FrameError as error:
                problem = error
            if time.monotonic() - began > self._give_up_seconds:
                raise ServersError(
                    f"no answer from the parameter servers for {self._give_up_seconds:.0f} s: "
                    f"{problem}"
                ) from problem
            time.sleep(PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS) - 1)])
            failures += 1
            self._routes = None

    def _routed(self) -> Routes:
        if self._routes is None:
            layout = self._present()
            self._routes = Routes(self._spec, layout)
            known = {server.id for server in layout.servers}
            for server in [server for server in self._connections if server not in known]:
                self._connections.pop(server).close()
            self.lost &= known
        return self._routes

    def _exchange(self, routes: Routes, kind: int, requests: Sequence[Request]) -> list[Frame]:
        """Ask all, then hear all: nobody's answer is left behind on a connection that goes on."""
        try:
            answers, troubles = self._ask_all(routes, kind, requests)
        except TooLargeError as error:
            self.close()
            raise ServersError(str(error)) from error
        except BaseException:  # an interruption, for instance
            self.close()
            raise
        if troubles:
            raise max(troubles, key=_gravity)
        return answers

    def _ask_all(
        self, routes: Routes, kind: int, requests: Sequence[Request]
    ) -> tuple[list[Frame], list[DataError | UnavailableError]]:
        asked: list[Connection | None] = []
        troubles: list[DataError | UnavailableError] = []
        for request in requests:
            server = routes.servers[request.server]
            try:
                connection = self._connection(server)
                connection.send(kind, request.header, request.body)
            except FrameError as error:
                self._lose(server, error, troubles)
                asked.append(None)
            else:
                asked.append(connection)
        answers = []
        for request, heard in zip(requests, asked, strict=True):
            if heard is None:
                continue
            server = routes.servers[request.server]
            try:
                answers.append(heard.receive())
            except UnavailableError as error:
                troubles.append(error)
            except FrameError as error:
                self._lose(server, error, troubles)
            else:
                self.lost.discard(server.id)
        return answers, troubles

    def _connection(self, server: ServerAddress) -> Connection:
        connection = self._connections.get(server.id)
        if connection is None:
            try:
                connection = Connection.connect(server.address, self._token, self._name)
            except FrameError:
                raise
            except DataError as error:  # another job's server has the address now
                raise FrameError(str(error)) from error
            self._connections[server.id] = connection
        return connection

    def _lose(
        self, server: ServerAddress, error: FrameError, troubles: list[DataError | UnavailableError]
    ) -> None:
        connection = self._connections.pop(server.id, None)
        if connection is not None:
            connection.close()
        self.lost.add(server.id)
        troubles.append(error)


def _gravity(trouble: DataError | UnavailableError) -> int:
    """Which of several troubles says best what to do: a halt may hide another layout."""
    if not isinstance(trouble, UnavailableError):
        return 2
    return {
        Unavailable.BAD: 4,
        Unavailable.LAYOUT: 3,
        Unavailable.FROZEN: 1,
        Unavailable.HALTED: 0,
        Unavailable.BUSY: -1,
    }[trouble.reason]
