"""Errors of the simulators come from processes of a pool as they are."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.sim.errors import (
    BrokenTraceError,
    MissingTraceError,
    SimulationError,
    UnknownNameError,
    UnnamedTracesError,
)


@pytest.mark.parametrize(
    "error",
    [
        SimulationError("no such thing"),
        MissingTraceError(Path("traces/one.csv"), "a trace"),
        UnnamedTracesError("--generated"),
        BrokenTraceError(Path("one.csv"), 7, "no number"),
        UnknownNameError("policy", "best", ("fgd", "most")),
    ],
)
def test_an_error_reaches_another_process_as_it_is(error: SimulationError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
