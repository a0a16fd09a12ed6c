"""With a layout: when workers train, why they are halted, and what is done while they stand."""

from __future__ import annotations

from penstock.data.ledger import Ledger, LedgerError
from penstock.parameter_server.control.decisions import moving
from penstock.parameter_server.control.decisions.decision import Decision
from penstock.parameter_server.control.records.checkpointing import can_save
from penstock.parameter_server.control.state import Goal, Phase
from penstock.parameter_server.protocol import Applied, ServerStage


def go_on(decision: Decision) -> None:
    """One phase after the other, as far as what is known allows."""
    state = decision.state
    if state.phase is Phase.OPENING:
        _open(decision)
    if decision.ledger is None:
        return
    if state.phase is Phase.SERVING:
        _train(decision, decision.ledger)
    if state.phase is Phase.HALTING:
        _halt(decision, decision.ledger)
    if state.phase is Phase.FREEZING:
        _freeze(decision)
    elif state.phase is Phase.COPYING:
        _copy(decision)
    elif state.phase is Phase.SAVING:
        _save_in_place(decision)


# ---------------------------------------------------------------------- workers train


def _open(decision: Decision) -> None:
    """Workers may go on once all servers serve."""
    state = decision.state
    assert state.layout is not None
    if not state.all_report(state.layout, lambda report: report.stage is ServerStage.SERVING):
        return
    if state.ledger_behind:
        if decision.ledger is None or not _go_back(decision, decision.ledger, state.applied()[0]):
            return
        state.ledger_behind = False
    state.phase = Phase.SERVING
    state.rejection_reason = ""
    state.transitions.end("serve", decision.now)
    state.revisions.notify()


def _go_back(decision: Decision, ledger: Ledger, applied: Applied) -> bool:
    """The ledger follows a model that was restored."""
    apart = ledger.leases() or decision.booked().digest != applied.digest
    try:
        if apart and (ledger.state.frontier or applied.watermark):
            decision.adopt_progress(applied.watermark)
    except LedgerError as error:
        decision.state.rejection_reason = f"the checkpoint does not belong to these data: {error}"
        return False
    decision.state.ledger_unverified = False
    return True


def _train(decision: Decision, ledger: Ledger) -> None:
    state, now = decision.state, decision.now
    if state.checkpoints.snapshot is not None and _watch_save(decision):
        state.revisions.bump(now)
    if state.repair.goes_on(ledger.watermark, now):
        return
    state.repair.pause()
    state.goal = _choose_goal(decision, ledger)
    if state.goal is not None:
        state.transitions.begin(state.goal.value, now)
        state.phase = Phase.HALTING
        state.revisions.bump(now)


def _watch_save(decision: Decision) -> bool:
    """Look how the chief gets on; True: it has ended, and servers may drop their copies."""
    state, now = decision.state, decision.now
    decision.elect()
    saves, chief = state.checkpoints, decision.chief
    if chief is not None and chief.id != saves.saver:
        saves.appoint(chief.id, state.revisions.notify())
    if not can_save(chief):
        decision.warn(f"nobody is left to write the checkpoint of {saves.snapshot} slots")
        saves.drop()
        return True
    if chief.report.saved == saves.snapshot:
        decision.info(f"checkpoint of {saves.snapshot} slots saved by {chief.id}")
        saves.succeed(now)
        return True
    if saves.has_failed(chief.report):
        why = f"{chief.id} could not save: {chief.report.failed}"
        decision.warn(why)
    elif saves.is_late(now):
        why = f"{chief.id} did not save in {int(state.timeouts.initialize)} s"
        decision.warn(why)
        why += ": its disk hangs"
    else:
        return False
    state.workers.pass_over(chief.id, now + state.timeouts.initialize)
    saves.fail(now, why)
    return True


def _choose_goal(decision: Decision, ledger: Ledger) -> Goal | None:
    """Why to halt now; None: there is no reason."""
    state, now = decision.state, decision.now
    if state.backoff.is_waiting(now):
        return None
    if moving.choose_owners(decision):
        return Goal.MOVE
    if state.ledger_unverified:
        return Goal.VERIFY
    if not state.checkpoints.may_begin(now):
        return None
    decision.elect()  # whom a save is going to need
    if state.suspension.wanted:
        return None if decision.is_kept() else Goal.SAVE
    if ledger.finished:
        return Goal.END if _may_end(decision) else None
    return Goal.SAVE if state.checkpoints.is_due(ledger.consumed, decision.chief, now) else None


def _may_end(decision: Decision) -> bool:
    """At the end; where all workers died or were drained before it, others will come and save."""
    there = decision.chief is not None or decision.state.workers.any_completed
    return there and decision.state.final_slots is None


# ---------------------------------------------------------------------- workers stand still


def _halt(decision: Decision, ledger: Ledger) -> None:
    """Until no lease is open."""
    state, now = decision.state, decision.now
    if state.goal is Goal.MOVE and not moving.choose_owners(decision):
        state.goal = _choose_goal(decision, ledger)
    if state.goal is None:
        decision.serve()
        return
    holders = {lease.holder for lease in ledger.leases()}
    waited = now - state.revisions.ordered_at
    if waited < state.timeouts.halt and holders - state.workers.overdue(waited):
        return
    for holder in sorted(holders):
        decision.warn(f"{holder} did not stop for a change of the servers: its lease ends")
        decision.end_leases(holder)
    state.transitions.reached("halt", now)
    state.phase = Phase.FREEZING
    state.revisions.bump(now)


def _freeze(decision: Decision) -> None:
    """Until all servers are frozen with the same slots; then the change."""
    state, now = decision.state, decision.now
    if not _are_frozen(decision):
        if trouble := _why_not_frozen(decision):
            decision.warn(f"{trouble}; going on")
            state.checkpoints.drop()
            state.backoff.postpone(now)
            decision.serve()
        return
    state.transitions.reached("freeze", now)
    applied = state.applied()
    if len({(each.slots, each.watermark, each.digest) for each in applied}) > 1:
        _complete(decision, applied)
        return
    state.repair.end()
    state.backoff.reset()
    state.agreed_slots = applied[0].slots
    _verify(decision, applied[0])
    _act(decision, applied[0])


def _copy(decision: Decision) -> None:
    """Until all servers have a copy; it is written while the training goes on."""
    state, now = decision.state, decision.now
    if _are_frozen(decision):
        state.transitions.reached("copy", now)
        state.checkpoints.write(now)
        decision.serve()
    elif _are_frozen(decision, uncopied=True):
        _begin_save_in_place(decision)
    elif trouble := _why_not_frozen(decision):
        decision.warn(f"{trouble}; going on")
        state.checkpoints.fail(now)
        state.backoff.postpone(now)
        decision.serve()


def _begin_save_in_place(decision: Decision) -> None:
    """There is no memory for copies: the chief is to read the parameters themselves."""
    state, ledger = decision.state, decision.ledger
    assert state.layout is not None
    if not state.checkpoints.in_place:  # said once until there is memory
        decision.warn(
            f"checkpoints are written while the training waits: {state.find_uncopied(state.layout)}"
            "; with more memory for the servers it need not"
        )
    stays = state.suspension.wanted or (ledger is not None and ledger.finished)
    state.checkpoints.write(decision.now, in_place=True, training_waits=not stays)
    state.phase = Phase.SAVING
    state.revisions.notify()


def _save_in_place(decision: Decision) -> None:
    """Until the chief has read what the servers hold; a save that fails holds nobody up either."""
    ended = _watch_save(decision)
    chief = decision.chief
    if ended or (chief is not None and decision.state.checkpoints.has_read(chief.report)):
        decision.state.transitions.reached("save", decision.now)
        decision.serve()


def _are_frozen(decision: Decision, *, uncopied: bool = False) -> bool:
    """Whether all are, each with its copy if one is wanted; or with none for want of memory."""
    state = decision.state
    assert state.layout is not None
    snapshot = state.checkpoints.snapshot
    return state.all_report(
        state.layout,
        lambda report: (
            report.stage is ServerStage.FROZEN
            and (report.snapshot == snapshot or (uncopied and report.uncopied == snapshot))
        ),
    )


def _why_not_frozen(decision: Decision) -> str:
    """Why it is not waited for any longer; empty: it is."""
    state = decision.state
    assert state.layout is not None
    late = decision.now - state.revisions.ordered_at >= state.timeouts.freeze
    return state.find_trouble(state.layout) or ("servers did not freeze in time" if late else "")


def _complete(decision: Decision, applied: list[Applied]) -> None:
    """Servers differ: a worker ended between two of them. Its slots are done again first."""
    state, ledger, now = decision.state, decision.ledger, decision.now
    assert ledger is not None
    state.repair.attempts += 1
    counts = ", ".join(str(each.slots) for each in applied)
    decision.info(f"servers have applied {counts} slots: what is half done is completed first")
    if state.suspension.wanted and not state.workers.count_training(now):
        decision.warn("nobody is left to complete it: the newest checkpoint is what will be left")
        state.suspension.give_up(state.checkpoints.saved)
        decision.serve()
        return
    if state.repair.is_hopeless:
        decision.abandon([])
        return
    state.repair.begin(ledger.state.frontier, now)
    if state.repair.attempts > 1 or ledger.finished:
        decision.adopt_progress(min(*(each.watermark for each in applied), ledger.watermark))
    decision.serve()


def _verify(decision: Decision, applied: Applied) -> None:
    """The ledger must not be ahead of the servers; with no lease open that can be told."""
    ours = decision.booked()
    ahead = ours.slots > applied.slots or ours.watermark > applied.watermark
    if ahead or (decision.state.ledger_unverified and ours.digest != applied.digest):
        decision.info(
            f"the ledger follows the servers: {applied.slots} slots instead of {ours.slots}"
        )
        decision.adopt_progress(min(applied.watermark, ours.watermark))
    decision.state.ledger_unverified = False


def _act(decision: Decision, applied: Applied) -> None:
    """Everything stands still and agrees: do what it was halted for."""
    state, ledger, now = decision.state, decision.ledger, decision.now
    assert ledger is not None
    if owners := moving.choose_owners(decision):
        moving.begin(decision, owners)
        return
    state.suspension.stand(applied.slots)
    decision.elect()
    saves = can_save(decision.chief) and applied.slots != state.checkpoints.saved
    at_end = ledger.finished and _may_end(decision)
    state.checkpoints.end(at_end, now)
    wanted = (at_end and not state.checkpoints.is_given_up(now)) or state.goal is Goal.SAVE
    if saves and wanted:
        state.transitions.name(f"save at {applied.slots} slots")
        decision.begin_copy(applied.slots)
        return
    if at_end:
        state.final_slots = applied.slots
        if saves:
            decision.error("the job ends without a checkpoint of its last state")
    decision.serve()
