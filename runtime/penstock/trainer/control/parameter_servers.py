"""A job with parameter servers: its slots go to their workers, as fast as its servers allow.

What is decided about the servers themselves is decided below, in `State.servers`.
"""

from __future__ import annotations

from penstock.base.enums import TRAINER_ROLE, Guarantee
from penstock.crds.conditions import JobReason
from penstock.job.protocol import LeaseReply
from penstock.parameter_server.control.audits import audits_of
from penstock.parameter_server.protocol import ServerReport, WorkerReport
from penstock.trainer.control import queries
from penstock.trainer.control.model.events import Grant, Superseded
from penstock.trainer.control.model.job import RefusedError
from penstock.trainer.control.model.state import State
from penstock.trainer.control.step_context import StepContext


def record_server(turn: StepContext, report: ServerReport) -> None:
    """Take in a server's report."""
    state = turn.state
    accepted = state.servers.record_server(report, turn.now)
    if not accepted:
        turn.instructions.append(Superseded())
    if accepted and state.data is None and report.data is not None:
        turn.open_data(report.data)  # we have forgotten: a model is trained on them
    advance(turn)
    _note_updates(turn, report)


def serve_worker(turn: StepContext, report: WorkerReport) -> None:
    """Take in the report of a worker; it gets a lease unless it is too early for any.

    Raises:
        RefusedError: another model or other data, or the model does not fit the servers.
        LedgerError: an acknowledgement cannot be true, or the epoch cannot end.
    """
    state, now = turn.state, turn.now
    turn.refuse_copies()
    _refuse_worker(state, report)
    turn.check_data(report.lease.data)
    if state.ledger is not None:
        state.holders.check(report.lease, state.ledger, Guarantee.EXACTLY_ONCE)
    state.servers.activate()
    state.holders.active = True
    ledger, order = turn.open_data(report.lease.data)
    before = state.servers.find_worker(report.member.rank)
    if not state.servers.record_worker(report, now):
        raise RefusedError(f"{report.member} was replaced by a newer process")
    if before is not None and before.id != report.member:
        ledger.release(before.report.lease.holder)
    state.write_problems.hear(report.member.rank, report.troubles, now)
    advance(turn)
    if state.servers.recovering:
        return
    if state.servers.rejection_reason:
        raise RefusedError(state.servers.rejection_reason)
    if report.result is not None:
        state.result = report.result
    request = report.lease
    if state.servers.paused:
        request = request.model_copy(update={"max_slots": 0})
    lease = state.holders.serve(request, ledger, order, Guarantee.EXACTLY_ONCE, now)
    advance(turn)
    if state.servers.paused and lease.fence is not None:  # what came back allowed a halt
        ledger.give_back(lease.fence)
        lease = lease.model_copy(update={"fence": None, "start": 0, "stop": 0})
    turn.instructions.append(Grant(_with_end(lease, at_end=state.servers.at_end)))


def advance(turn: StepContext) -> None:
    """Look at the servers anew; what they have applied is what is audited."""
    state, now = turn.state, turn.now
    servers, ledger = state.servers, state.ledger
    before = ledger.watermark if ledger is not None else 0
    servers.decide(ledger, state.data, now)
    if trouble := servers.save_error:
        state.problems.report(TRAINER_ROLE, JobReason.CHECKPOINTS_NOT_WRITTEN, trouble, now)
    else:
        state.problems.clear(TRAINER_ROLE, JobReason.CHECKPOINTS_NOT_WRITTEN)
    if ledger is None or state.order is None:
        return
    if ledger.watermark < before:
        epoch = ledger.watermark // state.order.steps_per_epoch
        state.audits = {each: audit for each, audit in state.audits.items() if each < epoch}
    state.audits.update(audits_of(state.order, servers.applied(), ledger, state.audits))
    if queries.is_done(state) and not queries.find_latecomers(state, now):
        servers.finish(now)


# ---------------------------------------------------------------------- inside


def _with_end(lease: LeaseReply, *, at_end: bool) -> LeaseReply:
    return lease.model_copy(update={"finished": at_end})


def _refuse_worker(state: State, report: WorkerReport) -> None:
    if state.rendezvous.members.present:
        raise RefusedError("member: this job's slots belong to its sessions")
    if state.facts.guarantee is Guarantee.UNSHARDED:
        raise RefusedError(
            "input.guarantee: Unsharded; parameter servers take each slot once: choose another "
            "guarantee"
        )
    if report.lease.data.slots_per_step != 1:
        raise RefusedError(
            f"data.slots_per_step: {report.lease.data.slots_per_step}; with parameter servers "
            "a batch is one slot, so it must be 1"
        )
    known = state.servers.spec
    if known is not None and (difference := known.difference(report.spec)):
        raise RefusedError(f"spec: another model than this job's: {difference}")


def _note_updates(turn: StepContext, report: ServerReport) -> None:
    """One server's count of updates is that of the whole job: every push goes to all."""
    servers = turn.state.servers
    layout = servers.layout
    first = layout is not None and layout.servers[0].id == report.server
    if first and servers.serving and report.layout == layout:
        turn.state.progress.note(turn.now, report.applied.slots)
