"""All that a trainer knows of a job's parameter servers and their workers, and has decided.

**Do not touch.** A `State` is changed by `penstock.parameter_server.control.machine.step` alone;
everybody else reads it. What must hold of it after every event is in
`penstock.parameter_server.control.invariants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.job.protocol import DataSpec
from penstock.parameter_server.control.records.checkpointing import CheckpointSchedule
from penstock.parameter_server.control.records.initialization import LayoutInitialization
from penstock.parameter_server.control.records.recovery import TrainerRecovery
from penstock.parameter_server.control.records.repair import PartialSlotRepair
from penstock.parameter_server.control.records.revisions import OrderRevisions
from penstock.parameter_server.control.records.servers import ServerRegistry
from penstock.parameter_server.control.records.suspension import Suspension
from penstock.parameter_server.control.records.timeouts import Backoff, Timeouts
from penstock.parameter_server.control.records.transitions import Transitions
from penstock.parameter_server.control.records.workers import WorkerRegistry
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import (
    Applied,
    ServerOrder,
    ServerReport,
    Source,
)
from penstock.parameter_server.spec import ModelSpec


class Phase(StrEnum):
    """Where a job's servers are on their way from one layout to the next.

    ::

        RECOVERING -> INITIALIZING -> OPENING -> SERVING -> HALTING -> FREEZING -> BUILDING
             |            ^             ^  ^                              |            |
             +------------|-------------+  +---------- COPYING <----------+            |
                          |                |              v                            |
                          |                +----------- SAVING                         |
                          |                +-------------------------------------------+
                          +-- from any phase with a layout of which a part is lost
    """

    RECOVERING = "recovering"  # nothing was decided yet in this life of the trainer
    INITIALIZING = "initializing"  # there is no layout: one is formed, and filled by the chief
    OPENING = "opening"  # the servers of a layout are told to serve; not all are known to
    SERVING = "serving"  # workers train
    HALTING = "halting"  # workers end what they have begun
    FREEZING = "freezing"  # until all servers stand still, and have applied the same slots
    COPYING = "copying"  # frozen, until every server has a copy to be saved
    SAVING = "saving"  # frozen, until the chief has read what there is no memory to copy
    BUILDING = "building"  # frozen, until the owners of the next layout have taken over
    DONE = "done"  # the job is over: servers may go


ORDERS: Final = {
    Phase.OPENING: ServerOrder.SERVE,
    Phase.SERVING: ServerOrder.SERVE,
    Phase.HALTING: ServerOrder.HALT,
    Phase.FREEZING: ServerOrder.FREEZE,
    Phase.COPYING: ServerOrder.FREEZE,
    Phase.SAVING: ServerOrder.FREEZE,
    Phase.BUILDING: ServerOrder.FREEZE,
    Phase.DONE: ServerOrder.SERVE,  # of the layout that is left; servers that report are told to go
}
"""What the servers of the present layout are to do in each phase that can have one."""


class Goal(StrEnum):
    """Why the workers are halted."""

    MOVE = "move"
    SAVE = "save"
    END = "end"
    VERIFY = "verify"  # a trainer that was restarted makes sure that its ledger is right


@dataclass
class State:
    """See the module's docstring; one job's."""

    timeouts: Timeouts
    revisions: OrderRevisions
    servers: ServerRegistry
    workers: WorkerRegistry
    recovery: TrainerRecovery
    checkpoints: CheckpointSchedule
    suspension: Suspension
    repair: PartialSlotRepair
    backoff: Backoff
    transitions: Transitions
    active: bool = False  # whether this job has servers
    phase: Phase = Phase.RECOVERING
    goal: Goal | None = None  # from HALTING until workers go on
    spec: ModelSpec | None = None
    data: DataSpec | None = None
    layout: Layout | None = None  # the present one
    next: Layout | None = None  # the one that is being built
    source: Source = Source.CHIEF  # of its parameters
    initialization: LayoutInitialization | None = None  # the newest one
    initializing_since: float | None = None
    agreed_slots: int = 0  # that all servers had applied when they were frozen
    restores: int = 0  # how often the model went back to a checkpoint
    rolling_back: bool = False  # what the last layout held is lost
    ledger_unverified: bool = False  # it may be ahead of the servers
    ledger_behind: bool = False  # the chief filled the layout, the ledger does not know yet
    final_slots: int | None = None  # at the end, saved if anybody saves; None: it goes on
    workers_done: bool = False  # the end is reached, and nobody needs the servers any more
    informed: set[ServerId] = field(default_factory=set)  # servers that know of the end
    rejection_reason: str = ""  # why no worker can be served
    last_error: str = ""  # why a change that is wanted is not made

    @classmethod
    def begin(cls, floor: int = 0, timeouts: Timeouts | None = None) -> State:
        """Nothing is known. ``floor``: revisions are above it, so that no other trainer's are
        taken for ours.
        """
        known = timeouts or Timeouts()
        return cls(
            timeouts=known,
            revisions=OrderRevisions(floor + 1),
            servers=ServerRegistry(known),
            workers=WorkerRegistry(),
            recovery=TrainerRecovery(known),
            checkpoints=CheckpointSchedule(known),
            suspension=Suspension(),
            repair=PartialSlotRepair(known),
            backoff=Backoff(known),
            transitions=Transitions(),
        )

    # ------------------------------------------------------------------ what follows from it

    @property
    def order(self) -> ServerOrder:
        """What the servers of the present layout are to do."""
        return ORDERS.get(self.phase, ServerOrder.IDLE)

    @property
    def recovering(self) -> bool:
        """Whether nobody can be told anything yet; see `ServerReport`."""
        return self.phase is Phase.RECOVERING and self.recovery.awaited

    @property
    def paused(self) -> bool:
        """Whether workers are to begin nothing."""
        stands = self.suspension.wanted and not self.repair.under_way
        return stands or self.phase not in (Phase.SERVING, Phase.DONE)

    @property
    def next_number(self) -> int:
        """Number of the layout that is being built; 0: none is."""
        return self.next.number if self.next is not None else 0

    def applied(self) -> list[Applied]:
        """What the servers of the present layout have applied, by their newest reports."""
        if self.layout is None:
            return []
        known = [self.servers.get(server.id) for server in self.layout.servers]
        return [server.report.applied for server in known if server is not None]

    def has_acknowledged(self, server: ServerId) -> bool:
        """Whether a server has reported under the newest orders."""
        known = self.servers.get(server)
        return known is not None and self.revisions.acknowledged(known.report)

    def all_report(self, layout: Layout, holds: Callable[[ServerReport], bool]) -> bool:
        """Whether all servers of a layout have said so since the newest order."""
        for server in layout.servers:
            known = self.servers.get(server.id)
            if known is None or not self.has_acknowledged(server.id) or not holds(known.report):
                return False
            held = known.report.layout
            if layout is self.layout and (held is None or held.number != layout.number):
                return False
        return True

    def have_built(self, following: Layout) -> bool:
        """Whether all servers of the next layout have all of it."""
        return self.all_report(following, lambda report: report.built == following.number)

    def find_lost(self, layout: Layout, now: float) -> list[ServerId]:
        """Owners of whose part nothing is left, or who do not do as they are told."""
        suspected = self.workers.suspected_servers(now)
        began = self.recovery.began or 0.0
        return [
            server.id
            for server in layout.servers
            if self.servers.is_lost(server.id, server.id in suspected, began, now)
        ]

    def find_trouble(self, layout: Layout) -> str:
        """What keeps a server from doing its part; empty: nothing does."""
        return self._trouble(layout, uncopied=False)

    def find_uncopied(self, layout: Layout) -> str:
        """Which server has no memory for a copy, as it says so; empty: none."""
        return self._trouble(layout, uncopied=True)

    def _trouble(self, layout: Layout, *, uncopied: bool) -> str:
        for server in layout.servers:
            known = self.servers.get(server.id)
            if known is None or not self.has_acknowledged(server.id):
                continue
            report = known.report
            if report.trouble and (report.uncopied is not None) == uncopied:
                return f"{server.id}: {report.trouble}"
        return ""
