"""One world of launched processes, and what each of them is told of it.

The ranks of a world follow from its group alone: members in the group's order, and the processes of
each member one after the other. Pods need not have equally many. The names and meanings are
torchrun's (`torch.distributed.elastic.agent.server.local_elastic_agent`), so that programs and
libraries that run under it find what they look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.listener import split_address
from penstock.job.identities import ranks_of
from penstock.job.protocol import Group, MemberId

ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
OMP_NUM_THREADS: Final = "OMP_NUM_THREADS"
NO_LIMIT: Final = 1 << 30
"""Worlds are formed as often as pods come and go: what is counted are failures of pods."""


@dataclass(frozen=True)
class World:
    """The processes of one group's members, as one member sees them.

    Attributes:
        number: of the group: grows with every world of a job.
        sizes: processes of each member, in the group's order.
        index: which member this is.
        host: where rank 0 is.
        port: free there, for the store that rank 0 is to host.
        run_id: the same for all worlds of a job.
    """

    number: int
    sizes: tuple[int, ...]
    index: int
    host: str
    port: int
    run_id: str

    @classmethod
    def of(cls, group: Group, member: MemberId, run_id: str) -> World:
        """The world of a group. Raises ValueError: the member is not in it, or has no address."""
        index = group.index_of(member)
        if index is None:
            raise ValueError(f"{member} is not in group {group.number}")
        host, port = split_address(group.members[0].address)
        sizes = tuple(each.processes for each in group.members)
        return cls(group.number, sizes, index, host, port, run_id)

    @property
    def size(self) -> int:
        """Processes of all members."""
        return sum(self.sizes)

    @property
    def ranks(self) -> range:
        """Of this member's processes."""
        return ranks_of(self.index, self.sizes)

    def environment(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """What one of this member's processes is told; ``environ``: what all of them have."""
        rank, size = str(self.ranks[local_rank]), str(self.size)
        own = {
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(len(self.ranks)),
            "GROUP_RANK": str(self.index),
            "GROUP_WORLD_SIZE": str(len(self.sizes)),
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": str(max(0, self.number - 1)),
            "TORCHELASTIC_MAX_RESTARTS": str(NO_LIMIT),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        usual = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
        if len(self.ranks) > 1:  # each would start a thread for every core
            usual[OMP_NUM_THREADS] = "1"
        return {**usual, **environ, **own}

    def __str__(self) -> str:
        ranks = self.ranks
        named = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        return f"world {self.number}: {named} of {self.size}, in {len(self.sizes)} pods"
