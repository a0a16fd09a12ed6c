"""What holds of a `State` after every event, whatever happened before."""

from __future__ import annotations

from penstock.parameter_server.control.state import Phase, State
from penstock.parameter_server.protocol import Source


def validate_state(state: State) -> None:
    """Raises AssertionError: the state contradicts itself. For tests, after every step."""
    _validate_layouts(state)
    _validate_revisions(state)
    _validate_saves(state)
    _validate_registries(state)


def _validate_layouts(state: State) -> None:
    phase, present, following = state.phase, state.layout, state.next
    if phase is Phase.DONE:
        return  # what was going on then is left as it was
    without = phase in (Phase.RECOVERING, Phase.INITIALIZING)
    assert (present is None) == without, f"{phase} with layout {present}"
    if phase is Phase.BUILDING:
        assert following is not None, "nothing is built"
        assert state.source is Source.SERVERS, "the chief fills while a layout is there"
    elif following is not None:
        assert phase is Phase.INITIALIZING, f"a layout is built while {phase}"
        assert state.source is Source.CHIEF, "no server has anything to take over"
        assert state.initialization is not None, "nobody fills"
        assert state.initialization.number == following.number, "another layout is filled"
    numbers = [layout.number for layout in (present, following) if layout is not None]
    assert numbers == sorted(set(numbers)), f"layouts {numbers} do not follow each other"
    assert max(numbers, default=0) <= state.recovery.number, "a number may come again"
    if present is not None:
        assert state.recovery.ours, "a layout that was never served in this life"
        assert state.recovery.present == present.number, "another layout would be written down"
        assert state.restores >= present.restores, "a restore was forgotten"
    halted = (Phase.HALTING, Phase.FREEZING, Phase.COPYING, Phase.SAVING, Phase.BUILDING)
    if state.goal is not None:
        assert phase in halted, f"{state.goal} is pursued while {phase}"
    if phase in halted:
        assert state.transitions.current is not None, f"nobody measures how long {phase} takes"


def _validate_revisions(state: State) -> None:
    known = state.revisions
    assert known.placed <= known.ordered <= known.revision, f"revisions out of order: {known}"
    for server in state.servers.servers.values():
        assert server.seen >= server.since, f"{server.id} was seen before it came"


def _validate_saves(state: State) -> None:
    saves = state.checkpoints
    if state.phase is Phase.DONE:
        return
    copies = saves.snapshot is not None and not saves.writing
    assert copies == (state.phase is Phase.COPYING), f"{state.phase} with {saves}"
    assert not (saves.writing and saves.snapshot is None), "nothing is written"
    if state.phase is Phase.SAVING:
        assert saves.writing, "everything stands still, and nothing is read"
    if saves.writing:
        assert state.layout is not None, "copies are written of what is not there"
        assert state.phase is not Phase.BUILDING, "copies are kept of what is given away"


def _validate_registries(state: State) -> None:
    for key, server in state.servers.servers.items():
        assert key == (server.id.rank, server.id.incarnation), f"{server.id} under {key}"
    for rank, worker in state.workers.workers.items():
        assert rank == worker.id.rank, f"{worker.id} under {rank}"
    if state.workers.any_closed is False:
        assert not any(worker.closed for worker in state.workers.workers.values())
        assert not state.workers.any_completed, "completed by nobody"
    assert not state.workers_done or state.phase is Phase.DONE or state.final_slots is not None
    assert not state.informed or state.phase is Phase.DONE, "told of an end that has not come"
