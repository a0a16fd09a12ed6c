"""From one layout to the next: whom it should have for owners, and how they take over."""

from __future__ import annotations

from penstock.parameter_server.control.decisions.decision import Decision
from penstock.parameter_server.control.records.checkpointing import can_save
from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.layout import Layout, ServerAddress, assign
from penstock.parameter_server.protocol import ServerStage, Source


def choose_owners(decision: Decision) -> list[ServerAddress]:
    """The servers that should own the parameters instead of the present ones; empty: none.

    Remembers since when others are awaited, and why those that are there cannot.
    """
    state, now = decision.state, decision.now
    assert state.layout is not None
    if state.backoff.is_waiting(now) or state.suspension.wanted:
        return []
    state.servers.note_missing(state.layout, now)
    owners, state.last_error = state.servers.find_change(state.layout, state.spec, now)
    return owners


def begin(decision: Decision, owners: list[ServerAddress]) -> None:
    """All servers are frozen and agree: have the next owners take over."""
    state = decision.state
    assert state.layout is not None
    state.transitions.name(f"servers {len(state.layout.servers)} -> {len(owners)}")
    state.checkpoints.drop()
    decision.elect()
    state.checkpoints.after_move = can_save(decision.chief)
    number = state.recovery.new_number()
    state.next = assign(
        number, owners, len(state.layout.owners), state.layout, restores=state.restores
    )
    state.source, state.phase = Source.SERVERS, Phase.BUILDING
    state.revisions.bump(decision.now)


def watch_build(decision: Decision) -> None:
    """A newcomer that dies or takes too long: the present layout, which is whole, goes on."""
    state, now = decision.state, decision.now
    assert state.layout is not None
    assert state.next is not None
    owners = {server.id for server in state.layout.servers}
    lost = [server for server in state.find_lost(state.next, now) if server not in owners]
    trouble = state.find_trouble(state.next)
    late = now - state.revisions.ordered_at >= state.timeouts.build
    if lost or late or trouble:
        why = f"{lost[0]} went away" if lost else trouble or "servers were too slow"
        decision.warn(f"{why} while taking over; the present servers go on")
        state.transitions.name(f"servers {len(state.layout.servers)}, change given up")
        state.next = None
        state.backoff.postpone(now)
        decision.serve()


def is_whole(state: State, following: Layout, now: float) -> bool:
    """Whether all servers of the next layout have built it, and live."""
    return state.have_built(following) and not state.find_lost(following, now)


def switch(decision: Decision) -> None:
    """The next layout is the present one."""
    state, now = decision.state, decision.now
    assert state.next is not None
    moved = state.source is Source.SERVERS
    state.layout, state.next = state.next, None
    state.restores, state.rolling_back = state.layout.restores, False
    state.recovery.serve(state.layout.number)
    state.backoff.reset()
    state.ledger_behind = not moved
    state.transitions.reached("move" if moved else "fill", now)
    state.phase, state.goal = Phase.OPENING, None
    state.revisions.bump_layout(now)
    state.servers.clear_mismatches()
    if moved and state.checkpoints.after_move:
        decision.begin_copy(state.agreed_slots)


def note_mismatches(decision: Decision, layout: Layout) -> None:
    """Remember since when owners of the present layout do not hold, or do, what they should."""
    state, now = decision.state, decision.now
    late = now - state.revisions.ordered_at >= state.timeouts.freeze
    stuck = late and state.phase is Phase.OPENING
    for server in layout.servers:
        known = state.servers.get(server.id)
        if known is not None and state.revisions.acknowledged_layout(known.report):
            held = known.report.layout
            odd = held is None or held.number != layout.number
            odd = odd or (stuck and known.report.stage is not ServerStage.SERVING)
            known.mismatched_since = (known.mismatched_since or now) if odd else None
