"""Every state is checked after every event, whatever a test is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.trainer.control import coordinator
from penstock.trainer.control.invariants import validate_state
from penstock.trainer.control.machine import step
from penstock.trainer.control.model.events import Event, Instruction
from penstock.trainer.control.model.state import State


@pytest.fixture(scope="package", autouse=True)
def _valid_states() -> Iterator[None]:
    def checked(state: State, event: Event, now: float) -> list[Instruction]:
        instructions = step(state, event, now)
        validate_state(state)
        return instructions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "step", checked)
        yield
