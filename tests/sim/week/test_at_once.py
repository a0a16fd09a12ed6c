"""A simulation that stands still in time ends with an error."""

from __future__ import annotations

import pytest

from penstock.sim.errors import SimulationError
from penstock.sim.week.at_once import AtOnce


def test_a_moment_has_so_many_looks_and_the_next_begins_anew() -> None:
    at_once = AtOnce("job-7", 3)
    for now in (0.0, 0.0, 0.0, 1.5, 1.5, 1.5, 2.0):
        at_once.look(now)


def test_one_too_many_ends_the_run_and_names_the_job() -> None:
    at_once = AtOnce("job-7", 3)
    for _ in range(3):
        at_once.look(60.0)
    with pytest.raises(SimulationError, match="job-7: still changing after 3 looks at 60 s"):
        at_once.look(60.0)
