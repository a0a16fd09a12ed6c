"""How the trainer's orders change what a server holds.

Everything here is called with the lock held and waits for nothing: parameters are taken over on
a thread of the `PartitionMigration`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.parameter_server.arrays import sizes_of
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import ServerOrder, ServerReply, ServerStage, Source
from penstock.parameter_server.server.contents import ShardContents
from penstock.parameter_server.server.storage.migration import (
    PartitionInitialization,
    PartitionMigration,
)
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import FLOAT_BYTES, ModelSpec

SPARE_BYTES: Final = 64 << 20
"""What a server needs beside its parameters: the interpreter and messages under way."""

_STAGES: Final = {
    ServerOrder.SERVE: ServerStage.SERVING,
    ServerOrder.HALT: ServerStage.HALTED,
    ServerOrder.FREEZE: ServerStage.FROZEN,
}


class OrderExecutor:
    """Carries out orders; what cannot be done is said in ``contents.trouble``."""

    def __init__(
        self,
        me: ServerId,
        token: str,
        contents: ShardContents,
        changed: Callable[[], None],
        memory_limit_bytes: int | None,
    ) -> None:
        """``changed``: called when something has happened that the trainer waits for."""
        self._me = me
        self._token = token
        self._contents = contents
        self._changed = changed
        self._limit = memory_limit_bytes

    def carry_out(self, reply: ServerReply) -> None:
        """Carry out the orders of a reply that is not older than the last."""
        contents = self._contents
        contents.clear_trouble()
        if reply.order is ServerOrder.IDLE:
            contents.empty()
        elif reply.order is ServerOrder.BUILD:
            self._keep_present(reply.layout)
            contents.describe_data(reply.data)
            self._build(reply)
        elif reply.order is not ServerOrder.REFUSED:
            self._take_up(reply)
        frozen = contents.store if contents.stage is ServerStage.FROZEN else None
        contents.snapshots.order(reply.snapshot, frozen)

    def _keep_present(self, present: Layout | None) -> None:
        """While another layout is built: frozen, or dropped where nobody can come back to it."""
        held = self._contents.layout
        if held is not None and present is not None and held.number == present.number:
            self._contents.enter(ServerStage.FROZEN)
        else:
            self._contents.drop_present()

    def _take_up(self, reply: ServerReply) -> None:
        """SERVE, HALT or FREEZE a layout: the one that is held, or the one that has been built."""
        wanted, contents = reply.layout, self._contents
        if wanted is None:
            contents.report_trouble(f"ordered to {reply.order.value} without a layout")
        elif contents.take_up(wanted.number):
            contents.enter(_STAGES[reply.order])
        else:
            held = "nothing" if contents.layout is None else f"layout {contents.layout.number}"
            ordered = f"ordered to {reply.order.value} layout {wanted.number}"
            contents.report_trouble(f"{ordered}; holding {held}")
            if contents.store is not None:
                contents.enter(ServerStage.FROZEN)

    def _build(self, reply: ServerReply) -> None:
        contents = self._contents
        wanted, present, spec = reply.next, reply.layout, reply.spec
        if wanted is None or spec is None or wanted.index_of(self._me) is None:
            contents.report_trouble(
                "ordered to build without a layout that has this server, or a model"
            )
            return
        if contents.building is not None and contents.building.layout.number == wanted.number:
            return
        contents.abandon()
        mine = contents.store  # if there is any, it is that of the present layout
        owned = wanted.owned_by(self._me)
        stays = reply.source is Source.SERVERS and mine is not None and mine.owned == owned
        store = mine if stays else self._new_share(wanted.number, spec, owned)
        if store is None:
            return
        if reply.source is Source.CHIEF:
            contents.begin_building(PartitionInitialization(wanted, store))
        elif present is None or len(present.owners) != len(wanted.owners):
            contents.report_trouble(
                "ordered to take over from servers of no layout, or of another model"
            )
        else:
            taking = PartitionMigration(
                wanted, store, present, mine, self._token, self._me, self._changed
            )
            contents.begin_building(taking)
            taking.start()

    def _new_share(self, number: int, spec: ModelSpec, owned: Sequence[int]) -> Store | None:
        """Room for partitions of a layout; None: there is none, which the next report says."""
        contents = self._contents
        size = FLOAT_BYTES * sum(sum(sizes_of(spec, partition)) for partition in owned)
        held = contents.store.bytes if contents.store is not None else 0
        if self._limit is not None and size + held + SPARE_BYTES > self._limit:
            contents.report_trouble(
                f"its share of layout {number} takes {size} bytes; with {held} that it holds "
                f"meanwhile and {SPARE_BYTES} beside them that is more than its memory of "
                f"{self._limit}: more servers, or more memory for each"
            )
            return None
        try:
            return Store(spec, owned)
        except MemoryError:
            contents.report_trouble(
                f"no memory for the {size} bytes of its share of layout {number}"
            )
            return None
