"""The benchmark of sharing: real programs share and lose nothing, and goals are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sharing
from benchmarks.sharing_jobs import peer, scenarios
from benchmarks.sharing_jobs.programs import Found, Program, Stop, costs_of, lost_and_repeated
from penstock.sim.sharing.rules import bound_of


@pytest.mark.slow
def test_two_real_programs_have_everything_made_once() -> None:
    program = Program(samples=64, batch=8, epochs=1, step_seconds=0.2)
    row = scenarios.together(2, program, seed=1, workers=1)
    assert (row["lost"], row["repeated"], row["left"]) == (0, 0, 0)
    assert row["made"] <= 64 + 8, "one tile is the most that a late start may cost here"
    assert row["making_cpu_seconds"] > 0


def finding(*jobs: dict[str, Any] | None) -> Found:
    return Found(list(jobs), {1: 0.5, 2: 0.25, 3: 9.0})


def test_what_is_lost_and_repeated_is_counted_for_each_epoch() -> None:
    program = Program(samples=3, batch=1, epochs=2, step_seconds=0.0)
    good = {"epochs": [[0, 1, 2], [2, 1, 0]], "made": [1, 2]}
    bad = {"epochs": [[0, 0, 2], [1, 2]], "made": [2]}
    assert lost_and_repeated(finding(good, None), [program] * 2) == (0, 0)
    assert lost_and_repeated(finding(good, bad), [program] * 2) == (2, 1)
    found = finding(good, bad, None)
    assert found.made() == 2, "what nobody took is not counted"
    assert found.making_seconds() == 0.75


def test_waits_of_one_who_stood_still_count_but_for_those_of_that_time() -> None:
    waits = [(3.0, 2.5), (12.0, 1.0), (20.5, 4.0)]  # the first, before all had begun
    one = {"first_at": 0.0, "waits": waits}
    other = {"first_at": 2.0, "waits": [(30.0, 0.5)]}
    found = finding(one, other, None)
    assert found.longest_wait() == 4.0
    assert found.longest_wait([Stop(0, 17.0, 19.0)]) == 1.0
    assert found.longest_wait([Stop(1, 17.0, 19.0)]) == 4.0
    assert found.longest_wait([Stop(0, 17.0, 19.0), Stop(0, 11.5, 13.0)]) == 0.5


def test_costs_are_read_but_for_a_line_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "costs.txt"
    assert costs_of(path) == {}
    path.write_text("0 17 0.5\n1 18 0.25\n2 1")
    assert costs_of(path) == {17: 0.5, 18: 0.25}


def row(jobs: int, **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"jobs": jobs, "made_by_needed": 1.0, "making_cpu_seconds": 1.0}
    found |= {"seconds_after_first": 10.0, "lost": 0, "repeated": 0, "left": 0}
    return {**found, **others}


def test_goals_of_jobs_of_one_speed() -> None:
    rows = [row(1), row(8, seconds_after_first=10.2), row(64, making_cpu_seconds=1.08)]
    assert all(goal.ok for goal in sharing.together_goals(rows))
    missed = sharing.together_goals([row(1), row(8, making_cpu_seconds=1.08)])
    assert [goal.name for goal in missed if not goal.ok] == ["CPU of making by one job's, 8 jobs"]


def test_goals_of_jobs_apart() -> None:
    common = {"data_workers": 1, "slowdown_of_fastest": 0.0, "first_batch": 0.5}
    assert all(
        g.ok for g in sharing.apart_goals([row(8, made_by_needed=1.09, **common)], joins=False)
    )
    late = sharing.apart_goals([row(8, made_by_needed=1.09, **common)], joins=True)
    assert [goal.ok for goal in late] == [False, True, True]


def test_what_must_be_made_follows_from_when_programs_really_trained() -> None:
    [first, second] = scenarios.lives_of(
        [
            {"times": [100.0 + step for step in range(20)]},
            {"times": [110.5 + step for step in range(20)]},
        ]
    )
    assert (first.begins, first.ends) == (100.0, 119.0)
    assert (first.taken(100.0, 110.5), first.taken(110.5, 119.0)) == (11, 9)
    assert bound_of([first, first], window=4) == 20, "both have all that is made"
    # Of what the other takes, four tiles may have been there when it began.
    assert bound_of([first, second], window=4) == 11 + 20 - 4


def test_cpu_is_divided_into_that_before_the_first_batches_and_after_them() -> None:
    program = Program(samples=50, batch=5, epochs=2, step_seconds=0.0)
    programs = [{"cpu_seconds": 1.5, "cpu_seconds_before_first": 0.55}] * 2
    row = peer.figures(program, programs, peer.Making(before=1.0, after=0.9, taken=20))
    assert row["cpu_ms_per_sample_and_job"] == 1000 * (1.0 + 0.9 + 3.0) / 200
    assert row["beginning_ms"] == 1000 * (1.0 + 1.1) / 200
    assert row["later_ms"] == pytest.approx(1000 * (0.9 / 180 + 1.9 / 190))


@pytest.mark.parametrize(("ours", "code"), [(0.5, 0), (0.7, 1)])
def test_the_peer_is_judged_and_the_command_ends_accordingly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ours: float, code: int
) -> None:
    names = ("cpu_ms_per_sample_and_job", "later_ms")
    rows = [row(8, **dict.fromkeys(names, ours)), dict.fromkeys(names, 1.0)]
    monkeypatch.setattr(peer, "rows", lambda *_: rows)
    monkeypatch.setattr("sys.argv", ["sharing", "--peers", "tfdata", "--json"])
    assert sharing.main() == code
    printed = json.loads(capsys.readouterr().out)
    assert {"command", "seed", "load", "rows", "goals"} <= printed.keys()


@pytest.mark.parametrize("arguments", [["--kill", "everything"], ["--jobs", "0"]])
def test_what_it_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sharing", *arguments])
    with pytest.raises(SystemExit, match="2"):
        sharing.main()


def test_more_programs_than_there_is_memory_for_are_not_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sharing, "most_programs", lambda: 20)
    monkeypatch.setattr("sys.argv", ["sharing", "--jobs", "1,64"])
    with pytest.raises(SystemExit, match="2"):
        sharing.main()
    assert "there is memory for 20 now" in capsys.readouterr().err
