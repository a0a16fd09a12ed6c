"""All that a trainer knows of its job, and has decided.

**Do not touch.** A `State` is changed by `penstock.trainer.control.machine.step` alone; everybody
else reads it. What must hold of it after every event is in `penstock.trainer.control.invariants`.

Parameter servers have a state machine of their own below it (`State.servers`), which that step
tells what concerns them; everybody else only asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.data.ledger import Ledger, SampleOrder
from penstock.job.protocol import DataSpec, EpochAudit
from penstock.parameter_server.control.coordinator import ServerCoordinator
from penstock.parameter_server.control.state import Phase
from penstock.trainer.control.model.agents import AgentRegistry
from penstock.trainer.control.model.group_leases import GroupLeases
from penstock.trainer.control.model.independent_leases import IndependentLeases
from penstock.trainer.control.model.job import DEFAULT_SLOTS_PER_STEP, ControlSettings, JobFacts
from penstock.trainer.control.model.problems import Problems
from penstock.trainer.control.model.rendezvous import Rendezvous
from penstock.trainer.control.model.replica_groups import ReplicaGroups
from penstock.trainer.control.model.shares import StepShares
from penstock.trainer.control.model.silent_copies import SilentCopies
from penstock.trainer.control.model.standstills import Standstills
from penstock.trainer.control.model.summary import Progress
from penstock.trainer.control.model.write_problems import WriteProblems


@dataclass
class State:
    """See the module's docstring; one job's."""

    identity: str
    """Of this life of the trainer."""
    fence_floor: int
    """Fencing numbers are above it, so that no earlier trainer's are taken for ours."""
    settings: ControlSettings
    facts: JobFacts
    rendezvous: Rendezvous
    replica_groups: ReplicaGroups
    holders: IndependentLeases
    servers: ServerCoordinator
    problems: Problems
    write_problems: WriteProblems
    copies: SilentCopies
    standstills: Standstills
    agents: AgentRegistry = field(default_factory=AgentRegistry)
    shares: StepShares = field(default_factory=StepShares)
    progress: Progress = field(default_factory=Progress)
    data: DataSpec | None = None  # once anybody has said what is trained on
    order: SampleOrder | None = None  # of these data
    ledger: Ledger | None = None  # of this order's slots
    audits: dict[int, EpochAudit] = field(default_factory=dict)  # by epoch
    result: dict[str, Any] | None = None
    expected: frozenset[int] | None = None
    """The workers that have a pod, or will have one; None: nobody knows."""

    @classmethod
    def begin(
        cls, facts: JobFacts, identity: str, settings: ControlSettings, fence_floor: int = 0
    ) -> State:
        """Nothing has happened yet."""
        slots = facts.slots_per_step or DEFAULT_SLOTS_PER_STEP
        rendezvous = Rendezvous(slots, settings.timing)
        rendezvous.min_workers = facts.min_workers
        rendezvous.balance = settings.balance_shares
        problems = Problems()
        return cls(
            identity=identity,
            fence_floor=fence_floor,
            settings=settings,
            facts=facts,
            rendezvous=rendezvous,
            replica_groups=ReplicaGroups(settings.timing),
            holders=IndependentLeases(lambda options: Ledger(options, fence_floor)),
            servers=ServerCoordinator(identity, fence_floor),
            problems=problems,
            write_problems=WriteProblems(problems),
            standstills=Standstills(problems),
            copies=SilentCopies(problems, settings.job, independent=facts.independent),
        )

    def expect(self, ranks: Iterable[int] | None) -> None:
        """The workers that have a pod, or will have one, are these."""
        self.expected = None if ranks is None else frozenset(ranks)
        self.replica_groups.expect(self.expected)
        self.rendezvous.expect(self.replica_groups.members_of(self.expected))

    # ------------------------------------------------------------------ what follows from it

    @property
    def group_leases(self) -> GroupLeases | None:
        """The ledger as the present group's; None before there is one."""
        group = self.rendezvous.group
        if group is None or self.ledger is None or self.order is None:
            return None
        return GroupLeases(self.ledger, self.order, group)

    @property
    def least_members(self) -> int:
        """With fewer members nobody trains."""
        return self.replica_groups.least_members(self.facts.min_workers)

    @property
    def holds_steps(self) -> bool:
        """Whether nobody is to take a step now: servers are being saved, or a world is launched.

        Agents end the processes of a launched world themselves, those that hang as well.
        """
        if self.servers.state.phase is Phase.SAVING:
            return True
        members = self.rendezvous.members
        return members.launched and bool(members.present) and not self.rendezvous.training

    @property
    def lease_stop_step(self) -> int:
        """Steps below it may be committed by the group."""
        leases = self.group_leases
        return leases.stop_step if leases is not None else 0

    @property
    def committed_steps(self) -> int:
        """Steps that the surviving model has seen, as far as it was reported."""
        if self.ledger is None or self.order is None:
            return 0
        return self.ledger.watermark // self.order.slots_per_step
