"""What each process is told: whole orders, from the state alone. Nothing here changes anything."""

from __future__ import annotations

from typing import Any

from penstock.job.protocol import LeaseReply
from penstock.parameter_server.control.machine import has_to_stay
from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.protocol import (
    FrozenModel,
    ServerOrder,
    ServerReply,
    ServerReport,
    WorkerReply,
    WorkerReport,
)


def server_reply(
    state: State, trainer: str, report: ServerReport, *, accepted: bool
) -> ServerReply:
    """The whole orders for one server."""
    me = report.server

    def reply(order: ServerOrder, **more: Any) -> ServerReply:
        revision = state.revisions.revision
        return ServerReply(trainer=trainer, revision=revision, order=order, **more)

    if not accepted:
        return reply(ServerOrder.REFUSED, message=f"{me} was replaced by a newer process")
    if state.phase is Phase.DONE:
        return reply(ServerOrder.IDLE, finished=True)
    present, following = state.layout, state.next
    if following is not None and following.index_of(me) is not None:
        return reply(
            ServerOrder.BUILD,
            layout=present,
            next=following,
            source=state.source,
            spec=state.spec,
            data=state.data,
        )
    if present is not None and present.index_of(me) is not None:
        return reply(state.order, layout=present, snapshot=state.checkpoints.snapshot)
    return reply(ServerOrder.IDLE)


def worker_reply(
    state: State, trainer: str, report: WorkerReport, lease: LeaseReply, now: float
) -> WorkerReply:
    """The whole orders for one worker."""
    worker = state.workers.get(report.member)
    chief = worker is not None and worker.id == state.workers.chief_id
    serves = state.phase in (Phase.SERVING, Phase.HALTING, Phase.DONE)
    filling = state.initialization
    fills = filling is not None and filling.is_for(report)
    saves = state.checkpoints.writing and report.member == state.checkpoints.saver
    return WorkerReply(
        trainer=trainer,
        revision=state.revisions.revision,
        lease=lease,
        layout=state.layout if serves else None,
        paused=state.paused,
        chief=chief or fills,
        fill=state.next if fills else None,
        fill_checkpoint=filling.checkpoint if filling is not None and fills else None,
        save=state.checkpoints.snapshot if saves else None,
        save_from=_frozen_model(state) if saves else None,
        stay=has_to_stay(state, chief, now),
        over=state.phase is Phase.DONE,
        message=message(state, now),
    )


def _frozen_model(state: State) -> FrozenModel | None:
    """What the chief reads while nothing changes it; None: there are copies."""
    if state.phase is not Phase.SAVING or state.layout is None:
        return None
    return FrozenModel(layout=state.layout, training_waits=state.checkpoints.training_waits)


def message(state: State, now: float) -> str:
    """What goes on, for people; empty when the training runs."""
    if said := state.rejection_reason or state.last_error:
        return said
    if state.suspension.wanted:
        return "the job is suspended"
    if state.phase is Phase.SAVING:
        return "the model is being saved, and nothing may change it meanwhile"
    if state.layout is None:
        if state.next is not None:
            return f"layout {state.next.number} is being filled"
        there = bool(state.workers.live(now))
        return "waiting for parameter servers" if there else "waiting for workers"
    return ""


def summary(state: State, now: float) -> dict[str, Any]:
    """The figures of the servers, for people and benchmarks; plain data."""
    layout = state.layout
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
        "stage": state.order.value if layout is not None else "none",
        "building": state.next_number,
        "owners": owners,
        "known": len(state.servers.servers),
        "workers": state.workers.count_training(now),
        "updates": max((applied.pushes for applied in state.applied()), default=0),
        "saved_slots": state.checkpoints.saved,
        "restores": state.restores,
        "dropped": state.workers.dropped_batches(),
        "transitions": [each.plain() for each in state.transitions.kept],
    }
