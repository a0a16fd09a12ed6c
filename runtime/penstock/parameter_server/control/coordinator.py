"""The trainer's side of parameter servers, without I/O: reports in, orders out.

A `ServerCoordinator` owns the `State` of one job. Whatever is called here that is not a question
becomes an event for `penstock.parameter_server.control.machine.step`, where the decisions and what
they guarantee are; what a step asks for is carried out on the ledger, and said in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from penstock.data.ledger import Ledger
from penstock.job.protocol import DataSpec, LeaseReply
from penstock.parameter_server.control import replies
from penstock.parameter_server.control.events import (
    Activated,
    AdoptProgress,
    EndLeases,
    Event,
    Finished,
    Observation,
    Recovered,
    Refuse,
    Say,
    ServerAnswered,
    ServerReported,
    SurvivorsExpected,
    SuspensionChanged,
    Ticked,
    WorkerAlive,
    WorkerAnswered,
    WorkerEnded,
    WorkerReported,
)
from penstock.parameter_server.control.machine import step
from penstock.parameter_server.control.records.servers import ServerState
from penstock.parameter_server.control.records.timeouts import Timeouts
from penstock.parameter_server.control.records.transitions import Transition
from penstock.parameter_server.control.records.workers import WorkerState
from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import (
    Applied,
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)
from penstock.parameter_server.spec import ModelSpec

logger = logging.getLogger(__name__)


class ServerCoordinator:
    """The servers and workers of one job, and the layout that is served."""

    def __init__(self, identity: str, floor: int = 0, timeouts: Timeouts | None = None) -> None:
        """``floor``: revisions are above it, so that no other trainer's are taken for ours."""
        self.identity = identity
        self.state = State.begin(floor, timeouts)
        """To be read; only `step` changes it."""

    # ------------------------------------------------------------------ what happens

    def activate(self) -> None:
        """The job has parameter servers."""
        self._step(Activated())

    def record_server(self, report: ServerReport, now: float) -> bool:
        """Take in a server's report; False if a newer process has its place."""
        return self._step(ServerReported(report), now)

    def record_worker(self, report: WorkerReport, now: float) -> bool:
        """Take in a worker's report; False if a newer process has its rank."""
        return self._step(WorkerReported(report), now)

    def decide(self, ledger: Ledger | None, data: DataSpec | None, now: float) -> None:
        """Look at everything anew; may end leases and take the ledger back."""
        self._step(Ticked(ledger, data), now, ledger)

    def keep_worker_alive(self, rank: int, incarnation: int, now: float) -> None:
        """A worker's agent says that its program runs."""
        self._step(WorkerAlive(rank, incarnation), now)

    def end_worker(self, rank: int, incarnation: int) -> None:
        """A worker's program, or its pod, has ended."""
        self._step(WorkerEnded(rank, incarnation))

    def take_in(self, event: Observation | ServerAnswered | WorkerAnswered, now: float) -> None:
        """What was seen from outside, or who has been given its orders."""
        self._step(event, now)

    def suspend(self, wanted: bool) -> None:
        """Whether the job is to be suspended."""
        self._step(SuspensionChanged(wanted))

    def finish(self, now: float) -> None:
        """The job is done: servers may go."""
        self._step(Finished(), now)

    def await_survivors(self) -> None:
        """This job may have been running before us: form no layout before that is known."""
        self._step(SurvivorsExpected())

    # ------------------------------------------------------------------ questions

    def answer_server(self, report: ServerReport, accepted: bool) -> ServerReply:
        """The whole orders for one server; that it has them is `ServerAnswered`."""
        return replies.server_reply(self.state, self.identity, report, accepted=accepted)

    def answer_worker(self, report: WorkerReport, lease: LeaseReply, now: float) -> WorkerReply:
        """The whole orders for one worker; that it has them is `WorkerAnswered`."""
        return replies.worker_reply(self.state, self.identity, report, lease, now)

    @property
    def active(self) -> bool:
        """Whether the job has parameter servers."""
        return self.state.active

    @property
    def revision(self) -> int:
        """That of the newest orders."""
        return self.state.revisions.revision

    @property
    def recovering(self) -> bool:
        """Whether nobody can be told anything yet; see `ServerReport`."""
        return self.state.recovering

    @property
    def paused(self) -> bool:
        """Whether workers are to begin nothing."""
        return self.state.paused

    @property
    def serving(self) -> bool:
        """Whether there is a layout that all its servers were known to serve."""
        return self.state.layout is not None and self.state.phase is not Phase.OPENING

    @property
    def layout(self) -> Layout | None:
        """The present one."""
        return self.state.layout

    @property
    def spec(self) -> ModelSpec | None:
        """What the job's model consists of, once anybody has said so."""
        return self.state.spec

    @property
    def at_end(self) -> bool:
        """Whether the training has ended, and the model is saved if anybody saves."""
        return self.state.final_slots is not None

    @property
    def workers_done(self) -> bool:
        """Whether, besides, no worker needs the servers any more."""
        return self.state.workers_done

    @property
    def rejection_reason(self) -> str:
        """Why no worker can be served; empty: they can."""
        return self.state.rejection_reason

    @property
    def save_error(self) -> str:
        """Why the newest checkpoint was not written; empty: it was, or none was due."""
        return self.state.checkpoints.last_error

    def applied(self) -> list[Applied]:
        """What the servers of the present layout have applied, by their newest reports."""
        return self.state.applied()

    def find_server(self, server: ServerId) -> ServerState | None:
        """What is known of a server."""
        return self.state.servers.get(server)

    def find_worker(self, rank: int) -> WorkerState | None:
        """What is known of the newest worker of a rank."""
        return self.state.workers.workers.get(rank)

    def has_asked(self, rank: int, incarnation: int) -> bool:
        """Whether this pod of a worker's rank, or a later one, has ever reported."""
        return self.state.workers.has_reported(rank, incarnation)

    def count_training(self, now: float) -> int:
        """How many workers train."""
        return self.state.workers.count_training(now)

    def consent(self, cap: int, now: float) -> bool | str | None:
        """Whether ranks from ``cap`` on may go: True, not yet (None), or why not."""
        state = self.state
        layouts = [layout for layout in (state.layout, state.next) if layout is not None]
        ranks = {server.id.rank for layout in layouts for server in layout.servers}
        if state.phase is Phase.DONE or all(rank < cap for rank in ranks):
            return True
        staying = [server for server in state.servers.wanted(None, now) if server.id.rank < cap]
        return state.servers.find_shortage(state.spec, staying) or None

    def farewell(self, now: float) -> bool:
        """Whether every server that reports has heard that the job is done."""
        state = self.state
        return all(
            server.id in state.informed or now - server.seen >= state.timeouts.suspected
            for server in state.servers.servers.values()
        )

    def message(self, now: float) -> str:
        """What goes on, for people; empty when the training runs."""
        return replies.message(self.state, now)

    def summary(self, now: float) -> dict[str, Any]:
        """The figures of the servers, for people and benchmarks; plain data."""
        return replies.summary(self.state, now)

    def transitions_after(self, number: int) -> list[Transition]:
        """Those that ended after the one of this number."""
        return self.state.transitions.after(number)

    # ------------------------------------------------------------------ what outlives a trainer

    def extra(self) -> dict[str, Any] | None:
        """What has to outlive this trainer; None for a job without servers."""
        state = self.state
        if not state.active:
            return None
        return {
            "number": state.recovery.number,
            "present": state.recovery.present,
            "saved": state.checkpoints.saved,
            "restores": state.restores,
            "settled": state.final_slots,
            "closed": state.workers.any_closed,
        }

    def recover(self, extra: Mapping[str, Any] | None) -> None:
        """Take up what an earlier trainer wrote down. Raises KeyError, TypeError, ValueError."""
        if extra is None:
            return
        saved, settled = extra["saved"], extra["settled"]
        self._step(
            Recovered(
                number=int(extra["number"]),
                present=int(extra["present"]),
                saved=None if saved is None else int(saved),
                restores=int(extra.get("restores", 0)),
                final_slots=None if settled is None else int(settled),
                any_closed=bool(extra["closed"]),
            )
        )

    # ------------------------------------------------------------------ inside

    def _step(self, event: Event, now: float = 0.0, ledger: Ledger | None = None) -> bool:
        """Take in an event and do what follows; False if its sender is refused."""
        accepted = True
        for instruction in step(self.state, event, now):
            match instruction:
                case Refuse():
                    accepted = False
                case Say(level, text):
                    logger.log(level, "%s", text)
                case EndLeases(holder):
                    assert ledger is not None
                    ledger.release(holder)
                case AdoptProgress(position):
                    assert ledger is not None
                    ledger.adopt(position)
        return accepted
