"""Programs that are told of one another by ``TF_CONFIG`` find one another, without TensorFlow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.control_plane import ROOT, ControlPlane, Json, needs_kubectl, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]

PROGRAM: Final = ROOT / "benchmarks/converted_programs/tf_config.py"

SIDECAR: Final = {
    "name": "shipper",
    "image": "shipper",
    "command": ["sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.2; done"],
}


def test_a_cluster_meets_and_ends_with_its_chief(plane: ControlPlane, tmp_path: Path) -> None:
    met = tmp_path / "met.json"
    main = {
        "name": "main",
        "image": "penstock/examples",
        "command": [sys.executable, str(PROGRAM), str(met)],
    }

    def role(count: int) -> Json:
        return {"replicas": count, "template": {"spec": {"containers": [SIDECAR, main]}}}

    plane.apply(
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": "tensors"},
            "spec": {
                "strategy": "ParameterServer",
                "framework": "TensorFlow",
                "optimize": "Manual",
                "input": {"offload": "Never"},
                "replicaSpecs": {"worker": role(2), "ps": role(1)},
            },
        }
    )
    plane.wait_for("tensors", "Succeeded", 90)
    assert json.loads(met.read_text()) == {
        "chief-0": "chief-0",
        "worker-0": "worker-0",
        "ps-0": "ps-0",
    }
    conditions = plane.get("ej", "tensors")["status"]["conditions"]
    [ended] = [one for one in conditions if one["type"] == "Succeeded"]
    assert ended["reason"] == "ChiefSucceeded"
    pods = "penstock.dev/job=tensors"

    def gone() -> bool:
        phases = [one["status"]["phase"] for one in plane.get("pods", selector=pods)["items"]]
        return "Running" not in phases

    until(gone, 60)
