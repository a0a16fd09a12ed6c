"""Without a layout: who forms one, and how the chief fills it with parameters."""

from __future__ import annotations

from penstock.parameter_server.control.decisions import moving
from penstock.parameter_server.control.decisions.decision import Decision
from penstock.parameter_server.control.records.initialization import LayoutInitialization
from penstock.parameter_server.layout import ServerAddress, assign
from penstock.parameter_server.protocol import Source

# ---------------------------------------------------------------------- a layout is given up


def are_leaving(decision: Decision) -> bool:
    """Whether all servers of the present layout were asked to go."""
    state = decision.state
    assert state.layout is not None
    return all(state.servers.is_leaving(server.id) for server in state.layout.servers)


def part(decision: Decision) -> None:
    """Nobody is to come and take over: servers that are to go may go at once."""
    kept = decision.state.checkpoints.saved
    what = "nothing was saved" if kept is None else f"the checkpoint of {kept} slots is left"
    decision.info(f"the job is suspended and its servers go: {what}")
    decision.drop_layout()


# ---------------------------------------------------------------------- one is formed


def form(decision: Decision) -> None:
    """Form a layout whose parameters come from a checkpoint, or are the initial ones."""
    state, ledger, now = decision.state, decision.ledger, decision.now
    assert ledger is not None
    if state.initializing_since is None:
        state.initializing_since = now
    if state.suspension.wanted:
        if state.next is not None:
            _give_up(decision)
        return
    if state.next is not None and not _watch(decision):
        return
    if state.backoff.is_waiting(now) or state.spec is None:
        return
    first = not state.recovery.number
    servers = state.servers.first_owners(first, state.initializing_since, now)
    chief = state.workers.elect_restorer(now)
    if not servers or chief is None or not _fit(decision, servers):
        return
    newest, known = chief.report.checkpoint, state.checkpoints.saved
    if known is not None and (newest or 0) < known:
        if now - state.initializing_since < state.timeouts.recover:
            return  # whoever has it may be on its way
        decision.warn(f"the checkpoint of {known} slots is not to be had")
    if state.final_slots is not None and (newest or 0) < state.final_slots:
        state.rejection_reason = (
            "a parameter server was lost after the end of the training, and nobody has a "
            "checkpoint of its last state"
        )
        return
    state.checkpoints.saved = newest
    state.transitions.begin("first layout", now)
    back = state.rolling_back or ledger.consumed > (newest or 0)
    origin = f"the checkpoint of {newest} slots" if newest is not None else "the beginning"
    begin = "server begins" if len(servers) == 1 else "servers begin"
    say = decision.warn if back and newest is None else decision.info
    say(f"{len(servers)} parameter {begin} at {origin}, by {chief.id}")
    state.next = assign(
        state.recovery.new_number(),
        servers,
        state.spec.partitions,
        restores=state.restores + back,
    )
    state.source = Source.CHIEF
    state.initialization = LayoutInitialization(state.next.number, chief.id, newest)
    state.revisions.bump(now)


def _fit(decision: Decision, servers: list[ServerAddress]) -> bool:
    """Whether the model fits; at the beginning, if nobody else is to come, it is refused."""
    state = decision.state
    state.last_error = state.servers.find_shortage(state.spec, servers)
    first = not state.recovery.ours and not state.servers.missing(servers)
    state.rejection_reason = state.last_error if first else ""
    return not state.last_error


def _watch(decision: Decision) -> bool:
    """Follow the filling of the next layout; True if it has to be begun anew."""
    state, now = decision.state, decision.now
    following, filling = state.next, state.initialization
    assert following is not None
    assert filling is not None
    if state.have_built(following):
        moving.switch(decision)
        return False
    if filling.told is None and all(state.has_acknowledged(s.id) for s in following.servers):
        filling.told = state.revisions.notify()
    late = now - state.revisions.ordered_at >= state.timeouts.initialize
    if lost := state.find_lost(following, now):
        why = f"{lost[0]} went away"
    elif trouble := state.find_trouble(following):
        why = state.last_error = trouble
        if not state.recovery.ours:  # as for a model that fits nowhere
            state.rejection_reason = trouble
        state.backoff.postpone(now)
    elif why := filling.find_failure(state.workers, late, now):
        state.workers.pass_over(filling.chief, now + state.timeouts.initialize)
        if not filling.is_gone(state.workers, now):
            state.backoff.postpone(now)
    else:
        return False
    decision.warn(f"layout {following.number} could not be filled: {why}")
    _give_up(decision)
    return True


def _give_up(decision: Decision) -> None:
    state = decision.state
    state.next = state.initialization = None
    state.revisions.bump(decision.now)
