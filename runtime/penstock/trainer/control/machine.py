"""What a trainer decides: one step for everything that happens to its job.

`step` is the only function that changes a `State`: the machine that `State.servers` has of its own
is stepped from here alone. It reads no clock and does no I/O but for lines of the log. Orders are
whole each time, and answers are questions to the state after the step: whoever reports again gets
the same again. It joins who trains together (`penstock.trainer.control.model.rendezvous`) with what
is done (the ledger), and keeps:

- The model's history is what counts: where ledger and model differ, the ledger follows.
- A report that cannot be true, or that does not fit the job, is `Refuse`; one of a process that
  was replaced is `Superseded`. Either changes nothing: it is looked at before anything is set.
  Where it fits, but the job cannot go on, it is taken in, and its sender is told why.
- That a job cannot go on is said in one place: its fatal problem.

What belongs to sessions, to agents and pods, and to parameter servers is beside it.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.base.enums import TRAINER_ROLE
from penstock.crds.conditions import JobReason
from penstock.data.ledger import LedgerError, SnapshotError
from penstock.job.protocol import LeaseRequest
from penstock.parameter_server.control.events import PodsKnown as ServerPodsKnown
from penstock.parameter_server.control.events import (
    RanksCapped,
    ServerAnswered,
    ServersExpected,
    WorkerAnswered,
)
from penstock.trainer.control import parameter_servers, sessions, workers
from penstock.trainer.control.model.events import (
    AgentReported,
    Event,
    Grant,
    Instruction,
    JobRead,
    JournalDue,
    JournalTried,
    LeaseRequested,
    PodsKnown,
    Recovered,
    RefusalShown,
    Refuse,
    ServerReported,
    SessionReported,
    SharesWeighed,
    SurvivorsExpected,
    Ticked,
    WorkerReported,
    WorkersExpected,
    Write,
)
from penstock.trainer.control.model.job import JobFacts, RefusedError
from penstock.trainer.control.model.rendezvous import waiting_ranks
from penstock.trainer.control.model.state import State
from penstock.trainer.control.step_context import StepContext

RECOVERY_SECONDS: Final = 5.0


def step(state: State, event: Event, now: float) -> list[Instruction]:
    """Take in an event; what the caller is to do about it, in order.

    ``now`` is in seconds of any clock that does not go back, the same one for all events.
    """
    turn = StepContext(state, now)
    try:
        _take_in(turn, event)
    except (RefusedError, LedgerError) as error:
        turn.instructions.append(Refuse(error))
    return turn.instructions


def _take_in(turn: StepContext, event: Event) -> None:
    state = turn.state
    match event:
        case Ticked():
            _advance(turn)
        case SessionReported(report):
            if sessions.record(turn, report):
                _advance(turn)
        case AgentReported(report):
            workers.record_agent(turn, report)
        case ServerReported(report):
            parameter_servers.record_server(turn, report)
        case WorkerReported(report):
            parameter_servers.serve_worker(turn, report)
        case LeaseRequested(request):
            _serve_holder(turn, request)
        case PodsKnown():
            workers.record_pods(turn, event)
            _advance(turn)
        case (
            ServerPodsKnown()
            | RanksCapped()
            | ServersExpected()
            | ServerAnswered()
            | WorkerAnswered()
        ):
            state.servers.take_in(event, turn.now)
        case WorkersExpected(ranks):
            state.expect(ranks)
        case JobRead(facts):
            _learn(state, facts)
        case SharesWeighed(weights):
            state.rendezvous.weights = dict(weights)
        case RefusalShown():
            state.copies.shown = True
        case JournalTried(trouble):
            _note_journal(turn, trouble)
        case JournalDue():
            if state.ledger is not None:
                turn.instructions.append(Write(tuple(state.ledger.take_events())))
        case SurvivorsExpected():
            _await_survivors(turn)
        case Recovered():
            _recover(turn, event)


def _advance(turn: StepContext) -> None:
    """Look at everything anew."""
    state, now = turn.state, turn.now
    state.copies.look(now)
    if state.data is None and (warning := state.copies.listen(now)):
        turn.say(logging.WARNING, warning)
    if state.standstills.advance(
        now,
        state.facts,
        holds_steps=state.holds_steps,
        launched=state.rendezvous.members.launched,
        waiting=waiting_ranks(state.rendezvous),
    ):
        state.rendezvous.dissolve()
    state.write_problems.forget(now)
    sessions.advance(turn)
    if state.servers.active:
        parameter_servers.advance(turn)


def _serve_holder(turn: StepContext, request: LeaseRequest) -> None:
    """Serve a holder that works on its own (no group): acknowledgements in, a lease out.

    Raises:
        RefusedError: the data differ from the job's, or a group trains on the same ledger.
        LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
    """
    state = turn.state
    turn.refuse_copies()
    if state.rendezvous.members.launched:
        raise RefusedError(
            "holder: the processes of one group take equal parts of each step, and leased shards "
            "are for workers on their own; start those without --nproc-per-node"
        )
    if state.rendezvous.members.present:
        raise RefusedError("holder: this job's slots belong to its sessions; lease none of them")
    if state.servers.active:
        raise RefusedError(
            "holder: this job's slots belong to the workers of its parameter servers"
        )
    turn.check_data(request.data)
    if state.ledger is not None:
        state.holders.check(request, state.ledger, state.facts.guarantee)
    state.holders.active = True
    ledger, order = turn.open_data(request.data)
    lease = state.holders.serve(request, ledger, order, state.facts.guarantee, turn.now)
    turn.instructions.append(Grant(lease))


def _learn(state: State, facts: JobFacts) -> None:
    """What is fixed for the whole job stays as it began."""
    state.facts = facts
    state.copies.independent = facts.independent
    if state.ledger is not None:
        state.ledger.reconfigure(skip_bad=facts.skip_bad)
    state.rendezvous.min_workers = state.least_members
    state.servers.suspend(facts.suspended)


def _note_journal(turn: StepContext, trouble: str) -> None:
    reason = JobReason.JOURNAL_NOT_WRITTEN
    if trouble:
        turn.state.problems.report(TRAINER_ROLE, reason, trouble, turn.now)
    else:
        turn.state.problems.clear(TRAINER_ROLE, reason)


def _await_survivors(turn: StepContext) -> None:
    """Form no group from nothing for a while."""
    turn.state.rendezvous.recovering_until = turn.now + RECOVERY_SECONDS
    turn.state.servers.await_survivors()


def _recover(turn: StepContext, before: Recovered) -> None:
    """Begin from a saved state: ranks of an earlier group get time to report to us."""
    state, saved = turn.state, before.saved
    try:
        state.servers.recover(saved.servers)
    except (KeyError, ValueError, TypeError) as error:
        raise SnapshotError(f"the saved state is damaged: {error!r}") from error
    state.holders.active = saved.holders
    state.data, state.order, state.ledger = saved.data, saved.order, before.ledger
    state.rendezvous.skipped = tuple(before.ledger.quarantine)
    state.rendezvous.slots_per_step = saved.order.slots_per_step
    state.rendezvous.continue_from(saved.group)
    state.audits = {audit.epoch: audit for audit in saved.audits}
    state.result = saved.result
    _await_survivors(turn)
