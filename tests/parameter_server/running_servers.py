"""Real parameter servers in this process, under orders from a test instead of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.parameters.orders import eventually
from penstock.parameter_server.layout import Layout, ServerAddress, assign
from penstock.parameter_server.protocol import ServerOrder, ServerReply, Source
from penstock.parameter_server.server.process import ParameterServer
from penstock.parameter_server.server.settings import ServerSettings
from penstock.parameter_server.spec import ModelSpec

TOKEN = "token"


class RunningServer:
    """Some servers and the layout that they serve."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.servers: dict[int, ParameterServer] = {}
        self.layout: Layout | None = None
        self._revision = 0

    def start(self, *ranks: int) -> None:
        """Start servers."""
        for rank in ranks:
            before = self.servers.get(rank)
            incarnation = 0 if before is None else before.id.incarnation + 1
            server = ParameterServer(
                ServerSettings(
                    trainer="127.0.0.1:9", token=TOKEN, rank=rank, incarnation=incarnation
                )
            )
            server.start()
            self.servers[rank] = server

    def kill(self, rank: int) -> None:
        """End a server at once; its connections break."""
        self.servers[rank].close()

    def next_layout(self, *ranks: int, restores: int = 0) -> Layout:
        """The next layout, over servers of these ranks, after so many losses of the model."""
        found = [
            ServerAddress(id=self.servers[rank].id, address=self.servers[rank].address)
            for rank in ranks
        ]
        number = 1 if self.layout is None else self.layout.number + 1
        return assign(number, found, self.spec.partitions, self.layout, restores)

    def order(
        self,
        order: ServerOrder,
        ranks: Sequence[int] | None = None,
        following: Layout | None = None,
        source: Source = Source.SERVERS,
        snapshot: int | None = None,
    ) -> None:
        """Order servers (all of them unless told otherwise) about the present layout."""
        self._revision += 1
        for rank in self.servers if ranks is None else ranks:
            self.servers[rank]._shard.apply_orders(
                ServerReply(
                    trainer="test",
                    revision=self._revision,
                    order=order,
                    layout=self.layout,
                    next=following,
                    source=source,
                    spec=self.spec,
                    snapshot=snapshot,
                )
            )

    def fill(self, fill: Callable[[Layout], None], *ranks: int, restores: int = 0) -> None:
        """Have a layout filled by a chief, and serve it."""
        following = self.next_layout(*ranks, restores=restores)
        self.order(ServerOrder.BUILD, ranks, following, Source.CHIEF)
        fill(following)
        self._serve(following)

    def move(self, *ranks: int) -> None:
        """Move everything to servers of these ranks, and serve."""
        following = self.next_layout(*ranks)
        present = [] if self.layout is None else [s.id.rank for s in self.layout.servers]
        self.order(ServerOrder.FREEZE, present)
        self.order(ServerOrder.BUILD, ranks, following)
        eventually(lambda: all(self.built(rank) == following.number for rank in ranks))
        self._serve(following)

    def built(self, rank: int) -> int:
        """Number of the next layout that a server has built."""
        return self.servers[rank]._shard.status().built

    def snapshot(self, number: int) -> None:
        """Have all take a snapshot, and serve on."""
        self.order(ServerOrder.FREEZE, snapshot=number)
        eventually(
            lambda: all(
                server._shard.status().snapshot == number for server in self.servers.values()
            )
        )
        self.order(ServerOrder.SERVE, snapshot=number)

    def _serve(self, following: Layout) -> None:
        self.layout = following
        owners = [server.id.rank for server in following.servers]
        self.order(ServerOrder.SERVE, owners)
        self.order(ServerOrder.IDLE, [rank for rank in self.servers if rank not in owners])

    def present(self) -> Layout:
        """What a trainer would say."""
        assert self.layout is not None
        return self.layout

    def close(self) -> None:
        """End all servers."""
        for server in self.servers.values():
            server.close()


@contextmanager
def running(spec: ModelSpec) -> Iterator[RunningServer]:
    """Servers that are gone at the end of the block."""
    found = RunningServer(spec)
    try:
        yield found
    finally:
        found.close()
