"""The trainer's side of parameter servers, without I/O: reports in, orders out.

What is decided, and what that guarantees, is in
`penstock.parameter_server.control.reconfiguration`; here each report replaces what was known of its
sender, and each caller is told its whole orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.job.protocol import LeaseReply
from penstock.parameter_server.control.reconfiguration import Reconfiguration
from penstock.parameter_server.protocol import (
    ServerOrder,
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)


class ServerCoordinator(Reconfiguration):
    """The servers and workers of one job, and the layout that is served."""

    @property
    def revision(self) -> int:
        """That of the newest orders."""
        return self.orders.revision

    # ------------------------------------------------------------------ reports

    def server(self, report: ServerReport, now: float) -> bool:
        """Take in a server's report; False if a newer process has its place."""
        self.active = True
        self.survivors.begin(now)
        if not self.roster.take(report, now):
            return False
        if self.spec is None and report.spec is not None:
            self.spec = report.spec
        self.survivors.hear(report.built, now)
        if report.layout is not None and self.survivors.meet(report.layout.number, now):
            self.next = None
        return True

    def worker(self, report: WorkerReport, now: float) -> bool:
        """Take in a worker's report; False if a newer process has its rank."""
        self.active = True
        self.survivors.begin(now)
        if not self.crew.take(report, now):
            return False
        if self.spec is None:
            self.spec = report.spec
        self.survivors.hear(max(report.layout, report.filled), now)
        self.saves.note(report.checkpoint)
        return True

    # ------------------------------------------------------------------ orders

    @property
    def recovering(self) -> bool:
        """Whether nobody can be told anything yet; see `ServerReport`."""
        return self.survivors.awaited and not self.finished

    @property
    def paused(self) -> bool:
        """Whether workers are to begin nothing."""
        stands = self.suspension.wanted and not self.mending.under_way
        return stands or not (self.opened and self.order is ServerOrder.SERVE)

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
                data=self.data,
            )
        if present is not None and present.index_of(me) is not None:
            return reply(self.order, layout=present, snapshot=self.saves.snapshot)
        return reply(ServerOrder.IDLE)

    def worker_reply(self, report: WorkerReport, lease: LeaseReply, now: float) -> WorkerReply:
        """The whole orders for one worker."""
        worker = self.crew.get(report.member)
        chief = worker is not None and worker.id == self.crew.chief_id
        there = self.layout is not None and self.opened and self.order is not ServerOrder.FREEZE
        fill = self._fill if self._fill is not None and self._fill.is_for(report) else None
        saver = self.saves.writing and report.member == self.saves.saver
        awaited = chief and self.suspension.wanted and self.layout is not None
        return WorkerReply(
            trainer=self.identity,
            revision=self.revision,
            lease=lease,
            layout=self.layout if there else None,
            paused=self.paused,
            chief=chief or fill is not None,
            fill=self.next if fill is not None else None,
            fill_checkpoint=fill.checkpoint if fill is not None else None,
            save=self.saves.snapshot if saver else None,
            stay=awaited and not self.suspension.is_kept(self.saves, self.crew, now),
            over=self.finished,
            message=self.message(now),
        )

    def message(self, now: float) -> str:
        """What goes on, for people; empty when the training runs."""
        if said := self.refusal or self.trouble:
            return said
        if self.suspension.wanted:
            return "the job is suspended"
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
        return self.roster.short(self.spec, staying) or None

    def farewell(self, now: float) -> bool:
        """Whether every server that reports has heard that the job is done."""
        return all(
            server.id in self._told or now - server.seen >= self.timeouts.accused
            for server in self.roster.servers.values()
        )

    def finish(self, now: float) -> None:
        """The job is done: servers may go."""
        if not self.finished:
            self.finished = True
            self.orders.give(now)

    # ------------------------------------------------------------------ state

    def extra(self) -> dict[str, Any] | None:
        """What has to outlive this trainer; None for a job without servers."""
        if not self.active:
            return None
        return {
            "number": self.survivors.number,
            "present": self.survivors.present,
            "saved": self.saves.saved,
            "restores": self.restores,
            "settled": self._final_slots if self.settled else None,
            "closed": self.crew.any_closed,
        }

    def recover(self, extra: Mapping[str, Any] | None) -> None:
        """Take up what an earlier trainer wrote down. Raises KeyError, TypeError, ValueError."""
        if extra is None:
            return
        self.active = True
        self.survivors.number = int(extra["number"])
        self.survivors.present = int(extra["present"])
        self.saves.saved = None if extra["saved"] is None else int(extra["saved"])
        self.restores = int(extra.get("restores", 0))
        self.crew.any_closed = bool(extra["closed"])
        if extra["settled"] is not None:
            self.settled, self._final_slots = True, int(extra["settled"])

    def await_survivors(self) -> None:
        """This job may have been running before us: form no layout before that is known."""
        self.survivors.expected = True

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
            "saved_slots": self.saves.saved,
            "restores": self.restores,
            "dropped": self.crew.dropped(),
            "transitions": [each.plain() for each in self.transitions.kept],
        }
