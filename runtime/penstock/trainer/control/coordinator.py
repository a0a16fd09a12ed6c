"""The trainer's memory and decisions, without I/O: reports in, orders out.

A `Coordinator` owns the `State` of one job. Whatever is called here that is not a question becomes
an event for `penstock.trainer.control.machine.step`, where the decisions and what they guarantee
are; what a step asks for is done here. It is single-threaded and takes the time as an argument: the
server calls it, the service ticks it and carries its events to the journal and its figures to the
Brain. Questions beyond these few are asked of `state`: see `penstock.trainer.control.queries`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.data.ledger import Ledger
from penstock.data.ledger.events import Event as LedgerEvent
from penstock.job.protocol import (
    AgentReply,
    AgentReport,
    LeaseReply,
    LeaseRequest,
    SessionReply,
    SessionReport,
)
from penstock.parameter_server.control.events import ServerAnswered, WorkerAnswered
from penstock.parameter_server.protocol import (
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)
from penstock.trainer.control import queries, sessions, workers
from penstock.trainer.control.machine import step
from penstock.trainer.control.model.events import (
    AgentReported,
    Event,
    Grant,
    Instruction,
    JobRead,
    JournalDue,
    JournalTried,
    LeaseRequested,
    Observation,
    Recovered,
    RefusalShown,
    Refuse,
    Say,
    ServerReported,
    SessionReported,
    SharesWeighed,
    Superseded,
    SurvivorsExpected,
    Ticked,
    WorkerReported,
    WorkersExpected,
    Write,
)
from penstock.trainer.control.model.job import ControlSettings, JobFacts, RefusedError
from penstock.trainer.control.model.saved_state import SavedState
from penstock.trainer.control.model.state import State
from penstock.trainer.control.model.summary import Summary

__all__ = ["Coordinator", "JobFacts", "RefusedError"]

logger = logging.getLogger(__name__)


class Coordinator:
    """One job's trainer, without its sockets, files and clock."""

    def __init__(
        self,
        facts: JobFacts,
        identity: str,
        settings: ControlSettings | None = None,
        fence_floor: int = 0,
    ) -> None:
        self.state = State.begin(facts, identity, settings or ControlSettings(), fence_floor)
        """To be read; only `step` changes it."""
        self.servers = self.state.servers
        """The job's parameter servers; to be asked."""
        self.problems = self.state.problems
        """All that goes wrong now; to be read."""

    # ------------------------------------------------------------------ reports and their answers

    def handle_session_report(self, report: SessionReport, now: float) -> SessionReply:
        """Take in a session's report and give its orders.

        Raises:
            RefusedError: the report does not fit the job, for instance another dataset size.
        """
        self._step(SessionReported(report), now)
        return sessions.answer(self.state, report, now)

    def handle_agent_report(self, report: AgentReport, now: float) -> AgentReply:
        """Take in an agent's report. Raises RefusedError where there are too many agents."""
        self._step(AgentReported(report), now)
        return workers.answer_agent(self.state, report, now)

    def handle_server_report(self, report: ServerReport, now: float) -> ServerReply | None:
        """Take in a parameter server's report and give its orders; None: it is to ask again."""
        accepted = Superseded() not in self._step(ServerReported(report), now)
        if self.servers.recovering:
            return None
        reply = self.servers.answer_server(report, accepted)
        if accepted:
            self._step(ServerAnswered(report.server), now)
        return reply

    def handle_worker_report(self, report: WorkerReport, now: float) -> WorkerReply | None:
        """Take in the report of a worker of parameter servers; None: it is to ask again.

        Raises:
            RefusedError: another model or other data, or the model does not fit the servers.
            LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
        """
        lease = _find_lease(self._step(WorkerReported(report), now))
        if lease is None:
            return None
        reply = self.servers.answer_worker(report, lease, now)
        self._step(WorkerAnswered(report.member), now)
        return reply

    def grant_lease(self, request: LeaseRequest, now: float) -> LeaseReply:
        """Serve a holder that works on its own (no group): acknowledgements in, a lease out.

        Raises:
            RefusedError: the data differ from the job's, or a group trains on the same ledger.
            LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
        """
        lease = _find_lease(self._step(LeaseRequested(request), now))
        assert lease is not None
        return lease

    # ------------------------------------------------------------------ what else happens

    def advance(self, now: float) -> None:
        """Look at everything anew: on each report and a few times per second."""
        self._step(Ticked(), now)

    def learn(self, facts: JobFacts) -> None:
        """The job's spec was read (again)."""
        self._step(JobRead(facts))

    def observe(self, seen: Observation, now: float) -> None:
        """The cluster, or whoever started the job, says this now."""
        self._step(seen, now)

    def expect_workers(self, ranks: Iterable[int] | None) -> None:
        """Outside a cluster: the ranks that should train; None: nobody knows."""
        self._step(WorkersExpected(None if ranks is None else frozenset(ranks)))

    def weigh_shares(self, weights: Mapping[int, float]) -> None:
        """Shares by rank, as a plan has them, for the groups to come."""
        self._step(SharesWeighed(weights))

    def confirm_refusal_shown(self) -> None:
        """Those who watch the job know that it was refused: its workers may be told."""
        self._step(RefusalShown())

    def take_journal_events(self) -> tuple[LedgerEvent, ...]:
        """What has happened to the ledger since the last call, to be written to the journal."""
        written = (each for each in self._step(JournalDue()) if isinstance(each, Write))
        return next((each.events for each in written), ())

    def note_journal(self, trouble: str, now: float) -> None:
        """Why the journal cannot be written, for people; empty: it was."""
        self._step(JournalTried(trouble), now)

    def await_survivors(self, now: float) -> None:
        """Form no group from nothing for a while: this job may have been running before us."""
        self._step(SurvivorsExpected(), now)

    def recover(self, ledger: Ledger, saved: SavedState, now: float) -> None:
        """Begin from what an earlier trainer wrote down. Raises SnapshotError."""
        self._step(Recovered(ledger, saved), now)

    # ------------------------------------------------------------------ questions

    def done(self) -> bool:
        """Whether the data are exhausted and every session has said that it is through."""
        return queries.is_done(self.state)

    def summary(self, now: float) -> Summary:
        """The figures of the job so far."""
        return queries.summary(self.state, now)

    def extra(self) -> dict[str, Any] | None:
        """What has to survive beside the ledger's own state; None before the data are known."""
        return queries.state_to_save(self.state)

    # ------------------------------------------------------------------ inside

    def _step(self, event: Event, now: float = 0.0) -> list[Instruction]:
        """Take in an event and do what follows. Raises what its sender is to hear."""
        instructions = step(self.state, event, now)
        for instruction in instructions:
            match instruction:
                case Say(level, text):
                    logger.log(level, "%s", text)
                case Refuse(error):
                    raise error
        return instructions


def _find_lease(instructions: Iterable[Instruction]) -> LeaseReply | None:
    return next((each.lease for each in instructions if isinstance(each, Grant)), None)
