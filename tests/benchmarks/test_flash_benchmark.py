"""What `benchmarks.flash` makes of what its processes print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.flash import add_cost, goals, main, medians, row_of
from benchmarks.flash_programs.savers import SAVERS, Copy, digest, make_state


def trained(*times: float) -> dict[str, Any]:
    return {
        "times": list(times),
        "saves": [0.5, 0.1, 0.3],
        "peak_bytes": 210,
        "digest": 1.0,
        "memcpy_seconds": 0.2,
    }


def begun(digest: float) -> dict[str, Any]:
    return {"seconds": 0.5, "peak_bytes": 200, "digest": digest}


def rows(digest: float = 1.0) -> list[dict[str, Any]]:
    plain = row_of("none", {**trained(0.1, 0.1, 0.1), "saves": []}, {}, 100)
    ours = row_of("penstock", trained(0.2, 0.6, 0.1), {"restore": begun(digest)}, 100)
    both = [plain, ours]
    add_cost(both)
    return both


def test_a_save_costs_what_the_training_takes_longer() -> None:
    _, ours = rows()
    assert ours["first_save_ms"] == 500
    assert ours["longest_save_ms"] == 300
    assert ours["save_ms"] == pytest.approx(200)
    assert ours["at_300_s"] == pytest.approx(0.2 / 300, abs=1e-5)
    assert ours["peak"] == 2.1


def test_goals_are_held_against_one_copy_of_the_state() -> None:
    found = {goal.name: goal for goal in goals(rows())}
    assert found["longest save by one copy of the state in memory"].got == 1.5
    assert not found["longest save by one copy of the state in memory"].ok
    assert found["states taken up are those that were kept"].ok
    copied = {**rows()[1], "system": "copy", "longest_save_ms": 250.0}
    [beside] = [goal for goal in goals([*rows(), copied]) if "plain copies" in goal.name]
    assert beside.got == 1.2
    found = {goal.name: goal for goal in goals(rows(digest=2.0))}
    assert not found["states taken up are those that were kept"].ok


def test_of_rounds_the_median_counts_and_a_state_that_differs_once() -> None:
    one, two = rows()[1], rows(digest=2.0)[1]
    assert medians([one, two, one])["restore_whole"] is False
    assert medians([one, one])["mean_ms"] == round(one["mean_ms"], 3)


def test_a_copy_is_the_state_in_other_memory() -> None:
    state, saver = make_state(120), SAVERS["copy"](Path())
    for step in (1, 2):
        for tensors in state.values():
            for tensor in tensors.values():
                tensor.fill_(step)
        saver.save(step, state)
        assert isinstance(saver, Copy)
        assert digest(saver._room) == digest(state) > 0
    state["model"]["0"].zero_()
    assert digest(saver._room) != digest(state)


def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--steps", "10"], ["--systems", "none"], ["--systems", "none,penstock,x"]):
        with pytest.raises(SystemExit):
            main(arguments)
    assert "at least two saves" in capsys.readouterr().err
