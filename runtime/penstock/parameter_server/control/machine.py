"""What a trainer decides about parameter servers: one step for everything that happens.

`step` is the only function that changes a `State`; it does no I/O, reads no clock and says nothing
itself. It is level-triggered: `Ticked` looks at everything anew. It keeps, for any interleaving of
reports, crashes, restarts of the trainer and changes of what is wanted:

- Of all layouts at most one is served. The next one is served only when every owner of the present
  one is known to be frozen and every owner of the next one has built it; an order is taken to be
  carried out only by a report that was made after it
  (`penstock.parameter_server.control.records.revisions`).
- All servers of a layout have applied the same slots when it is moved or saved. A slot that a dead
  worker left half done is leased again first.
- The ledger is never ahead of the servers: where they go back to a checkpoint, it goes back too.
- No wait is without an end: a worker that does not stop loses its lease, a server that does not
  follow loses its partitions.

The decisions themselves are beside it, by what is going on: `training` (with a layout), `moving`
(to the next one), `starting` (without any).
"""

from __future__ import annotations

from penstock.data.ledger import Ledger
from penstock.parameter_server.control.decisions import moving, starting, training
from penstock.parameter_server.control.decisions.decision import Decision
from penstock.parameter_server.control.events import (
    Activated,
    Event,
    Finished,
    Instruction,
    PodsKnown,
    RanksCapped,
    Recovered,
    Refuse,
    ServerAnswered,
    ServerReported,
    ServersExpected,
    SurvivorsExpected,
    SuspensionChanged,
    Ticked,
    WorkerAlive,
    WorkerAnswered,
    WorkerEnded,
    WorkerReported,
)
from penstock.parameter_server.control.records.checkpointing import can_save
from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.protocol import ServerReport, WorkerReport


def step(state: State, event: Event, now: float) -> list[Instruction]:
    """Take in an event; what the caller is to do about it, in order.

    ``now`` is in seconds of any clock that does not go back, the same one for all events.
    """
    match event:
        case Ticked(ledger, data):
            state.data = data
            return _decide(state, ledger, now)
        case ServerReported(report):
            return [] if _record_server(state, report, now) else [Refuse()]
        case WorkerReported(report):
            return [] if _record_worker(state, report, now) else [Refuse()]
        case ServerAnswered(server):
            if state.phase is Phase.DONE:
                state.informed.add(server)
        case WorkerAnswered(worker):
            known = state.workers.get(worker)
            chief = known is not None and known.id == state.workers.chief_id
            if awaits_chief(state, chief):
                state.workers.elect(now)
        case WorkerAlive(rank, incarnation):
            state.workers.keep_alive(rank, incarnation, now)
        case WorkerEnded(rank, incarnation):
            state.workers.mark_ended(rank, incarnation)
        case PodsKnown(servers, ended):
            state.servers.set_pods(servers, ended)
        case RanksCapped(cap):
            state.servers.cap = cap
        case ServersExpected(count):
            state.servers.at_least = count
        case SuspensionChanged(wanted):
            state.suspension.want(wanted)
        case Activated():
            state.active = True
        case SurvivorsExpected():
            state.recovery.expected = True
        case Recovered():
            _recover(state, event)
        case Finished():
            if state.phase is not Phase.DONE:
                state.phase = Phase.DONE
                state.revisions.bump(now)
    return []


def awaits_chief(state: State, chief: bool) -> bool:
    """Whether a suspended job's model is not on disk yet, and this worker may have to write it."""
    wanted = chief and state.suspension.wanted and state.layout is not None
    return wanted and not state.suspension.is_saved(state.checkpoints.saved)


def has_to_stay(state: State, chief: bool, now: float) -> bool:
    """Whether it does have to: nobody else can."""
    return awaits_chief(state, chief) and can_save(state.workers.find_chief(now))


# ---------------------------------------------------------------------- reports


def _record_server(state: State, report: ServerReport, now: float) -> bool:
    if not state.servers.record(report, now):
        return False
    state.active = True
    state.recovery.begin(now)
    if state.spec is None and report.spec is not None:
        state.spec = report.spec
    _hear(state, report.built, now)
    if report.layout is not None:
        if state.phase is Phase.INITIALIZING and not state.recovery.ours:
            # There is a layout of an earlier life: all that was decided in this one was too early.
            state.phase, state.next = Phase.RECOVERING, None
        _hear(state, report.layout.number, now)
    return True


def _record_worker(state: State, report: WorkerReport, now: float) -> bool:
    if not state.workers.record(report, now):
        return False
    state.active = True
    state.recovery.begin(now)
    if state.spec is None:
        state.spec = report.spec
    _hear(state, max(report.layout, report.filled), now)
    state.checkpoints.record(report.checkpoint)
    return True


def _hear(state: State, number: int, now: float) -> None:
    state.recovery.hear(number, state.phase is Phase.RECOVERING, now)


def _recover(state: State, before: Recovered) -> None:
    state.active = True
    state.recovery.number, state.recovery.present = before.number, before.present
    state.checkpoints.saved = before.saved
    state.restores = before.restores
    state.workers.any_closed = before.any_closed
    state.final_slots = before.final_slots


# ---------------------------------------------------------------------- decisions


def _decide(state: State, ledger: Ledger | None, now: float) -> list[Instruction]:
    done = state.phase is Phase.DONE
    state.workers_done = done or (state.final_slots is not None and state.workers.are_done(now))
    if not state.active or done:
        return []
    state.recovery.begin(now)
    decision = Decision(state, ledger, now)
    if state.phase is Phase.RECOVERING:
        _take_up(decision)
    if state.phase is not Phase.RECOVERING:
        layouts = (state.layout, state.next)
        owners = {server.id for layout in layouts if layout for server in layout.servers}
        state.servers.forget(owners, now)
        if state.layout is not None:
            _keep(decision)
        if state.layout is None and ledger is not None:
            starting.form(decision)
    return decision.instructions


def _take_up(decision: Decision) -> None:
    """Go on where an earlier trainer was, once that is known well enough."""
    state, now = decision.state, decision.now
    if not state.recovery.known(state.servers, state.workers, now):
        return
    newest = state.recovery.newest(state.servers) if state.recovery.awaited else None
    state.recovery.end()
    if newest is None:
        state.phase = Phase.INITIALIZING
        return
    decision.info(f"took up layout {newest.number} of {len(newest.servers)} servers")
    state.layout, state.ledger_unverified = newest, True
    state.restores = max(state.restores, newest.restores)
    state.recovery.serve(newest.number)
    decision.serve()
    state.revisions.bump_layout(now)


def _keep(decision: Decision) -> None:
    """Look after the present layout; at the end there may be none."""
    state, now = decision.state, decision.now
    if state.next is not None and moving.is_whole(state, state.next, now):
        moving.switch(decision)
    if state.suspension.wanted and starting.are_leaving(decision):
        decision.elect()  # in any phase: the chief, though asked to go, stays until all is kept
        if decision.is_kept():
            starting.part(decision)
            return
    assert state.layout is not None
    moving.note_mismatches(decision, state.layout)
    if lost := state.find_lost(state.layout, now):
        decision.abandon(lost)
    elif state.phase is Phase.BUILDING:
        moving.watch_build(decision)
    else:
        training.go_on(decision)
