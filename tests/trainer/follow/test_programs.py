"""A real program, killed in mid-epoch and gone on with in another world.

What each kind of loop does is tested in one process beside this; here it is that the launcher, the
hook and process groups fit to it.
"""

from __future__ import annotations

import argparse
import random

import pytest

from benchmarks.exactly_once import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_no_sample_is_lost_or_repeated_when_the_world_shrinks(kind: str) -> None:
    few = {"samples": 48, "epochs": 2, "batch": 4, "every": 2, "checkpoints": 1}
    options = argparse.Namespace(worlds="2,1", kills=None, without=False, **few)
    row = run(kind, options, random.Random(0))
    assert row["resumed"][1], "it began anew"
    assert row["ended"]
    assert (row["lost"], row["repeated"]) == (0, 0), row
    assert row["loss_difference"] is not None, row
