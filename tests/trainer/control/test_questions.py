"""Questions change nothing, however often they are asked; what cannot be read marks nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Final

import pytest

from penstock.data.ledger.journal import begin
from penstock.job.protocol import AgentReport, SessionReport
from penstock.trainer.control import coordinator, sessions, workers
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.control.model.events import Event, Instruction
from penstock.trainer.control.model.job import JobFacts
from penstock.trainer.control.model.saved_state import SavedState
from penstock.trainer.control.model.state import State
from penstock.trainer.journal import restore
from tests.parameter_server.control import recorded_lives as of_servers
from tests.trainer.control import recorded_lives
from tests.trainer.control.recorded_lives import Trainer, recorded

SOME_EVENTS: Final = 200


def written_out(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """A state with all that it holds, as plain data; what follows from it is left out."""
    if value is None or isinstance(value, str | int | float):
        return str(value)
    if id(value) in seen or callable(value):
        return "..."
    seen |= {id(value)}
    if isinstance(value, Mapping):
        return [[written_out(part, seen) for part in pair] for pair in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [written_out(part, seen) for part in value]
    return {name: written_out(part, seen) for name, part in _fields(value)} or str(value)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    for name in (*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())):
        if _is_own(type(value), name):
            yield name, getattr(value, name)


@cache
def _is_own(kind: type, name: str) -> bool:
    """Not what follows from other fields."""
    return not isinstance(getattr(kind, name, None), cached_property) and name[:2] != "__"


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_questions_do_not_write(seed: int) -> None:
    trainer = Trainer()
    for number, (call, now, given, _) in enumerate(recorded()[seed]):
        trainer.play(call, now, given)
        if number % 10:
            continue
        state = trainer.coordinator.state
        before = written_out(state)
        trainer.digest(now)
        if call == "session":
            sessions.answer(state, SessionReport.model_validate(given), now)
        if call == "agent":
            workers.answer_agent(state, AgentReport.model_validate(given), now)
        assert written_out(state) == before, f"after event {number}"


@pytest.mark.parametrize(
    ("life", "seed"), [(recorded_lives, 0), (recorded_lives, 2), (of_servers, 0), (of_servers, 3)]
)
def test_between_two_steps_nothing_changes(
    life: ModuleType, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever calls the trainer: what is below its state is stepped from its step alone."""
    left: dict[int, Any] = {}

    def watched(state: State, event: Event, now: float) -> list[Instruction]:
        before = left.get(id(state))
        assert before is None or written_out(state) == before, f"something wrote before {event}"
        instructions = step(state, event, now)
        left[id(state)] = written_out(state)
        return instructions

    step = coordinator.step
    monkeypatch.setattr(coordinator, "step", watched)
    trainer = life.Trainer()
    for call, now, given, _ in life.recorded()[seed][:SOME_EVENTS]:
        trainer.play(call, now, given)
        state = trainer.coordinator.state
        assert left.get(id(state)) in (None, written_out(state)), f"{call} wrote after its steps"


def test_a_journal_that_cannot_be_used_leaves_no_mark() -> None:
    first = Coordinator(JobFacts(), "one")
    restore(b"", "nothing", first, 0.0)
    trainer = Trainer()
    for call, now, given, _ in recorded()[2]:
        trainer.play(call, now, given)
    ledger, extra = trainer.coordinator.state.ledger, trainer.coordinator.extra()
    assert ledger is not None
    assert extra is not None
    assert SavedState.read(extra).holders
    damaged = begin(ledger, {**extra, "slots_per_step": 3})
    second = Coordinator(JobFacts(), "one")
    restore(damaged, "the journal", second, 0.0)
    assert not second.state.holders.active
    assert written_out(second.state) == written_out(first.state)
