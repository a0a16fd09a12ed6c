"""Bills of a job that really trains, beside what the cluster's nodes had meanwhile."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.base.quantity import parse_bytes, parse_milli_cpu
from tests.e2e.control_plane import ControlPlane, needs_kubectl, until
from tests.e2e.digits import sleeping_job

# What was spent is in a bill of the nodes after two minutes.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600), needs_kubectl]

GIB = 1024**3
KINDS = ("core_seconds", "gib_seconds")
ENOUGH_CORE_SECONDS = 30.0
"""So much of the training has to be in the bill."""


def test_bills_and_the_rest_are_what_the_nodes_had(own_plane: ControlPlane, tmp_path: Path) -> None:
    plane = own_plane

    def shown() -> bool:
        try:
            return bool(plane.brain("/v1/cluster/nodes")["items"])
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 404:
                raise
            return False

    until(shown, 60)  # what comes before the scheduler's first picture is on no bill of the nodes
    plane.apply(sleeping_job("billed", tmp_path, epochs=2000))
    plane.wait_for("billed", "Running", 120)

    def known() -> Any:
        """The bill of the nodes once the training is in it; it lags by some minutes."""
        time.sleep(2)  # it is summed up each minute
        try:
            answer = plane.brain("/v1/costs/nodes")
        except httpx.HTTPStatusError as error:  # nothing is summed up yet
            if error.response.json()["type"] != "urn:penstock:problem:history":
                raise
            return None
        used = answer["parts"]["Used"]["core_seconds"] + answer["parts"]["Idle"]["core_seconds"]
        return answer if used >= ENOUGH_CORE_SECONDS else None

    found = until(known, 420)
    span = f"start={found['start']}&end={found['end']}"
    bill = plane.brain(f"/v1/costs?{span}")

    nodes = [one["status"]["allocatable"] for one in plane.get("nodes")["items"]]
    had = {
        "core_seconds": sum(parse_milli_cpu(one["cpu"]) for one in nodes) / 1000,
        "gib_seconds": sum(parse_bytes(one["memory"]) for one in nodes) / GIB,
    }
    covered = found["covered_seconds"]
    assert found["node_seconds"] == pytest.approx(len(nodes) * covered, rel=1e-3)
    for kind in KINDS:
        parts = {name: part[kind] for name, part in found["parts"].items()}
        assert found["total"][kind] == pytest.approx(had[kind] * covered, rel=1e-3)
        assert sum(parts.values()) == pytest.approx(had[kind] * covered, rel=1e-3)
        billed = sum(line[kind] for line in bill["lines"])
        ours = parts["Used"] + parts["Repeated"] + parts["Idle"]
        assert billed == pytest.approx(ours, rel=1e-3)
        assert billed > 0
        assert parts["Others"] >= -1e-3 * had[kind] * covered
    assert bill["total"]["core_seconds"] <= held(plane, found["end"]) * (1 + 1e-3)
    plane.kubectl("delete", "ej", "billed")


def held(plane: ControlPlane, end: float) -> float:
    """What the job's pods had of cores until then, by the API server."""
    total = 0.0
    for pod in plane.get("pods", selector="penstock.dev/job=billed")["items"]:
        since = datetime.fromisoformat(pod["status"]["startTime"]).timestamp()
        limits = [one["resources"].get("limits") or {} for one in pod["spec"]["containers"]]
        cores = sum(parse_milli_cpu(one["cpu"]) for one in limits if "cpu" in one) / 1000
        total += max(0.0, end - since) * cores
    return total
