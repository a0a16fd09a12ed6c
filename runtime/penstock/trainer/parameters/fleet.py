"""The trainer's side of parameter servers: when to halt, move, restore and save, without I/O.

Level-triggered: each report replaces what was known of its sender, and `Fleet.decide` looks at
everything anew, with the time as an argument. It keeps, for any interleaving of reports, crashes,
restarts of the trainer and changes of what is wanted:

- Of all layouts at most one is served. The next one is served only when every owner of the present
  one is known to be frozen and every owner of the next one has built it; an order is taken to be
  carried out only by a report that was made after it (`ServerReport.seen_revision`).
- All servers of a layout have applied the same slots when it is moved or saved. A slot that a dead
  worker left half done is leased again first.
- The ledger is never ahead of the servers: where they go back to a checkpoint, it goes back too.
- No wait is without an end: a worker that does not stop loses its lease, a server that does not
  follow loses its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from penstock.data.ledger import Ledger, LedgerError
from penstock.data.ledger.ranges import RangeSet
from penstock.trainer.parameters.crew import Crew, Worker
from penstock.trainer.parameters.layout import Layout, ServerAddress, ServerId, assign
from penstock.trainer.parameters.protocol import (
    Applied,
    ServerOrder,
    ServerReply,
    ServerReport,
    Source,
    Stage,
    WorkerReply,
    WorkerReport,
)
from penstock.trainer.parameters.roster import Patience, Roster
from penstock.trainer.parameters.spec import ModelSpec
from penstock.trainer.parameters.transitions import Transitions
from penstock.trainer.protocol import LeaseReply, MemberId

LOG = logging.getLogger("penstock.trainer")

NUMBERS_SKIPPED = 1000
"""A trainer that was restarted numbers layouts so far above those that it hears of: its predecessor
may have ordered some that nobody remembers."""
MENDS = 3
"""After so many attempts to complete what is half done, the checkpoint is used instead."""
MAX_FAILED_SAVES = 3
SAVE_SHARE = 0.1
"""Saving takes at most this part of the time."""


class Goal(StrEnum):
    """Why the workers are halted."""

    MOVE = "move"
    SAVE = "save"
    END = "end"
    VERIFY = "verify"  # a trainer that was restarted makes sure that its ledger is right


class Fleet:
    """The servers and workers of one job, and the layout that is served."""

    def __init__(self, identity: str, floor: int = 0, patience: Patience | None = None) -> None:
        """``floor``: revisions are above it, so that no other trainer's are taken for ours."""
        self.identity = identity
        self.patience = patience or Patience()
        self.roster = Roster(self.patience)
        self.crew = Crew()
        self.transitions = Transitions()
        self.revision = floor + 1
        self.active = False  # whether this job has servers
        self.spec: ModelSpec | None = None
        self.layout: Layout | None = None  # the present one
        self.order = ServerOrder.SERVE  # what its servers are to do: SERVE, HALT or FREEZE
        self.opened = False  # all of them are known to serve it
        self.next: Layout | None = None
        self.source = Source.CHIEF
        self.snapshot: int | None = None
        self.saving = False  # all servers have the snapshot, the chief writes it
        self.settled = False  # the end is reached, and saved if anybody saves
        self.through = False  # and nobody needs the servers any more
        self.finished = False  # servers are told to go
        self.saved: int | None = None  # slots in the newest checkpoint that was made or heard of
        self.fill_checkpoint: int | None = None
        self.refusal = ""  # why no worker can be served
        self.trouble = ""  # why a change that is wanted is not made
        self.restores = 0
        self._goal: Goal | None = None
        self._since = self.revision  # that of the newest order to servers
        self._since_time = 0.0
        self._held_since = self.revision  # from when on the owners should hold the present layout
        self._began: float | None = None  # first call
        self._number = 0  # the highest that was ever heard of
        self._present_number = 0  # of the layout that was served last, as far as was written down
        self._fresh = True  # nothing was decided yet in this life
        self._survivors = False  # this job may have been running before this life
        self._heard_at: float | None = None
        self._had_layout = False  # in this life
        self._doubtful = False  # whether the ledger may be ahead of the servers
        self._agreed = 0  # slots that all servers had applied when they were frozen
        self._final_slots = 0
        self._failed_saves = 0
        self._told: set[ServerId] = set()  # that the job is done
        self._from_chief = False
        self._filler: Worker | None = None
        self._fill_since: int | None = None  # revision at which it was told to fill
        self._saver: MemberId | None = None
        self._saver_since = 0  # revision at which it was told to save
        self._found_since: float | None = None
        self._missing_since: float | None = None
        self._retry_at = float("-inf")
        self._failures = 0  # changes that failed one after the other
        self._save_at = float("-inf")
        self._save_retry_at = float("-inf")
        self._save_since = 0.0
        self._save_after_move = False
        self._mends = 0
        self._mend_to: int | None = None
        self._mend_until = 0.0

    # ------------------------------------------------------------------ reports

    def server(self, report: ServerReport, now: float) -> bool:
        """Take in a server's report; False if a newer process has its place."""
        self.active = True
        self._begin(now)
        if not self.roster.take(report, now):
            return False
        if self.spec is None and report.spec is not None:
            self.spec = report.spec
        self._hear(report.built, now)
        if report.layout is not None:
            if not self._had_layout and not self._fresh:
                self._fresh, self.next = True, None  # a survivor of an earlier trainer's, after all
            self._hear(report.layout.number, now)
        return True

    def worker(self, report: WorkerReport, now: float) -> bool:
        """Take in a worker's report; False if a newer process has its rank."""
        self.active = True
        self._begin(now)
        if not self.crew.take(report, now):
            return False
        if self.spec is None:
            self.spec = report.spec
        self._hear(max(report.layout, report.filled), now)
        if report.checkpoint is not None:
            self.saved = max(self.saved or 0, report.checkpoint)
        return True

    def _begin(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def _hear(self, number: int, now: float) -> None:
        self._number = max(self._number, number)
        if number and self._fresh and self._heard_at is None:
            self._heard_at = now

    # ------------------------------------------------------------------ orders

    @property
    def recovering(self) -> bool:
        """Whether nobody can be told anything yet; see `ServerReport`."""
        heard = self._survivors or self._heard_at is not None
        return self._fresh and heard and not self.finished

    @property
    def paused(self) -> bool:
        """Whether workers are to begin nothing."""
        return not (self.opened and self.order is ServerOrder.SERVE)

    def server_reply(self, report: ServerReport, accepted: bool) -> ServerReply:
        """The whole orders for one server."""
        me = report.server

        def reply(order: ServerOrder, **more: Any) -> ServerReply:
            return ServerReply(trainer=self.identity, revision=self.revision, order=order, **more)

        if not accepted:
            return reply(ServerOrder.REFUSED, message=f"{me} was replaced by a newer process")
        if self.finished:
            self._told.add(me)
            return reply(ServerOrder.IDLE, finished=True)
        present, following = self.layout, self.next
        if following is not None and following.index_of(me) is not None:
            return reply(
                ServerOrder.BUILD,
                layout=present,
                next=following,
                source=self.source,
                spec=self.spec,
            )
        if present is not None and present.index_of(me) is not None:
            return reply(self.order, layout=present, snapshot=self.snapshot)
        return reply(ServerOrder.IDLE)

    def worker_reply(self, report: WorkerReport, lease: LeaseReply, now: float) -> WorkerReply:
        """The whole orders for one worker."""
        worker = self.crew.get(report.member)
        chief = worker is not None and worker.id == self.crew.chief_id
        there = self.layout is not None and self.opened and self.order is not ServerOrder.FREEZE
        filler = self._filler is not None and report.member == self._filler.id
        told = self._fill_since is not None and self.source is Source.CHIEF
        fill = self.next if filler and told and report.filled != self.next_number else None
        return WorkerReply(
            trainer=self.identity,
            revision=self.revision,
            lease=lease,
            layout=self.layout if there else None,
            paused=self.paused,
            chief=chief or fill is not None,
            fill=fill,
            fill_checkpoint=self.fill_checkpoint if fill is not None else None,
            save=self.snapshot if self.saving and report.member == self._saver else None,
            message=self.message(now),
        )

    @property
    def next_number(self) -> int:
        """Number of the layout that is being built; 0: none is."""
        return self.next.number if self.next is not None else 0

    def message(self, now: float) -> str:
        """What goes on, for people; empty when the training runs."""
        if said := self.refusal or self.trouble:
            return said
        if self.layout is None:
            if self.next is not None:
                return f"layout {self.next.number} is being filled"
            return "waiting for parameter servers" if self.crew.live(now) else "waiting for workers"
        return ""

    def consent(self, cap: int, now: float) -> bool | str | None:
        """Whether ranks from ``cap`` on may go: True, not yet (None), or why not."""
        layouts = [layout for layout in (self.layout, self.next) if layout is not None]
        ranks = {server.id.rank for layout in layouts for server in layout.servers}
        if self.finished or all(rank < cap for rank in ranks):
            return True
        staying = [server for server in self.roster.wanted(None, now) if server.id.rank < cap]
        return self._short(staying) or None

    def farewell(self, now: float) -> bool:
        """Whether every server that reports has heard that the job is done."""
        return all(
            server.id in self._told or now - server.seen >= self.patience.accused
            for server in self.roster.servers.values()
        )

    def finish(self, now: float) -> None:
        """The job is done: servers may go."""
        if not self.finished:
            self.finished = True
            self._command(now)

    # ------------------------------------------------------------------ state

    def extra(self) -> dict[str, Any] | None:
        """What has to outlive this trainer; None for a job without servers."""
        if not self.active:
            return None
        return {
            "number": self._number,
            "present": self._present_number,
            "saved": self.saved,
            "settled": self._final_slots if self.settled else None,
            "closed": self.crew.any_closed,
        }

    def recover(self, extra: Mapping[str, Any] | None) -> None:
        """Take up what an earlier trainer wrote down. Raises KeyError, TypeError, ValueError."""
        if extra is None:
            return
        self.active = True
        self._number, self._present_number = int(extra["number"]), int(extra["present"])
        self.saved = None if extra["saved"] is None else int(extra["saved"])
        self.crew.any_closed = bool(extra["closed"])
        if extra["settled"] is not None:
            self.settled, self._final_slots = True, int(extra["settled"])

    def await_survivors(self) -> None:
        """This job may have been running before us: form no layout before that is known."""
        self._survivors = True

    def summary(self, now: float) -> dict[str, Any]:
        """The figures of the servers, for people and benchmarks; plain data."""
        layout = self.layout
        owners = [
            {
                "rank": server.id.rank,
                "incarnation": server.id.incarnation,
                "partitions": len(layout.owned_by(server.id)),
            }
            for server in (layout.servers if layout is not None else ())
            if layout is not None
        ]
        return {
            "layout": layout.number if layout is not None else 0,
            "stage": self.order.value if layout is not None else "none",
            "building": self.next_number,
            "owners": owners,
            "known": len(self.roster.servers),
            "workers": self.crew.training(now),
            "updates": max((applied.pushes for applied in self.applied()), default=0),
            "saved_slots": self.saved,
            "restores": self.restores,
            "dropped": self.crew.dropped(),
            "transitions": [each.plain() for each in self.transitions.kept],
        }

    # ------------------------------------------------------------------ decisions

    def decide(self, ledger: Ledger | None, now: float) -> None:
        """Look at everything anew; may end leases and take the ledger back."""
        self.through = self.finished or (self.settled and self.crew.through(now))
        if not self.active or self.finished:
            return
        self._begin(now)
        if self._fresh and not self._take_up(now):
            return
        keep = {s.id for layout in (self.layout, self.next) if layout for s in layout.servers}
        self.roster.forget(keep, now)
        if self.layout is not None:
            self._keep(ledger, now)
        if self.layout is None and ledger is not None:
            self._found(ledger, now)

    def _take_up(self, now: float) -> bool:
        """What an earlier trainer left; False while that is not known well enough."""
        if not self.recovering:
            if self._number == 0 and self.layout is None and not self.crew.workers:
                return False  # nothing to decide, and who comes first may tell of a layout
            self._fresh = False
            return True
        assert self._began is not None
        began = self._began if self._heard_at is None else max(self._began, self._heard_at)
        overdue = now - began >= self.patience.recover
        held = [
            server.report.layout
            for server in self.roster.servers.values()
            if server.report.layout is not None
        ]
        newest = max(held, key=lambda layout: layout.number, default=None)
        if newest is None:
            wanted = self.roster.wanted(None, now)
            all_empty = self.roster.pods is not None and wanted and not self.roster.missing(wanted)
            if not (overdue or all_empty):
                return False
        else:
            accused = self.crew.accused(now)
            told = all(
                self.roster.get(server.id)
                or self.roster.is_lost(server.id, server.id in accused, self._began, now)
                for server in newest.servers
            )
            known = max(self._present_number, self.crew.newest_layout())
            if not overdue and not (told and self.crew.workers and newest.number >= known):
                return False
            self.layout = newest
            self._doubtful = True
            LOG.info("took up layout %d of %d servers", newest.number, len(newest.servers))
            self._had_layout = True
            self._serve(now)
            self._held_since = self.revision
        self._number += NUMBERS_SKIPPED
        self._fresh = False
        return True

    # ------------------------------------------------------------------ with a layout

    def _keep(self, ledger: Ledger | None, now: float) -> None:
        assert self.layout is not None
        following = self.next
        built = following is not None and self._all(following, self._has_built)
        if following is not None and built and not self._lost(following, now):
            self._switch(now)
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

    def _lost(self, layout: Layout, now: float) -> list[ServerId]:
        """Owners of whose part nothing is left, or who do not do as they are told."""
        accused = self.crew.accused(now)
        began = self._began or 0.0
        if layout is self.layout:
            stuck = not self.opened and now - self._since_time >= self.patience.freeze
            for server in layout.servers:
                known = self.roster.get(server.id)
                if known is not None and known.report.seen_revision >= self._held_since:
                    held = known.report.layout
                    odd = held is None or held.number != layout.number
                    if stuck and self.order is ServerOrder.SERVE:
                        odd = odd or known.report.stage is not Stage.SERVING
                    known.odd_since = (known.odd_since or now) if odd else None
        return [
            server.id
            for server in layout.servers
            if self.roster.is_lost(server.id, server.id in accused, began, now)
        ]

    def _open(self, ledger: Ledger | None, now: float) -> None:
        """Workers may go on once all servers serve."""
        assert self.layout is not None
        serving = self._all(self.layout, lambda report: report.stage is Stage.SERVING)
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
        self.revision += 1

    def _go_back(self, ledger: Ledger, applied: Applied) -> bool:
        """The ledger follows a model that was restored."""
        try:
            if ledger.frontier or applied.watermark:
                ledger.adopt(applied.watermark)
        except LedgerError as error:
            self.refusal = f"the checkpoint does not belong to these data: {error}"
            return False
        self._doubtful = False
        return True

    def _train(self, ledger: Ledger, now: float) -> None:
        if self.snapshot is not None:
            self._mind_save(now)
        if self._mend_to is not None:
            if ledger.watermark < self._mend_to and now < self._mend_until:
                return
            self._mend_to = None
        self._goal = self._choose(ledger, now)
        if self._goal is not None:
            self.transitions.begin(self._goal.value, now)
            self.order = ServerOrder.HALT
            self._command(now)

    def _choose(self, ledger: Ledger, now: float) -> Goal | None:
        """Why to halt now; None: there is no reason."""
        if now < self._retry_at:
            return None
        if self._target(now):
            return Goal.MOVE
        if self._doubtful:
            return Goal.VERIFY
        chief = self.crew.chief(now)
        if self.snapshot is not None or now < self._save_retry_at:
            return None
        if ledger.finished:  # where all workers died at the end, others will come and save
            there = chief is not None or self.crew.any_closed
            return Goal.END if there and not self.settled else None
        if chief is None or not chief.report.saves or now < self._save_at:
            return None
        every = chief.report.save_every_slots
        return Goal.SAVE if every and ledger.consumed - (self.saved or 0) >= every else None

    def _halt(self, ledger: Ledger, now: float) -> None:
        """Until no lease is open."""
        if self._goal is Goal.MOVE and not self._target(now):
            self._goal = self._choose(ledger, now)
        if self._goal is None:
            self._serve(now)
            return
        holders = {lease.holder for lease in ledger.leases()}
        if holders and now - self._since_time < self.patience.halt:
            return
        for holder in holders:
            LOG.warning("%s did not stop for a change of the servers: its lease ends", holder)
            ledger.release(holder)
        self.transitions.reached("halt", now)
        self.order = ServerOrder.FREEZE
        self._command(now)

    def _freeze(self, ledger: Ledger, now: float) -> None:
        """Until all servers are frozen with the same slots; then the change, or the copy."""
        assert self.layout is not None
        frozen = self._all(
            self.layout,
            lambda report: report.stage is Stage.FROZEN and report.snapshot == self.snapshot,
        )
        if not frozen:
            trouble = self._trouble_of(self.layout)
            if trouble or now - self._since_time >= self.patience.freeze:
                LOG.warning("%s; going on", trouble or "servers did not freeze in time")
                if self.snapshot is not None and not self.saving:
                    self._failed_saves += 1
                self._drop_snapshot()
                self._later(now)
                self._serve(now)
            return
        if self.snapshot is not None and not self.saving:
            self.transitions.reached("copy", now)
            self.saving, self._save_since, self._saver = True, now, None
            self._serve(now)
            return
        self.transitions.reached("freeze", now)
        applied = self.applied()
        if len({(each.slots, each.watermark, each.digest) for each in applied}) > 1:
            self._mend(ledger, applied, now)
            return
        self._mends = self._failures = 0
        self._agreed = applied[0].slots
        self._verify(ledger, applied[0])
        self._act(ledger, applied[0], now)

    def _act(self, ledger: Ledger, applied: Applied, now: float) -> None:
        """Everything stands still and agrees: do what it was halted for."""
        target = self._target(now)
        chief = self.crew.chief(now)
        saves = chief is not None and chief.report.saves
        if target:
            self._move(target, saves, now)
            return
        at_end = ledger.finished and not self.settled
        given_up = at_end and self._failed_saves >= MAX_FAILED_SAVES
        due = at_end or self._goal is Goal.SAVE
        if saves and due and applied.slots != self.saved and not given_up:
            self.transitions.name(f"save at {applied.slots} slots")
            self._copy(applied.slots, now)
            return
        if at_end and (chief is not None or self.crew.any_closed):
            self.settled, self._final_slots = True, applied.slots
            if given_up:
                LOG.error("the job ends without a checkpoint of its last state")
        self._serve(now)

    def _verify(self, ledger: Ledger, applied: Applied) -> None:
        """The ledger must not be ahead of the servers; with no lease open that can be told."""
        ranges = RangeSet((start, stop) for start, stop in ledger.snapshot()["consumed"])
        ours = Applied.of(ranges, 0)
        ahead = ours.slots > applied.slots or ours.watermark > applied.watermark
        if ahead or (self._doubtful and ours.digest != applied.digest):
            LOG.info(
                "the ledger follows the servers: %d slots instead of %d", applied.slots, ours.slots
            )
            ledger.adopt(min(applied.watermark, ours.watermark))
        self._doubtful = False

    def _mend(self, ledger: Ledger, applied: list[Applied], now: float) -> None:
        """Servers differ: a worker ended between two of them. Its slots are done again first."""
        self._mends += 1
        counts = ", ".join(str(each.slots) for each in applied)
        LOG.info("servers have applied %s slots: what is half done is completed first", counts)
        if self._mends >= MENDS:
            self._abandon([], now)
            return
        self._mend_to, self._mend_until = ledger.frontier, now + self.patience.mend
        if self._mends > 1 or ledger.finished:
            ledger.adopt(min(*(each.watermark for each in applied), ledger.watermark))
        self._serve(now)

    # ------------------------------------------------------------------ moves

    def _target(self, now: float) -> list[ServerAddress]:
        """The servers that should own the parameters instead of the present ones; empty: none."""
        assert self.layout is not None
        self.trouble = ""
        if now < self._retry_at:
            return []
        wanted = self.roster.wanted(self.layout, now)
        if self.spec is not None:
            wanted = wanted[: self.spec.partitions]
        missing = self.roster.missing(wanted)
        self._missing_since = (self._missing_since or now) if missing else None
        ids, owners = {s.id for s in wanted}, {s.id for s in self.layout.servers}
        if not ids or ids == owners:
            return []
        silent = {owner for owner in owners - ids if not self._is_heard_of(owner, now)}
        if silent:
            return []  # wait until it is known whether they are lost
        if owners <= ids:  # more servers: no hurry
            if missing and now - (self._missing_since or now) < self.patience.expected:
                return []
            if self.roster.pods is None and now - self.roster.newest_since() < self.patience.settle:
                return []
        if short := self._short(wanted):
            self.trouble = short
            return []
        return wanted

    def _is_heard_of(self, server: ServerId, now: float) -> bool:
        known = self.roster.get(server)
        return known is not None and now - known.seen < self.patience.accused

    def _short(self, servers: list[ServerAddress]) -> str:
        """Why the model does not fit these servers; empty: it does, or nobody knows."""
        if self.spec is None:
            return ""
        memory = self.roster.memory_bytes(servers)
        if memory is None or self.spec.bytes <= memory:
            return ""
        return (
            f"the model needs {self.spec.bytes} bytes with its optimizer's state, and "
            f"{len(servers)} parameter servers have {memory} bytes of memory together: ask for "
            "more servers, or for more memory for each"
        )

    def _move(self, target: list[ServerAddress], saves: bool, now: float) -> None:
        assert self.layout is not None
        self.transitions.name(f"servers {len(self.layout.servers)} -> {len(target)}")
        self._drop_snapshot()
        self._save_after_move = saves
        self.next = assign(self._new_number(), target, len(self.layout.owners), self.layout)
        self.source = Source.SERVERS
        self._command(now)

    def _mind_build(self, now: float) -> None:
        """A newcomer that dies or takes too long: the present layout, which is whole, goes on."""
        assert self.layout is not None
        assert self.next is not None
        owners = {server.id for server in self.layout.servers}
        lost = [server for server in self._lost(self.next, now) if server not in owners]
        trouble = self._trouble_of(self.next)
        late = now - self._since_time >= self.patience.build
        if lost or late or trouble:
            why = f"{lost[0]} went away" if lost else trouble or "servers were too slow"
            LOG.warning("%s while taking over; the present servers go on", why)
            self.transitions.name(f"servers {len(self.layout.servers)}, change given up")
            self.next = None
            self._later(now)
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
        self._present_number = self.layout.number
        self._failures = 0
        self._had_layout = True
        self._from_chief = not moved
        self.transitions.reached("move" if moved else "fill", now)
        self.opened = False
        self.order = ServerOrder.SERVE
        self._command(now)
        self._held_since = self.revision
        self.roster.believe()
        if moved and self._save_after_move:
            self._copy(self._agreed, now)

    # ------------------------------------------------------------------ saves

    def _copy(self, slots: int, now: float) -> None:
        """Have every server keep a copy as it is now."""
        self.order, self.snapshot, self.saving = ServerOrder.FREEZE, slots, False
        self._save_after_move = False
        self._command(now)

    def _mind_save(self, now: float) -> None:
        """Whether the chief has written the snapshot."""
        chief = self.crew.chief(now)
        if chief is not None and chief.id != self._saver:
            self.revision += 1
            self._saver, self._saver_since = chief.id, self.revision
        if chief is None or not chief.report.saves:
            LOG.warning("nobody is left to write the checkpoint of %s slots", self.snapshot)
        elif chief.report.saved == self.snapshot:
            self.saved, self._failed_saves = self.snapshot, 0
            self._save_at = now + (now - self._save_since) * (1 / SAVE_SHARE - 1)
            LOG.info("checkpoint of %d slots saved by %s", self.saved, chief.id)
        elif chief.report.failed and chief.report.seen_revision >= self._saver_since:
            LOG.warning("%s could not save: %s", chief.id, chief.report.failed)
            self._failed_saves += 1
            self._save_retry_at = now + self.patience.retry
            self.crew.pass_over(chief.id, now + self.patience.fill)
        elif now - self._save_since >= self.patience.fill:
            LOG.warning("%s did not save in %d s", chief.id, self.patience.fill)
            self._failed_saves += 1
            self._save_retry_at = now + self.patience.retry
            self.crew.pass_over(chief.id, now + self.patience.fill)
        else:
            return
        self._drop_snapshot()
        self._command(now)

    def _drop_snapshot(self) -> None:
        self.snapshot, self.saving = None, False

    # ------------------------------------------------------------------ without a layout

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
        self.restores += 1
        self.layout = self.next = None
        self.opened = False
        self._mends, self._mend_to = 0, None
        self.roster.believe()
        self._drop_snapshot()
        self._found_since = None
        self._retry_at = float("-inf")
        self._command(now)

    def _found(self, ledger: Ledger, now: float) -> None:
        """Form a layout whose parameters come from a checkpoint, or are the initial ones."""
        if self._found_since is None:
            self._found_since = now
        if self.next is not None and not self._mind_fill(now):
            return
        servers = self._founders(now)
        if not servers or self.spec is None or now < self._retry_at:
            return
        chief = self.crew.elect(now)
        if chief is None:
            return
        newest = chief.report.checkpoint
        if self.saved is not None and (newest or 0) < self.saved:
            if now - self._found_since < self.patience.recover:
                return  # whoever has the newest checkpoint may be on its way
            LOG.warning("the checkpoint of %d slots is not to be had", self.saved)
        if self.settled and (newest or 0) < self._final_slots:
            self.refusal = (
                "a parameter server was lost after the end of the training, and nobody has a "
                "checkpoint of its last state"
            )
            return
        short = self._short(servers)
        if not self._had_layout and not self.roster.missing(servers):
            self.refusal = short
        self.trouble = short
        if short:
            return
        self.refusal = ""
        self.fill_checkpoint = self.saved = newest
        self._filler = chief
        self.transitions.begin("first layout", now)
        origin = f"the checkpoint of {newest} slots" if newest is not None else "the beginning"
        LOG.info("%d parameter servers begin at %s, by %s", len(servers), origin, chief.id)
        self._fill_since = None
        self.next = assign(self._new_number(), servers, self.spec.partitions)
        self.source = Source.CHIEF
        self._command(now)

    def _founders(self, now: float) -> list[ServerAddress]:
        """The servers of a layout from nothing; empty while others should be waited for."""
        wanted = self.roster.wanted(None, now)
        if not wanted or self._found_since is None:
            return []
        first = not self._number
        patience = self.patience.expected if first else self.patience.gone
        waited = now - self._found_since >= patience
        few = first and len(wanted) < self.roster.at_least
        settling = (
            self.roster.pods is None and now - self.roster.newest_since() < self.patience.settle
        )
        if not waited and (self.roster.missing(wanted) or few or settling):
            return []
        if few and self.roster.pods is None:
            return []  # the number was given: fewer are not what was asked for
        return wanted

    def _mind_fill(self, now: float) -> bool:
        """Follow the filling of the next layout; True if it has to be begun anew."""
        assert self.next is not None
        if self._all(self.next, self._has_built):
            self._switch(now)
            return False
        filler = self.crew.get(self._filler.id) if self._filler is not None else None
        if self._fill_since is None and all(self._heard(s.id) for s in self.next.servers):
            self.revision += 1  # all servers know that they are to be filled
            self._fill_since = self.revision
        told = self._fill_since
        if lost := self._lost(self.next, now):
            LOG.warning("%s went away while the layout was being filled", lost[0])
        elif trouble := self._trouble_of(self.next):
            LOG.warning("layout %d cannot be built: %s", self.next.number, trouble)
            self.trouble = trouble
            self._later(now)
        elif (
            filler is None
            or filler.ended
            or filler.closed
            or now - filler.seen >= self.patience.filler
        ):
            LOG.warning("the worker that filled the layout went away")
        elif filler.report.failed and told is not None and filler.report.seen_revision >= told:
            LOG.warning("%s could not fill the layout: %s", filler.id, filler.report.failed)
            self.crew.pass_over(filler.id, now + self.patience.fill)
            self._later(now)
        elif now - self._since_time >= self.patience.fill:
            LOG.warning("%s did not fill the layout in %d s", filler.id, self.patience.fill)
            self.crew.pass_over(filler.id, now + self.patience.fill)
        else:
            return False
        self.next = None
        self._command(now)
        return True

    # ------------------------------------------------------------------ inside

    def _serve(self, now: float) -> None:
        self.order, self.opened = ServerOrder.SERVE, False
        self._goal = None
        self._command(now)

    def _command(self, now: float) -> None:
        """Orders to servers have changed: only reports made from now on say that they are done."""
        self.revision += 1
        self._since = self.revision
        self._since_time = now

    def _later(self, now: float) -> None:
        """A change failed: pause before the next attempt."""
        pause = self.patience.retry * 2**self._failures
        self._retry_at = now + min(pause, self.patience.retry_limit)
        self._failures = min(self._failures + 1, 16)

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _heard(self, server: ServerId) -> bool:
        known = self.roster.get(server)
        return known is not None and known.report.seen_revision >= self._since

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
