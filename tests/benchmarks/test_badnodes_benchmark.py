"""The benchmark of bad machines names those that are planted, and its peers see the same worlds."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks import badnodes_cluster
from benchmarks.badnodes import HARDWARE, run
from benchmarks.elastic.cluster import Cluster
from penstock.crds import labels


def test_the_planted_are_named() -> None:
    rows = {row["way"]: row for row in run(1500, range(1))}
    assert rows["penstock"]["recall"] >= 0.9
    assert rows["penstock"]["precision"] >= 0.9
    assert {row["planted"] for row in rows.values()} == {15}
    assert rows["two rounds"]["rounds"] == 2


def test_the_classes_are_a_whole() -> None:
    assert sum(share for share, _ in HARDWARE.values()) == pytest.approx(1.0)


class Faults:
    """Notes what is asked of a cluster whose three nodes have a worker each."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def pods(self, role: str) -> list[dict[str, Any]]:
        named = zip(badnodes_cluster.NAMES, ("a", "b", "c"), strict=True)
        return [
            {"metadata": {"name": f"{role}-{name}", "labels": {labels.JOB: "job"}},
             "spec": {"nodeName": node}}
            for node, name in named
        ]  # fmt: skip

    def fault(self, kind: str, **arguments: Any) -> None:
        self.asked.append((kind, arguments))


def test_a_node_of_the_cluster_delays_packets_for_a_while() -> None:
    faults = Faults()
    planted = badnodes_cluster._Planted(cast("Cluster", faults), "job", "node-2", 3)
    with planted.delaying():
        [(kind, said)] = faults.asked
    assert (kind, said["name"]) == ("delay_pod", "worker-b")
    assert said["delay_seconds"] > said["jitter_seconds"] > 0
    assert faults.asked[1:] == [("heal_pod", {"name": "worker-b"})]
