"""What a trainer decides about parameter servers: when to halt, move, restore and save.

Level-triggered: `Reconfiguration.decide` looks at everything anew, with the time as an argument. It
keeps, for any interleaving of reports, crashes, restarts of the trainer and changes of what is
wanted:

- Of all layouts at most one is served. The next one is served only when every owner of the present
  one is known to be frozen and every owner of the next one has built it; an order is taken to be
  carried out only by a report that was made after it
  (`penstock.parameter_server.control.revisions`).
- All servers of a layout have applied the same slots when it is moved or saved. A slot that a dead
  worker left half done is leased again first.
- The ledger is never ahead of the servers: where they go back to a checkpoint, it goes back too.
- No wait is without an end: a worker that does not stop loses its lease, a server that does not
  follow loses its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

from penstock.data.ledger import Ledger, LedgerError
from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec
from penstock.parameter_server.control.checkpointing import CheckpointSchedule
from penstock.parameter_server.control.initialization import LayoutInitialization
from penstock.parameter_server.control.recovery import TrainerRecovery
from penstock.parameter_server.control.repair import PartialSlotRepair
from penstock.parameter_server.control.revisions import OrderRevisions
from penstock.parameter_server.control.servers import ServerRegistry
from penstock.parameter_server.control.suspension import Suspension
from penstock.parameter_server.control.timeouts import Backoff, Timeouts
from penstock.parameter_server.control.transitions import Transitions
from penstock.parameter_server.control.workers import WorkerRegistry
from penstock.parameter_server.layout import Layout, ServerAddress, ServerId, assign
from penstock.parameter_server.protocol import (
    Applied,
    ServerOrder,
    ServerReport,
    ServerStage,
    Source,
)
from penstock.parameter_server.spec import ModelSpec

LOG = logging.getLogger("penstock.trainer")


class Goal(StrEnum):
    """Why the workers are halted."""

    MOVE = "move"
    SAVE = "save"
    END = "end"
    VERIFY = "verify"  # a trainer that was restarted makes sure that its ledger is right


class Reconfiguration:
    """What is known of a job's servers and workers, and what is decided from that."""

    def __init__(self, identity: str, floor: int = 0, timeouts: Timeouts | None = None) -> None:
        """``floor``: revisions are above it, so that no other trainer's are taken for ours."""
        self.identity = identity
        self.timeouts = timeouts or Timeouts()
        self.roster = ServerRegistry(self.timeouts)
        self.crew = WorkerRegistry()
        self.transitions = Transitions()
        self.orders = OrderRevisions(floor + 1)
        self.survivors = TrainerRecovery(self.timeouts)
        self.saves = CheckpointSchedule(self.timeouts)
        self.suspension = Suspension()
        self.mending = PartialSlotRepair(self.timeouts)
        self.retry = Backoff(self.timeouts)
        self.active = False  # whether this job has servers
        self.spec: ModelSpec | None = None
        self.data: DataSpec | None = None
        self.layout: Layout | None = None  # the present one
        self.order = ServerOrder.SERVE  # what its servers are to do: SERVE, HALT or FREEZE
        self.opened = False  # all of them are known to serve it
        self.next: Layout | None = None
        self.source = Source.CHIEF
        self.settled = False  # the end is reached, and saved if anybody saves
        self.through = False  # and nobody needs the servers any more
        self.finished = False  # servers are told to go
        self.refusal = ""  # why no worker can be served
        self.trouble = ""  # why a change that is wanted is not made
        self.restores = 0  # how often the model went back to a checkpoint
        self._going_back = False  # what the last layout held is lost
        self._goal: Goal | None = None
        self._doubtful = False  # whether the ledger may be ahead of the servers
        self._from_chief = False  # the present layout was filled, the ledger does not know yet
        self._agreed = 0  # slots that all servers had applied when they were frozen
        self._final_slots = 0
        self._told: set[ServerId] = set()  # that the job is done
        self._fill: LayoutInitialization | None = None
        self._found_since: float | None = None

    @property
    def next_number(self) -> int:
        """Number of the layout that is being built; 0: none is."""
        return self.next.number if self.next is not None else 0

    # ------------------------------------------------------------------ decisions

    def decide(self, ledger: Ledger | None, now: float) -> None:
        """Look at everything anew; may end leases and take the ledger back."""
        self.through = self.finished or (self.settled and self.crew.through(now))
        if not self.active or self.finished:
            return
        self.survivors.begin(now)
        if self.survivors.fresh and not self._take_up(now):
            return
        keep = {s.id for layout in (self.layout, self.next) if layout for s in layout.servers}
        self.roster.forget(keep, now)
        if self.layout is not None:
            self._keep(ledger, now)
        if self.layout is None and ledger is not None:
            self._found(ledger, now)

    def _take_up(self, now: float) -> bool:
        """Go on where an earlier trainer was; False while that is not known well enough."""
        if not self.survivors.known(self.roster, self.crew, now):
            return False
        newest = self.survivors.newest(self.roster) if self.survivors.awaited else None
        self.survivors.end()
        if newest is not None:
            LOG.info("took up layout %d of %d servers", newest.number, len(newest.servers))
            self.layout, self._doubtful = newest, True
            self.restores = max(self.restores, newest.restores)
            self.survivors.serve(newest.number)
            self._serve(now)
            self.orders.place(now)
        return True

    # ------------------------------------------------------------------ with a layout

    def _keep(self, ledger: Ledger | None, now: float) -> None:
        assert self.layout is not None
        following = self.next
        if following is not None and self._is_whole(following, now):
            self._switch(now)
        if self.suspension.wanted and self._may_part(now):
            self._part(now)
            return
        lost = self._lost(self.layout, now)
        if lost:
            self._abandon(lost, now)
            return
        if self.next is not None:
            self._mind_build(now)
            return
        if self.order is ServerOrder.SERVE and not self.opened:
            self._open(ledger, now)
        if ledger is None:
            return
        if self.order is ServerOrder.SERVE and self.opened:
            self._train(ledger, now)
        if self.order is ServerOrder.HALT:
            self._halt(ledger, now)
        if self.order is ServerOrder.FREEZE:
            self._freeze(ledger, now)

    def _is_whole(self, following: Layout, now: float) -> bool:
        """Whether all servers of the next layout have built it, and live."""
        return self._all(following, self._has_built) and not self._lost(following, now)

    def _lost(self, layout: Layout, now: float) -> list[ServerId]:
        """Owners of whose part nothing is left, or who do not do as they are told."""
        accused = self.crew.accused(now)
        began = self.survivors.began or 0.0
        if layout is self.layout:
            late = now - self.orders.given_at >= self.timeouts.freeze
            stuck = late and self.order is ServerOrder.SERVE and not self.opened
            for server in layout.servers:
                known = self.roster.get(server.id)
                if known is not None and self.orders.placed_with(known.report):
                    held = known.report.layout
                    odd = held is None or held.number != layout.number
                    odd = odd or (stuck and known.report.stage is not ServerStage.SERVING)
                    known.odd_since = (known.odd_since or now) if odd else None
        return [
            server.id
            for server in layout.servers
            if self.roster.is_lost(server.id, server.id in accused, began, now)
        ]

    def _open(self, ledger: Ledger | None, now: float) -> None:
        """Workers may go on once all servers serve."""
        assert self.layout is not None
        serving = self._all(self.layout, lambda report: report.stage is ServerStage.SERVING)
        if not serving:
            return
        if self._from_chief:
            if ledger is None:
                return
            applied = self.applied()[0]
            if not self._go_back(ledger, applied):
                return
            self._from_chief = False
        self.opened = True
        self.refusal = ""
        self.transitions.end("serve", now)
        self.orders.news()

    def _go_back(self, ledger: Ledger, applied: Applied) -> bool:
        """The ledger follows a model that was restored."""
        apart = ledger.leases() or _booked(ledger).digest != applied.digest
        try:
            if apart and (ledger.frontier or applied.watermark):
                ledger.adopt(applied.watermark)
        except LedgerError as error:
            self.refusal = f"the checkpoint does not belong to these data: {error}"
            return False
        self._doubtful = False
        return True

    def _train(self, ledger: Ledger, now: float) -> None:
        if self.saves.mind(self.crew, self.orders, now):
            self.orders.give(now)
        if self.mending.goes_on(ledger.watermark, now):
            return
        self._goal = self._choose(ledger, now)
        if self._goal is not None:
            self.transitions.begin(self._goal.value, now)
            self.order = ServerOrder.HALT
            self.orders.give(now)

    def _choose(self, ledger: Ledger, now: float) -> Goal | None:
        """Why to halt now; None: there is no reason."""
        if self.retry.waits(now):
            return None
        if self._target(now):
            return Goal.MOVE
        if self._doubtful:
            return Goal.VERIFY
        if not self.saves.may_begin(now):
            return None
        if self.suspension.wanted:
            return None if self.suspension.is_kept(self.saves, self.crew, now) else Goal.SAVE
        if ledger.finished:
            return Goal.END if self._may_settle(now) else None
        return Goal.SAVE if self.saves.is_due(ledger.consumed, self.crew, now) else None

    def _may_settle(self, now: float) -> bool:
        """At the end; where all workers died just before it, others will come and save."""
        there = self.crew.chief(now) is not None or self.crew.any_closed
        return there and not self.settled

    def _halt(self, ledger: Ledger, now: float) -> None:
        """Until no lease is open."""
        if self._goal is Goal.MOVE and not self._target(now):
            self._goal = self._choose(ledger, now)
        if self._goal is None:
            self._serve(now)
            return
        holders = {lease.holder for lease in ledger.leases()}
        waited = now - self.orders.given_at
        if waited < self.timeouts.halt and holders - self.crew.overdue(waited):
            return
        for holder in holders:
            LOG.warning("%s did not stop for a change of the servers: its lease ends", holder)
            ledger.release(holder)
        self.transitions.reached("halt", now)
        self.order = ServerOrder.FREEZE
        self.orders.give(now)

    def _freeze(self, ledger: Ledger, now: float) -> None:
        """Until all servers are frozen with the same slots; then the change, or the copy."""
        assert self.layout is not None
        frozen = self._all(
            self.layout,
            lambda report: (
                report.stage is ServerStage.FROZEN and report.snapshot == self.saves.snapshot
            ),
        )
        copying = self.saves.snapshot is not None and not self.saves.writing
        if not frozen:
            trouble = self._trouble_of(self.layout)
            if trouble or now - self.orders.given_at >= self.timeouts.freeze:
                LOG.warning("%s; going on", trouble or "servers did not freeze in time")
                if copying:
                    self.saves.fail(now)
                self.saves.drop()
                self.retry.later(now)
                self._serve(now)
            return
        if copying:
            self.transitions.reached("copy", now)
            self.saves.copied(now)
            self._serve(now)
            return
        self.transitions.reached("freeze", now)
        applied = self.applied()
        if len({(each.slots, each.watermark, each.digest) for each in applied}) > 1:
            self._mend(ledger, applied, now)
            return
        self.mending.end()
        self.retry.succeeded()
        self._agreed = applied[0].slots
        self._verify(ledger, applied[0])
        self._act(ledger, applied[0], now)

    def _act(self, ledger: Ledger, applied: Applied, now: float) -> None:
        """Everything stands still and agrees: do what it was halted for."""
        if target := self._target(now):
            self._move(target, now)
            return
        self.suspension.stand(applied.slots)
        saves = self.saves.has_saver(self.crew, now) and applied.slots != self.saves.saved
        at_end = ledger.finished and self._may_settle(now)
        wanted = (at_end and not self.saves.given_up) or self._goal is Goal.SAVE
        if saves and wanted:
            self.transitions.name(f"save at {applied.slots} slots")
            self._copy(applied.slots, now)
            return
        if at_end:
            self.settled, self._final_slots = True, applied.slots
            if saves:
                LOG.error("the job ends without a checkpoint of its last state")
        self._serve(now)

    def _verify(self, ledger: Ledger, applied: Applied) -> None:
        """The ledger must not be ahead of the servers; with no lease open that can be told."""
        ours = _booked(ledger)
        ahead = ours.slots > applied.slots or ours.watermark > applied.watermark
        if ahead or (self._doubtful and ours.digest != applied.digest):
            LOG.info(
                "the ledger follows the servers: %d slots instead of %d", applied.slots, ours.slots
            )
            ledger.adopt(min(applied.watermark, ours.watermark))
        self._doubtful = False

    def _mend(self, ledger: Ledger, applied: list[Applied], now: float) -> None:
        """Servers differ: a worker ended between two of them. Its slots are done again first."""
        self.mending.attempts += 1
        counts = ", ".join(str(each.slots) for each in applied)
        LOG.info("servers have applied %s slots: what is half done is completed first", counts)
        if self.suspension.wanted and not self.crew.training(now):
            LOG.warning("nobody is left to complete it: the newest checkpoint is what will be left")
            self.suspension.give_up(self.saves)
            self._serve(now)
            return
        if self.mending.is_hopeless:
            self._abandon([], now)
            return
        self.mending.begin(ledger.frontier, now)
        if self.mending.attempts > 1 or ledger.finished:
            ledger.adopt(min(*(each.watermark for each in applied), ledger.watermark))
        self._serve(now)

    # ------------------------------------------------------------------ moves

    def _target(self, now: float) -> list[ServerAddress]:
        """The servers that should own the parameters instead of the present ones; empty: none."""
        assert self.layout is not None
        if self.retry.waits(now) or self.suspension.wanted:
            return []
        target, self.trouble = self.roster.change(self.layout, self.spec, now)
        return target

    def _move(self, target: list[ServerAddress], now: float) -> None:
        assert self.layout is not None
        self.transitions.name(f"servers {len(self.layout.servers)} -> {len(target)}")
        self.saves.drop()
        self.saves.after_move = self.saves.has_saver(self.crew, now)
        number = self.survivors.new_number()
        self.next = assign(
            number, target, len(self.layout.owners), self.layout, restores=self.restores
        )
        self.source = Source.SERVERS
        self.orders.give(now)

    def _mind_build(self, now: float) -> None:
        """A newcomer that dies or takes too long: the present layout, which is whole, goes on."""
        assert self.layout is not None
        assert self.next is not None
        owners = {server.id for server in self.layout.servers}
        lost = [server for server in self._lost(self.next, now) if server not in owners]
        trouble = self._trouble_of(self.next)
        late = now - self.orders.given_at >= self.timeouts.build
        if lost or late or trouble:
            why = f"{lost[0]} went away" if lost else trouble or "servers were too slow"
            LOG.warning("%s while taking over; the present servers go on", why)
            self.transitions.name(f"servers {len(self.layout.servers)}, change given up")
            self.next = None
            self.retry.later(now)
            self._serve(now)

    def _trouble_of(self, layout: Layout) -> str:
        """What keeps a server from building its part; empty: nothing does."""
        for server in layout.servers:
            known = self.roster.get(server.id)
            if known is not None and known.report.trouble and self._heard(server.id):
                return f"{server.id}: {known.report.trouble}"
        return ""

    def _switch(self, now: float) -> None:
        """The next layout is the present one."""
        assert self.next is not None
        moved = self.source is Source.SERVERS
        self.layout, self.next = self.next, None
        self.restores, self._going_back = self.layout.restores, False
        self.survivors.serve(self.layout.number)
        self.retry.succeeded()
        self._from_chief = not moved
        self.transitions.reached("move" if moved else "fill", now)
        self.opened = False
        self.order = ServerOrder.SERVE
        self.orders.place(now)
        self.roster.believe()
        if moved and self.saves.after_move:
            self._copy(self._agreed, now)

    def _copy(self, slots: int, now: float) -> None:
        """Have every server keep a copy as it is now."""
        self.order = ServerOrder.FREEZE
        self.saves.copy(slots)
        self.orders.give(now)

    # ------------------------------------------------------------------ without a layout

    def _may_part(self, now: float) -> bool:
        """Whether the servers of a suspended job, all of them asked to go, are needed no more."""
        assert self.layout is not None
        leave = all(self.roster.is_leaving(server.id) for server in self.layout.servers)
        return leave and self.suspension.is_kept(self.saves, self.crew, now)

    def _part(self, now: float) -> None:
        """Nobody is to come and take over: servers that are to go may go at once."""
        kept = self.saves.saved
        what = "nothing was saved" if kept is None else f"the checkpoint of {kept} slots is left"
        LOG.info("the job is suspended and its servers go: %s", what)
        self._drop_layout(now)

    def _abandon(self, lost: list[ServerId], now: float) -> None:
        """What the layout held is lost as a whole: parameters depend on one another."""
        assert self.layout is not None
        names = ", ".join(str(server) for server in lost)
        what = f"{names} lost" if names else "servers differ"
        if not self.transitions.current:
            seen = [known.seen for server in lost if (known := self.roster.get(server)) is not None]
            self.transitions.begin(what, min([*seen, now]))
            self.transitions.reached("notice", now)
        else:
            self.transitions.name(what)
        LOG.warning("%s: going back to the newest checkpoint", what)
        self._going_back = True
        self._drop_layout(now)

    def _drop_layout(self, now: float) -> None:
        self.layout = self.next = None
        self.opened = False
        self.mending.end()
        self.roster.believe()
        self.saves.drop()
        self._found_since = None
        self.retry.at_once()
        self.orders.give(now)

    def _found(self, ledger: Ledger, now: float) -> None:
        """Form a layout whose parameters come from a checkpoint, or are the initial ones."""
        if self._found_since is None:
            self._found_since = now
        if self.suspension.wanted:
            if self.next is not None:
                self.next = self._fill = None
                self.orders.give(now)
            return
        if self.next is not None and not self._mind_fill(now):
            return
        if self.retry.waits(now) or self.spec is None:
            return
        servers = self.roster.founders(not self.survivors.number, self._found_since, now)
        chief = self.crew.elect(now)
        if not servers or chief is None or not self._fits(servers):
            return
        newest, known = chief.report.checkpoint, self.saves.saved
        if known is not None and (newest or 0) < known:
            if now - self._found_since < self.timeouts.recover:
                return  # whoever has it may be on its way
            LOG.warning("the checkpoint of %d slots is not to be had", known)
        if self.settled and (newest or 0) < self._final_slots:
            self.refusal = (
                "a parameter server was lost after the end of the training, and nobody has a "
                "checkpoint of its last state"
            )
            return
        self.saves.saved = newest
        self.transitions.begin("first layout", now)
        origin = f"the checkpoint of {newest} slots" if newest is not None else "the beginning"
        back = self._going_back or ledger.consumed > (newest or 0)
        begin = "server begins" if len(servers) == 1 else "servers begin"
        level = logging.WARNING if back and newest is None else logging.INFO
        LOG.log(level, "%d parameter %s at %s, by %s", len(servers), begin, origin, chief.id)
        self.next = assign(
            self.survivors.new_number(),
            servers,
            self.spec.partitions,
            restores=self.restores + back,
        )
        self.source = Source.CHIEF
        self._fill = LayoutInitialization(self.next.number, chief.id, newest)
        self.orders.give(now)

    def _fits(self, servers: list[ServerAddress]) -> bool:
        """Whether the model fits; at the beginning, if nobody else is to come, it is refused."""
        self.trouble = self.roster.short(self.spec, servers)
        first = not self.survivors.ours and not self.roster.missing(servers)
        self.refusal = self.trouble if first else ""
        return not self.trouble

    def _mind_fill(self, now: float) -> bool:
        """Follow the filling of the next layout; True if it has to be begun anew."""
        assert self.next is not None
        assert self._fill is not None
        if self._all(self.next, self._has_built):
            self._switch(now)
            return False
        if self._fill.told is None and all(self._heard(s.id) for s in self.next.servers):
            self._fill.told = self.orders.news()
        late = now - self.orders.given_at >= self.timeouts.fill
        if lost := self._lost(self.next, now):
            why = f"{lost[0]} went away"
        elif trouble := self._trouble_of(self.next):
            why = self.trouble = trouble
            if not self.survivors.ours:  # as for a model that fits nowhere
                self.refusal = trouble
            self.retry.later(now)
        elif why := self._fill.failure(self.crew, late, now):
            self.crew.pass_over(self._fill.by, now + self.timeouts.fill)
            if not self._fill.gone(self.crew, now):
                self.retry.later(now)
        else:
            return False
        LOG.warning("layout %d could not be filled: %s", self.next.number, why)
        self.next = self._fill = None
        self.orders.give(now)
        return True

    # ------------------------------------------------------------------ inside

    def _serve(self, now: float) -> None:
        self.order, self.opened = ServerOrder.SERVE, False
        self._goal = None
        self.orders.give(now)

    def _heard(self, server: ServerId) -> bool:
        known = self.roster.get(server)
        return known is not None and self.orders.heard(known.report)

    def _all(self, layout: Layout, holds: Callable[[ServerReport], bool]) -> bool:
        """Whether all servers of a layout have said so since the newest order."""
        for server in layout.servers:
            known = self.roster.get(server.id)
            if known is None or not self._heard(server.id) or not holds(known.report):
                return False
            held = known.report.layout
            if layout is self.layout and (held is None or held.number != layout.number):
                return False
        return True

    def _has_built(self, report: ServerReport) -> bool:
        return report.built == self.next_number

    def applied(self) -> list[Applied]:
        """What the servers of the present layout have applied, by their newest reports."""
        if self.layout is None:
            return []
        known = [self.roster.get(server.id) for server in self.layout.servers]
        return [server.report.applied for server in known if server is not None]


def _booked(ledger: Ledger) -> Applied:
    """The slots that a ledger has for consumed, to be compared with what servers have applied."""
    ranges = RangeSet((start, stop) for start, stop in ledger.snapshot()["consumed"])
    return Applied.of(ranges, 0)
