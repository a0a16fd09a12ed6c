"""The benchmark that runs programs alone and under Penstock, cut short."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.alone import ALONE, PROGRAMS, SCRIPT, goals_of, measure, run


def test_the_programs_know_nothing_of_penstock() -> None:
    assert "penstock" not in SCRIPT.read_text()


def test_the_programs_are_of_every_kind() -> None:
    assert len(PROGRAMS) == 8
    assert {program.workers for program in PROGRAMS} == {0, 2, 4, 8}
    assert sum(program.augment for program in PROGRAMS) == 4
    assert sum(program.waits for program in PROGRAMS) == 4
    assert {program.iterable for program in PROGRAMS} == {True, False}
    assert {program.batch_bytes >> 10 for program in PROGRAMS} == {64, 150 << 10}
    assert {"--pin" in program.more for program in PROGRAMS} == {True, False}


@pytest.mark.slow
def test_a_program_has_a_ratio_for_each_system() -> None:
    row = measure(PROGRAMS[0], pairs=1, share=0.05, warm=0.0, seed=3)
    assert row["alone_steps_per_second"] > 0
    assert row["ratio_0"] > 0
    assert row["ratio_2"] > 0
    assert row["order_equal"]
    assert row["failures"] == []


@pytest.mark.slow
def test_what_the_batches_hold_depends_on_the_seed() -> None:
    first, again, other = (
        run(ALONE, PROGRAMS[0].options(0.05, seed)).batches for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def row(**more: Any) -> dict[str, Any]:
    return {
        "program": "p",
        "waits": True,
        "pairs_0": [1.0, 1.01, 1.0],
        "pairs_2": [1.0, 1.2],
        "order_equal": True,
        "failures": [],
        **more,
    }


def batches(**more: Any) -> dict[str, Any]:
    return {
        "program": "p",
        "draws": False,
        "differing": [],
        "another_order": [],
        "failures": [],
        **more,
    }


def test_goals_are_missed_where_a_figure_is() -> None:
    def missed(rows: list[dict[str, Any]], compared: list[dict[str, Any]]) -> list[str]:
        return [goal.name for goal in goals_of(rows, compared) if not goal.ok]

    assert missed([row()], [batches()]) == []
    assert len(missed([row(pairs_0=[0.9, 1.0])], [batches()])) == 2
    assert len(missed([row(pairs_2=[0.9, 1.0])], [batches()])) == 1
    assert missed([row(waits=False, pairs_2=[0.98, 0.99])], [batches()]) == []
    assert missed([row(order_equal=False)], [batches()]) == ["order as alone"]
    assert missed([row(failures=["exit code -6"])], [batches()]) == ["every run ends well"]
    assert missed([row()], [batches(another_order=["x"])]) == ["order as alone"]
    drawn = batches(draws=True, differing=["num_workers 5"])
    assert missed([row()], [batches(), drawn]) == ["bits alike where something is drawn"]
