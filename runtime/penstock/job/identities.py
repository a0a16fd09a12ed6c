"""Who is who in a job: the four identities of its processes, defined once.

- A *replica* is a pod: what Scale, quota and ``maxRestarts`` count. `PodIdentity` says which one;
  its name has the pod's number within its role and how often that was replaced.
- A *rank* is one process of a process group, as `torch.distributed` numbers them. Which ranks a
  replica has follows from how many processes each member has: `ranks_of`.
- A *member* is what regroups and is lost together: a session's process, a replica group, or all
  processes that an agent launches. `MemberId` says which life of it.
- A *consumer* is what leases samples or takes batches; one that leases on its own does it under
  `consumer_name`. One that takes batches from data workers chooses a name itself, since a process
  can have several (`penstock.data.consuming`).

``docs/concepts.md`` has the same words for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from penstock.base.enums import Role
from penstock.data.protocol import Count, Message


@dataclass(frozen=True)
class PodIdentity:
    """Which replica this process runs in."""

    job: str
    namespace: str
    uid: str
    role: str
    rank: int
    incarnation: int
    pod: str
    ip: str
    node: str
    token: str
    share_token: str = ""


class MemberId(Message):
    """One life of one member.

    ``rank`` and ``incarnation`` are its replica's; ``nonce`` tells apart the processes that one
    incarnation of a pod starts one after the other.
    """

    rank: Count
    incarnation: Count
    nonce: Annotated[str, Field(min_length=1, max_length=32)]

    def __str__(self) -> str:
        return replica_name(Role.WORKER, self.rank, self.incarnation)


def replica_name(role: Role, rank: int, incarnation: int) -> str:
    """What a replica is called in messages, ``worker-3.0``: its number, and which life of it."""
    return f"{role.value}-{rank}.{incarnation}"


def consumer_name(rank: int, incarnation: int, process: str = "") -> str:
    """The name under which a worker's process leases; ``process`` tells its lives apart."""
    name = replica_name(Role.WORKER, rank, incarnation)
    return f"{name}/{process}" if process else name


def ranks_of(index: int, sizes: Sequence[int]) -> range:
    """The ranks of one member's processes.

    They follow the order of members, those of one without a gap; members need not have equally
    many.

    Args:
        index: of the member.
        sizes: processes of each member, in the group's order.
    """
    first = sum(sizes[:index])
    return range(first, first + sizes[index])
