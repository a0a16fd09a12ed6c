"""The benchmarks beside tf.data service: how they judge, and that our ranks survive a kill.

The real library runs in the benchmarks themselves, in an environment of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import bucket_peers, tfdata
from benchmarks.buckets import LONGEST, lengths_of


@pytest.mark.slow
def test_a_killed_rank_goes_on_and_every_sample_is_seen_once(tmp_path: Path) -> None:
    lengths = lengths_of(1, 1500)
    np.save(tmp_path / "lengths.npy", lengths)
    seen = bucket_peers.killed_ranks(tmp_path, tmp_path / "lengths.npy", 2, 128, LONGEST, 32, 1)
    assert seen is not None
    assert seen == dict.fromkeys(range(1500), 1)


def test_padding_is_what_is_not_real() -> None:
    assert bucket_peers.padding([[[1, 3], [4, 4]], [[2], [2]]]) == (round(16 / 18, 4), 1.071)


def theirs(what: str, *_: Any) -> dict[str, Any]:
    """What the real library says, as it does."""
    if what == "kill":
        return {"went_on": False, "error": "the current round has already reached 37"}
    return {"ended": False, "error": "the end of sequence", "batches": [[[9, 1]] * 3] * 4}


def test_a_peer_that_pads_less_is_a_missed_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_peers, "tfdata", theirs)
    monkeypatch.setattr(bucket_peers, "killed_ranks", lambda *_: bucket_peers.Counter(range(4096)))
    rows, goals = bucket_peers.compare(lengths_of(1, 8192), [(4, 128)], LONGEST, 1)
    assert all(one.ok for one in goals)
    assert rows["finite"][0]["lost"] == rows["finite"][0]["repeated"] == 0
    assert rows["endless"][0]["real_tfdata"] == round(10 / 18, 4)

    def exact(what: str, *_: Any) -> dict[str, Any]:
        return {**theirs(what), **({} if what == "kill" else {"batches": [[[9, 9]] * 3] * 4})}

    monkeypatch.setattr(bucket_peers, "tfdata", exact)
    _, goals = bucket_peers.compare(lengths_of(1, 8192), [(4, 128)], LONGEST, 1)
    assert [one.name for one in goals if not one.ok] == [
        "real tokens less those of tf.data, 4 ranks"
    ]


def epoch(seconds: float, **other: Any) -> dict[str, Any]:
    found = {"ended": True, "error": "", "cpu_seconds": 3.0, "elements": 100, "bytes": 10**9}
    found |= {"longest_wait_seconds": 0.1, "lost": 0, "repeated": 0}
    return {**found, "seconds": seconds, **other}


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"penstock 2": 4.0}, ["CPU, two data workers by the service"]),
        ({"penstock 0": 4.0}, ["CPU, no data worker by tf.data alone"]),
    ],
)
def test_who_needs_more_has_missed_a_goal(changed: dict[str, float], missed: list[str]) -> None:
    runs = {
        system: [[epoch(9.0), epoch(2.0, cpu_seconds=changed.get(system, 3.0))]]
        for system in tfdata.SYSTEMS
    }
    rows = [tfdata.row_of(system, found) for system, found in runs.items()]
    kills = [tfdata.kill_row("penstock 2", epoch(1.0)), tfdata.kill_row("service 2", epoch(1.0))]
    assert [one.name for one in tfdata.goals_of(rows, kills) if not one.ok] == missed
    assert tfdata.best(rows)["cpu_seconds_per_gb"] == (
        "service 2" if "penstock 2" in changed else "penstock 2"
    )


def test_a_picture_that_is_lost_after_a_kill_is_a_missed_goal() -> None:
    rows = [tfdata.row_of(one, [[epoch(9.0), epoch(2.0)]]) for one in tfdata.SYSTEMS]
    kills = [tfdata.kill_row("penstock 2", epoch(1.0, lost=2, ended=False))]
    missed = [one.name for one in tfdata.goals_of(rows, kills) if not one.ok]
    assert missed == [
        "penstock, a worker killed: lost",
        "penstock, a worker killed: the epoch ends",
    ]
