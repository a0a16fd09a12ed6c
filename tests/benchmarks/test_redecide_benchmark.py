"""The benchmark of changes in a running job: when it is steady, and what it counts as a change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import redecide
from benchmarks.links import Link
from penstock.data.standalone import LocalDataPlane


def a_run(*rates: tuple[float, float]) -> redecide.Run:
    """Batches at so many a second, for so many seconds each."""
    taken, now = [], 0.0
    for rate, seconds in rates:
        taken += [now + number / rate for number in range(round(rate * seconds))]
        now += seconds
    return redecide.Run(LocalDataPlane(0), Link(), Path("warm"), taken)


def test_it_is_steady_when_two_windows_have_the_rate_of_the_end() -> None:
    run = a_run((50, 40), (20, 12), (40, 60))
    assert redecide.settled(run, 40.0, 112.0) == pytest.approx(12.0, abs=1.0)
    assert redecide.settled(a_run((50, 112)), 40.0, 112.0) == 0.0


def test_many_changes_of_the_decision_are_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measure(name: str, before: float, after: float) -> dict[str, Any]:
        numbers = [2, 3, 2, 3]
        return {"change": name, "seconds": 4.0, "changes": redecide._changes(numbers)}

    monkeypatch.setattr(redecide, "measure", measure)
    monkeypatch.setattr("sys.argv", ["redecide", "--json"])
    assert redecide.main() == 1
    told = capsys.readouterr()
    assert [goal["ok"] for goal in json.loads(told.out)["goals"]] == [True, False]
    assert all(name in told.err for name in redecide.CASES), "each row is told as it is there"


@pytest.mark.slow
def test_one_data_worker_of_the_program_is_behind_the_link(tmp_path: Path) -> None:
    async def passed() -> int:
        async with redecide.running(1.0, 0.0, tmp_path) as run, asyncio.timeout(50):
            await redecide._until_at_work(run)
            while not run.link.passed:  # noqa: ASYNC110  a proxy says nothing
                await asyncio.sleep(0.1)
            return run.link.passed

    assert asyncio.run(passed()) > 0
