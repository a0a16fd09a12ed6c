"""Questions change nothing, however often they are asked; what cannot be read marks nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from penstock.data.ledger.journal import begin
from penstock.job.protocol import AgentReport, SessionReport
from penstock.trainer.control import sessions, workers
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.control.model.job import JobFacts
from penstock.trainer.control.model.saved_state import SavedState
from penstock.trainer.journal import restore
from tests.trainer.control.recorded_lives import Trainer, recorded


def written_out(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """A state with all that it holds, as plain data."""
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
    if isinstance(value, str):
        return
    names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
    for name in names:
        if not name.startswith("__"):
            yield name, getattr(value, name)


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
