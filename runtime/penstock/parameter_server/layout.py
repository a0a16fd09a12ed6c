"""Which server owns which partition, and how that changes with as little moved as possible.

A layout is numbered; the number fences. A server answers only those who speak of the layout that it
serves, so that no worker can read or change parameters where they no longer live.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from penstock.base.enums import Role
from penstock.job.identities import replica_name
from penstock.job.protocol import Count, Message


class ServerId(Message):
    """One life of one server process of a rank."""

    rank: Count
    incarnation: Count
    nonce: Annotated[str, Field(min_length=1, max_length=32)]

    def __str__(self) -> str:
        return replica_name(Role.PS, self.rank, self.incarnation)


class ServerAddress(Message):
    """A server and where it takes data connections: HOST:PORT."""

    id: ServerId
    address: Annotated[str, Field(min_length=1, max_length=300)]


class Layout(Message):
    """Owners of all partitions: ``owners[p]`` is an index into ``servers``.

    ``restores`` is how often the parameters had gone back to a checkpoint when it was formed: what
    all servers hold and report outlives the trainer that counted it.
    """

    number: Annotated[int, Field(ge=1, lt=1 << 62)]
    servers: Annotated[tuple[ServerAddress, ...], Field(min_length=1, max_length=4096)]
    owners: Annotated[tuple[Count, ...], Field(min_length=1, max_length=4096)]
    restores: Count = 0

    @model_validator(mode="after")
    def _complete(self) -> Layout:
        if (last := max(self.owners)) >= len(self.servers):
            raise ValueError(f"owners: {last} of {len(self.servers)} servers; they count from 0")
        return self

    def owned_by(self, server: ServerId) -> tuple[int, ...]:
        """The partitions of one server, in order."""
        index = self.index_of(server)
        return tuple(p for p, owner in enumerate(self.owners) if owner == index)

    def index_of(self, server: ServerId) -> int | None:
        """The place of a server in the layout; None when it has none."""
        for index, other in enumerate(self.servers):
            if other.id == server:
                return index
        return None


def assign(
    number: int,
    servers: Sequence[ServerAddress],
    partitions: int,
    previous: Layout | None = None,
    restores: int = 0,
) -> Layout:
    """The next layout: shares as equal as can be, and the fewest partitions moved.

    A new life of a rank takes over what the rank had. With more servers than partitions the first
    ones own one each.
    """
    servers = sorted(servers, key=lambda server: server.id.rank)[:partitions]
    share, left = divmod(partitions, len(servers))
    counts = [share + (index < left) for index in range(len(servers))]
    index_of_rank = {server.id.rank: index for index, server in enumerate(servers)}
    owners: list[int | None] = [None] * partitions
    if previous is not None and len(previous.owners) == partitions:
        for partition, owner in enumerate(previous.owners):
            index = index_of_rank.get(previous.servers[owner].id.rank)
            if index is not None and counts[index] > 0:
                owners[partition] = index
                counts[index] -= 1
    free = [index for index, count in enumerate(counts) for _ in range(count)]
    taken = iter(free)
    return Layout(
        number=number,
        servers=tuple(servers),
        owners=tuple(next(taken) if owner is None else owner for owner in owners),
        restores=restores,
    )
