"""What follows from the parts of a trainer's state together."""

from __future__ import annotations

import pytest

from penstock.parameter_server.control.state import Phase
from penstock.trainer.control.model.job import ControlSettings, JobFacts
from penstock.trainer.control.model.state import State


@pytest.mark.parametrize("phase", Phase)
def test_while_servers_are_read_to_be_saved_nobody_is_to_take_a_step(phase: Phase) -> None:
    state = State.begin(JobFacts(), "life", ControlSettings())
    state.servers.activate()
    state.servers.state.phase = phase
    assert state.holds_steps == (phase is Phase.SAVING)
