"""The benchmark of the cache: its models, what it counts, and what it says of a missed goal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cache
from benchmarks.cache_figures import LeastRecentlyUsed
from benchmarks.cache_programs.pictures import KINDS
from benchmarks.caching import intercepting, shares
from benchmarks.caching.daemons import AHEAD_SECONDS, Limit, make_files
from benchmarks.caching.jobs import job_rows
from benchmarks.caching.nodes import WAYS, lie_row, node_row
from benchmarks.caching.pages import TwoLists
from benchmarks.caching.ranges import ranges_row
from benchmarks.caching.shares import modelled, modelled_in_order, share_row
from benchmarks.caching.worth import worth_row


def test_a_page_cache_that_is_read_in_order_has_nothing_in_time() -> None:
    pages = TwoLists(50)
    misses = [sum(not pages.read(file) for file in range(100)) for _ in range(3)]
    assert misses[:2] == [100, 100]
    assert modelled_in_order(0.65) == 1.0


def test_a_page_cache_that_holds_everything_misses_nothing() -> None:
    pages = TwoLists(100)
    source = np.random.default_rng(0)
    misses = [
        sum(not pages.read(file) for file in source.permutation(100).tolist()) for _ in range(3)
    ]
    assert misses == [100, 0, 0]
    assert [TwoLists(0).read(1) for _ in range(2)] == [False, False]


@pytest.mark.parametrize(
    ("share", "lowest", "highest"), [(0.35, 0.82, 0.91), (0.5, 0.75, 0.85), (0.65, 0.6, 0.715)]
)
def test_two_lists_are_between_the_best_and_what_was_used_longest_ago(
    share: float, lowest: float, highest: float
) -> None:
    """The paper counted 0.85 with 35 % in memory."""
    pages = modelled(TwoLists, share, 0)
    assert 1 - share < pages < modelled(LeastRecentlyUsed, share, 0)
    assert lowest < pages < highest


def test_a_storage_keeps_its_rate_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds + 0.002  # as late as a busy machine

    monkeypatch.setattr("benchmarks.caching.daemons.time.monotonic", lambda: now[0])
    monkeypatch.setattr("benchmarks.caching.daemons.time.sleep", sleep)
    limit = Limit(1000.0)
    for _ in range(100):
        limit.passed(10)
    assert now[0] - 100 == pytest.approx(1.0, abs=0.06)
    before = now[0]
    Limit(0).passed(1 << 30)
    assert now[0] == before


@pytest.mark.parametrize("kind", ["in order", "records"])
def test_of_a_large_file_that_is_read_in_part_a_part_is_kept(tmp_path: Path, kind: str) -> None:
    tmp_path.chmod(0o755)
    row = ranges_row(tmp_path, 20 << 20, kind, 1)
    assert row["held"] == 0.5
    assert row["worst_error"] < 0.01
    assert row["wrong_pieces"] == 0
    assert row["missed"][0] == pytest.approx(1, abs=0.1)
    assert cache.range_goals([{**row, "read": "in order", "worst_error": 0.02}])[0].ok is False


@pytest.mark.slow
def test_room_goes_to_the_job_that_waits(tmp_path: Path) -> None:
    row = worth_row(tmp_path, 60, 25e6, 1)
    assert row["first_had"] == 1
    assert row["waits_read_before"] > 0.5, "it comes to a full cache, and reads at once"
    assert row["waits_holds"] >= 0.9
    assert row["waits_read_after"] < row["waits_read_before"]
    assert row["computes_read_after"] <= 1
    assert cache.worth_goals(row)[0].ok


@pytest.mark.slow
def test_each_epoch_reads_what_is_not_held(tmp_path: Path) -> None:
    # What the daemon reads of the machine's own state each second is counted, too: some kilobytes.
    files = make_files(tmp_path / "data", 100, 1, mean=100_000)
    row = share_row(files, 0.65, 3, 25e6, 1)
    assert row["missed"][0] == pytest.approx(1.0, abs=0.01)
    assert row["worst_error"] < 0.015, "a file is one part in a hundred"
    assert row["daemon_says"] == pytest.approx(row["missed"], abs=0.01)
    assert row["seconds"] >= 0.35 * files.total / 25e6
    at_rate = 0.35 * files.total / 25e6 - AHEAD_SECONDS
    assert row["wall_seconds"] >= at_rate - 0.001, "it is kept to the rate"
    assert (row["minio_published"], row["page_cache_published"]) == (0.35, 0.53)


@pytest.mark.slow
def test_one_stream_for_all_jobs_reads_once(tmp_path: Path) -> None:
    files = make_files(tmp_path / "data", 100, 1, mean=5_000)
    found = {row["with"]: row for row in job_rows(files, 3, 0.35, 1)}
    assert found["cache alone"]["read"] == pytest.approx(3 * 0.65, abs=0.06)
    assert found["cache and one stream"]["read"] == pytest.approx(0.65, abs=0.02)
    assert found["cache and one stream"]["wrong_epochs"] == 0


@pytest.mark.slow
def test_nodes_read_each_file_once_and_those_of_a_dead_one_again(tmp_path: Path) -> None:
    files = make_files(tmp_path / "data", 100, 1, mean=60_000)
    row = node_row(files, 3, 0.65, 1, tmp_path)
    assert row["read"][0] == pytest.approx(1.0, abs=0.05)
    assert max(row["read"][1:]) < 0.02
    assert row["remote_hits"] > 0
    assert 0 < row["its_files"] < 1
    assert row["read_after_kill"] == pytest.approx(row["its_files"], abs=0.03)
    assert row["read_later"] < 0.02


@pytest.mark.slow
def test_a_peer_that_lies_in_every_way_is_believed_in_none() -> None:
    row = lie_row(2 * len(WAYS))
    assert row["wrong_answers"] >= 2 * len(WAYS)
    assert row["accepted"] == 0


@pytest.mark.slow
def test_an_unmodified_program_sees_the_same_bits(tmp_path: Path) -> None:
    folder = intercepting.make_pictures(tmp_path / "pictures", 8, 1)
    row = intercepting.program_row(folder, "pil")
    assert (row["reads"], row["seen"], row["same_bits"]) == (16, 1.0, True)
    assert row["hits"] == 0.5


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intercepting, "NEEDS", dict.fromkeys(KINDS, "no_such_library"))
    rows = intercepting.program_rows(tmp_path / "pictures", 1, 0)
    assert [row["not_run"] for row in rows] == ["no_such_library is not installed"] * len(rows)


SHARES = [
    {"cached": 0.35, "worst_error": 0.001, "speedup": 1.2},
    {"cached": 0.65, "worst_error": 0.002, "speedup": 1.8},
]
HIT = {"hit_us": 40.0}


def share_goals(**other: Any) -> list[bool]:
    rows = [SHARES[0], {**SHARES[1], **other}]
    return [goal.ok for goal in cache.share_goals(rows, {**HIT, **other})]


def test_goals_of_shares() -> None:
    assert share_goals() == [True, True, True]
    assert share_goals(worst_error=0.006) == [False, True, True]
    assert share_goals(hit_us=61.0) == [True, False, True]
    assert share_goals(speedup=1.4) == [True, True, False], "what counts is the largest share"


def job_goals(lru: float, alone: float, shared: float, wrong: int = 0) -> list[bool]:
    names = ("LRU alone (model)", "cache alone", "cache and one stream")
    rows = [
        {"jobs": 8, "cached": 0.35, "with": name, "read": read, "wrong_epochs": wrong}
        for name, read in zip(names, (lru, alone, shared), strict=True)
    ]
    return [goal.ok for goal in cache.job_goals(rows)]


def test_goals_of_jobs() -> None:
    assert job_goals(5.46, 5.2, 0.65) == [True, True, True, True]
    assert job_goals(5.0, 5.3, 0.67, 1) == [False, False, False, False]


def node_goals(**other: Any) -> list[bool]:
    row = {
        "sum": 1.3,
        "read": [1.0, 0.0, 0.0],
        "its_files": 0.5,
        "read_after_kill": 0.5,
        "longest_wait_ms": 40.0,
        **other,
    }
    lies = {"wrong_answers": 1000, "accepted": other.get("accepted", 0)}
    return [goal.ok for goal in cache.node_goals([row], lies, 1000)]


def test_goals_of_nodes() -> None:
    assert node_goals() == [True] * 6
    assert node_goals(read=[1.2, 0.0]) == [False, True, True, True, True, True]
    assert node_goals(read=[1.0, 0.1]) == [True, False, True, True, True, True]
    assert node_goals(read_after_kill=0.6) == [True, True, False, True, True, True]
    assert node_goals(longest_wait_ms=1001.0) == [True, True, True, False, True, True]
    assert node_goals(accepted=1) == [True, True, True, True, True, False]


def test_goals_of_programs() -> None:
    good = {"program": "pil", "seen": 1.0, "same_bits": True, "open_outside_ns": 90.0}
    skipped = {"program": "cv2", "not_run": "cv2 is not installed"}
    assert [one.ok for one in cache.program_goals([good, skipped])] == [True] * 3
    bad = {**good, "seen": 0.98, "same_bits": False, "open_outside_ns": 1001.0}
    assert [one.ok for one in cache.program_goals([good, bad])] == [False] * 3


@pytest.mark.parametrize(("speedup", "code"), [(1.6, 0), (1.4, 1)])
def test_a_missed_goal_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    speedup: float,
    code: int,
) -> None:
    def row(_files: object, share: float, *_: object) -> dict[str, Any]:
        found = {"lru": 0.9, "page_cache": 0.8, "missed": [1.0, 1 - share], "seconds": 1.0}
        found |= {"seconds_page_cache": 2.0, "worst_error": 0.0, "speedup": speedup}
        return {"cached": share, **found, **shares.PUBLISHED.get(share, shares.PUBLISHED[0.65])}

    monkeypatch.setattr(cache, "share_row", row)
    monkeypatch.setattr(cache, "hit_row", lambda _: HIT)
    plot = tmp_path / "caches.svg"
    options = ["--only", "shares", "--files", "2", "--json", "--plot", str(plot)]
    monkeypatch.setattr("sys.argv", ["cache", *options])
    assert cache.main() == code
    printed = json.loads(capsys.readouterr().out)
    assert {"command", "seed", "load", "rows", "goals"} <= printed.keys()
    assert [one["ok"] for one in printed["goals"]].count(False) == code
    assert plot.stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], cache.PARTS),
        (["--jobs", "8"], ("jobs", "worth")),
        (["--nodes", "2,3"], ("nodes",)),
        (["--intercept"], ("intercept",)),
        (["--only", "shares,jobs"], ("shares", "jobs")),
    ],
)
def test_each_option_names_its_part(
    monkeypatch: pytest.MonkeyPatch, options: list[str], wanted: tuple[str, ...]
) -> None:
    asked: list[tuple[str, ...]] = []

    def run(_: object, parts: tuple[str, ...], *__: object) -> tuple[dict[str, Any], list[Any]]:
        asked.append(parts)
        return {}, []

    monkeypatch.setattr(cache, "run", run)
    monkeypatch.setattr("sys.argv", ["cache", "--json", *options])
    assert cache.main() == 0
    assert asked == [wanted]
