"""What a trainer's state means: the figures of a job, whether it is done, what has to be saved.

Questions alone: nothing here changes a state.
"""

from __future__ import annotations

from typing import Any

from penstock.job.protocol import Phase
from penstock.trainer.control.model.state import State
from penstock.trainer.control.model.stragglers import stragglers
from penstock.trainer.control.model.summary import Summary


def summary(state: State, now: float) -> Summary:
    """The figures of the job so far."""
    audits = state.audits.values()
    servers, rendezvous = state.servers, state.rendezvous
    committed = state.committed_steps
    return Summary(
        data=state.data,
        total_steps=state.order.total_steps if state.order else 0,
        committed_steps=committed,
        epoch=committed // state.order.steps_per_epoch if state.order else 0,
        world_size=world_size(state, now),
        training=rendezvous.training or (servers.active and not servers.paused),
        group=rendezvous.group.number if rendezvous.group else 0,
        samples_seen=sum(audit.samples_seen for audit in audits),
        samples_lost=sum(audit.samples_lost for audit in audits),
        samples_repeated=sum(audit.samples_repeated for audit in audits),
        epochs_audited=len(state.audits),
        quarantined=state.ledger.quarantine if state.ledger else [],
        stragglers=find_stragglers(state),
        result=state.result,
        message=servers.message(now) if servers.active else rendezvous.waiting_message(now),
        alone=state.copies.alone(now),
        servers=servers.summary(now) if servers.active else None,
    )


def world_size(state: State, now: float) -> int:
    """Workers that train now."""
    if state.servers.active:
        return state.servers.count_training(now)
    group = state.rendezvous.group
    return len(group.members) if group and state.rendezvous.training else 0


def find_stragglers(state: State) -> dict[int, float]:
    """Members of the group that are much slower than the others, by rank."""
    times = {
        member.id.rank: member.report.slot_seconds
        for member in state.rendezvous.group_members
        if member is not None and member.report.slot_seconds
    }
    return stragglers(times)


def slots_by_rank(state: State) -> dict[int, int]:
    """How many slots of each step are every rank's now."""
    return state.shares.by_rank(state.rendezvous.group)


def is_done(state: State) -> bool:
    """Whether the data are exhausted and every session has said that it is through."""
    if state.copies.refusal is not None:
        return False
    if state.rendezvous.members.launched:
        return _launched_ended(state)
    if state.data is None or state.ledger is None:
        return _programs_ended(state)
    if state.servers.active:
        return state.ledger.finished and state.servers.workers_done
    if state.holders.active:
        return state.holders.finished(state.ledger) and _programs_ended(state)
    if not state.ledger.finished:
        return False
    through = (Phase.CLOSED, Phase.LEAVING)
    members = state.rendezvous.members
    return members.any_closed and all(m.report.phase in through for m in members.present)


def has_said_farewell(state: State, now: float) -> bool:
    """Whether all who wait for orders know that the job is done."""
    return not state.servers.active or state.servers.farewell(now)


def find_latecomers(state: State, now: float) -> set[int]:
    """Ranks of workers that live and have not asked for a group yet.

    Their programs are still starting. Once the job is done they have to be told, by somebody who is
    still there when they ask.
    """
    asked = state.servers if state.servers.active else state.rendezvous.members

    def has_asked(rank: int, incarnation: int) -> bool:
        return asked.has_asked(rank, incarnation) or state.replica_groups.speaks_for(
            rank, incarnation
        )

    return state.agents.find_latecomers(has_asked, now)


def state_to_save(state: State) -> dict[str, Any] | None:
    """What has to survive beside the ledger's own state; None before the data are known.

    `penstock.trainer.control.model.saved_state.SavedState` reads it.
    """
    if state.data is None or state.order is None:
        return None
    group = state.rendezvous.group
    return {
        "data": state.data.model_dump(mode="json"),
        "slots_per_step": state.order.slots_per_step,
        "group": group.number if group else 0,
        "holders": state.holders.active,
        "servers": state.servers.extra(),
        "audits": [audit.model_dump() for audit in state.audits.values()],
        "result": state.result,
    }


def _launched_ended(state: State) -> bool:
    """Every process of the newest group has ended well, and nobody waits for another one.

    Who was lost in an earlier group, and is not known to be gone, is no reason to stay.
    """
    waiting = any(m.report.phase is Phase.READY for m in state.rendezvous.members.present)
    return state.rendezvous.launched_to_end and not waiting


def _programs_ended(state: State) -> bool:
    """For programs that do not use the API: every worker that is expected has ended well."""
    return state.agents.all_ended_well(state.expected or frozenset())
