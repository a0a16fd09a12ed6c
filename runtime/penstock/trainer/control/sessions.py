"""Sessions that train together: what they report, and their orders."""

from __future__ import annotations

from penstock.base.enums import Guarantee
from penstock.job.identities import consumer_name
from penstock.job.protocol import Directive, Phase, SessionReply, SessionReport
from penstock.trainer.control.model.events import Superseded
from penstock.trainer.control.model.group_leases import unusable
from penstock.trainer.control.model.job import DEFAULT_SLOTS_PER_STEP, RefusedError
from penstock.trainer.control.model.state import State
from penstock.trainer.control.step_context import StepContext


def record(turn: StepContext, report: SessionReport) -> bool:
    """Take in a member's report; False if a newer process has its rank.

    Raises:
        RefusedError: the report does not fit the job, for instance another dataset size.
    """
    state, now = turn.state, turn.now
    if report.data is None:
        return _record_launched(turn, report)
    turn.refuse_copies()
    if state.rendezvous.members.launched:
        raise RefusedError(
            "session: this program is one of several that --nproc-per-node starts, which are to "
            "form a process group themselves; start it with `penstock run -- python train.py`, or, "
            "where each pod's processes hold a sharded model together, with --replica-group beside "
            "--nproc-per-node"
        )
    if state.servers.active:
        raise RefusedError("data: this job's slots belong to its parameter servers' workers")
    if state.facts.guarantee is Guarantee.UNSHARDED:
        raise RefusedError(
            "input.guarantee: Unsharded; workers that share their steps cannot each have all "
            "data: lease it with penstock.trainer.shards, or choose another guarantee"
        )
    order = turn.check_data(report.data)
    if (report.committed or 0) > order.total_steps:
        raise RefusedError(f"committed: {report.committed}; the job has {order.total_steps} steps")
    turn.open_data(report.data)
    at_work = report.phase in (Phase.READY, Phase.TRAINING)
    if at_work and state.replica_groups.is_broken(report.member.rank):
        state.rendezvous.lose(report.member.rank)
        turn.instructions.append(Superseded())
        return False
    if not state.rendezvous.record(report, now):
        turn.instructions.append(Superseded())
        return False
    state.write_problems.hear(report.member.rank, report.troubles, now)
    for audit in report.audits:
        state.audits[audit.epoch] = audit
    if report.result is not None:
        state.result = report.result
    _acknowledge(turn, report)
    _refuse_bad_data(state, report)
    return True


def advance(turn: StepContext) -> None:
    """Form a group where it is time, and keep it supplied with steps and even shares."""
    state, now = turn.state, turn.now
    for rank in state.replica_groups.decide(now):
        state.rendezvous.lose(rank)
    formed = state.rendezvous.decide(now)
    leases = state.group_leases
    if formed is not None and leases is not None:
        leases.begin()
        epoch = formed.start_step // leases.order.steps_per_epoch
        state.audits = {each: audit for each, audit in state.audits.items() if each < epoch}
        state.shares.begin(formed)
        state.progress.note(now, formed.start_step)
    if state.ledger is not None:
        state.ledger.expire(now)
    if leases is not None and state.rendezvous.training and not state.holders.active:
        leases.extend(now, state.progress.steps_per_second(now, 30.0))
    if state.shares.rebalance(state.rendezvous, now):
        state.rendezvous.revision += 1


def answer(state: State, report: SessionReport, now: float) -> SessionReply:
    """The whole orders for one session."""
    own = state.replica_groups.of(report.member.rank) if report.replica_pods > 1 else None
    rendezvous = own or state.rendezvous
    directive, group = rendezvous.directive(report.member)
    message = rendezvous.waiting_message(now)
    if directive is Directive.REFUSED:
        message = f"{report.member} was replaced"
    waits = directive is Directive.WAIT and (own is None or report.phase is Phase.READY)
    if waits and _others_finished(state):
        directive = Directive.FINISH
    order = state.order
    trains = own is None and group is not None
    return SessionReply(
        trainer=state.identity,
        revision=rendezvous.revision,
        directive=directive,
        group=group,
        slots_per_step=order.slots_per_step if order else DEFAULT_SLOTS_PER_STEP,
        lease_seconds=state.facts.lease_seconds,
        lease_stop_step=state.lease_stop_step if trains else 0,
        shares=state.shares.current if trains else (),
        audited_epochs=_count_audited(state),
        message=message,
    )


# ---------------------------------------------------------------------- inside


def _record_launched(turn: StepContext, report: SessionReport) -> bool:
    """Take in an agent's report for the processes that it starts; False if it was replaced.

    It is served also where the job was refused: agents hear of that by their own reports.
    """
    if report.replica_pods > 1:
        return _record_replica_group(turn, report)
    if turn.state.data is not None or turn.state.servers.active:
        raise RefusedError(
            "--nproc-per-node: this job's workers share its samples, by a session, leased shards "
            "or parameter servers; start them with `penstock run -- python train.py`"
        )
    if not turn.state.rendezvous.record(report, turn.now):
        turn.instructions.append(Superseded())
        return False
    return True


def _record_replica_group(turn: StepContext, report: SessionReport) -> bool:
    """The same of processes that are one member of a session, with those of other pods."""
    state, pods = turn.state, report.replica_pods
    if state.rendezvous.members.launched or state.servers.active:
        raise RefusedError(
            "--replica-group: this job has workers without it: start all of them alike"
        )
    if not state.replica_groups.fits(pods):
        raise RefusedError(
            f"--replica-group-pods: {pods}; the job has replica groups of "
            f"{state.replica_groups.pods} pods: start all workers alike"
        )
    unit = state.facts.node_unit
    if unit is not None and unit % pods:
        raise RefusedError(
            f"--replica-group-pods: {pods}; spec.replicaSpecs.worker.nodeUnit is {unit}: make it a "
            f"multiple of {pods}, so that workers come and go in whole replica groups"
        )
    if not state.replica_groups.record(report, turn.now):
        turn.instructions.append(Superseded())
        return False
    state.expect(state.expected)
    state.rendezvous.min_workers = state.least_members
    return True


def _acknowledge(turn: StepContext, report: SessionReport) -> None:
    state, now = turn.state, turn.now
    leases = state.group_leases
    if leases is None or report.generation != leases.group.number:
        return
    committed = report.committed if state.rendezvous.training else None
    if committed is not None and leases.acknowledge(committed, now):
        state.progress.note(now, committed)
    if report.failed is not None:
        member = consumer_name(report.member.rank, report.member.incarnation)
        turn.instructions += leases.blame(member, report.failed)
        state.rendezvous.skipped = tuple(leases.ledger.quarantine)


def _refuse_bad_data(state: State, report: SessionReport) -> None:
    """No group can finish a step of which a part is in quarantine and must not be skipped."""
    at_work = report.phase in (Phase.READY, Phase.TRAINING)
    if state.ledger is None or state.order is None or not at_work:
        return
    if problem := unusable(state.ledger, state.order):
        raise RefusedError(problem)


def _others_finished(state: State) -> bool:
    """Whether a model that has seen everything exists: there is nothing left to do."""
    if state.ledger is None or not state.ledger.finished:
        return False
    members = state.rendezvous.members
    return (
        state.result is not None
        or members.any_closed
        or any(member.finished for member in members.present)
    )


def _count_audited(state: State) -> int:
    """Epochs from the first one on whose audits have arrived without a gap."""
    epoch = 0
    while epoch in state.audits:
        epoch += 1
    return epoch
