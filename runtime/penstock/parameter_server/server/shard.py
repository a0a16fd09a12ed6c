"""One server's share of the parameters: what it holds, what it answers, what it is ordered to do.

No sockets: `answer` takes a request that has arrived and gives what to send, from any thread;
`apply_orders` carries out orders; `status` says how things stand. One lock is held while parameters
are read or changed, never while anything is sent or awaited.

Invariant: orders of one trainer that are older than those carried out are passed over, so it does
not matter which reply comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from penstock.job.protocol import DataSpec
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import (
    Applied,
    ServerFigures,
    ServerReply,
    ServerStage,
)
from penstock.parameter_server.server.contents import ShardContents
from penstock.parameter_server.server.order_executor import OrderExecutor
from penstock.parameter_server.server.request_handler import RequestHandler
from penstock.parameter_server.server.requests import Response
from penstock.parameter_server.server.storage.lock import Lock
from penstock.parameter_server.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How things stand with a server; fields as in `ServerReport`."""

    stage: ServerStage
    layout: Layout | None
    built: int
    snapshot: int | None
    uncopied: int | None
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
        self.contents = ShardContents(me, lock := Lock(), changed)
        """To be read; orders alone change it."""
        self._lock = lock
        self._requests = RequestHandler(me, lock, self.contents, changed)
        self._orders = OrderExecutor(me, token, self.contents, changed, memory_limit_bytes)
        self._seen: tuple[str, int] = ("", 0)

    def answer(self, caller: Hashable, kind: int, header: Any, body: memoryview) -> Response:
        """The answer to a request; whatever is wrong with it, there is one."""
        return self._requests.answer(caller, kind, header, body)

    def left(self, caller: Hashable) -> None:
        """A caller's connection has ended."""
        self._requests.left(caller)

    def apply_orders(self, reply: ServerReply) -> None:
        """Carry out the trainer's orders; what cannot be done is said in the next report."""
        with self._lock:
            if reply.trainer == self._seen[0] and reply.revision < self._seen[1]:
                return
            self._orders.carry_out(reply)
            self._seen = (reply.trainer, reply.revision)
            self._requests.wake()

    def status(self) -> ServerStatus:
        """How things stand now."""
        with self._lock:
            contents = self.contents
            building, store = contents.building, contents.store
            trouble = contents.trouble or contents.snapshots.trouble
            if not trouble and building is not None:
                trouble = building.trouble
            return ServerStatus(
                stage=contents.stage,
                layout=contents.layout,
                built=building.layout.number if building is not None and building.built else 0,
                snapshot=contents.snapshots.number,
                uncopied=contents.snapshots.uncopied,
                applied=Applied() if store is None else Applied.of(store.applied, store.pushes),
                spec=store.spec
                if store is not None
                else (building.store.spec if building is not None else None),
                data=contents.data,
                trouble=trouble[:4096],
                figures=self._requests.figures(),
                seen_revision=self._seen[1],
            )

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            self.contents.empty()
            self.contents.snapshots.order(None, None)
