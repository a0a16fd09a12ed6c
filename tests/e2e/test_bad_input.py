"""What goes wrong is said to the person who can mend it: which field, which value, which rule."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.local.control_plane.components import penstock
from tests.e2e.control_plane import ROOT, ControlPlane, job_manifest, needs_kubectl, script

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@needs_kubectl
def test_an_invalid_job_is_refused_with_field_and_rule(plane: ControlPlane) -> None:
    manifest = job_manifest("bad", ["true"], worker={"minReplicas": 3, "maxReplicas": 2})
    answer = plane.kubectl("apply", "-f", "-", text=json.dumps(manifest), check=False)
    assert 'The ElasticJob "bad" is invalid' in answer
    assert "spec.replicaSpecs.worker" in answer
    assert "minReplicas" in answer
    assert "maxReplicas" in answer


@needs_kubectl
def test_an_unknown_strategy_is_refused_with_the_known_ones(plane: ControlPlane) -> None:
    manifest = job_manifest("bad", ["true"], strategy="Gossip")
    answer = plane.kubectl("apply", "-f", "-", text=json.dumps(manifest), check=False)
    assert 'spec.strategy: Unsupported value: "Gossip"' in answer
    assert '"AllReduce", "ParameterServer", "Local"' in answer


@needs_kubectl
def test_a_failing_script_ends_the_job_with_its_last_lines(plane: ControlPlane) -> None:
    text = "print('reading data'); raise SystemExit('no such dataset: mnist-7')"
    manifest = job_manifest("exits", script(text), failurePolicy={"maxRestarts": 0})
    plane.apply(manifest)
    plane.wait_for("exits", "Failed")
    conditions = plane.get("ej", "exits")["status"]["conditions"]
    failed = next(c for c in conditions if c["type"] == "Failed")
    assert "no such dataset: mnist-7" in failed["message"]
    plane.kubectl("delete", "ej", "exits")


def test_an_unknown_algorithm_stops_the_brain_with_the_known_ones(tmp_path: Path) -> None:
    config = tmp_path / "brain.yaml"
    config.write_text("algorithms:\n  optimize_by_magic: {}\n")
    done = subprocess.run(
        penstock("brain", "--port=0", f"--config={config}"),
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
    )
    assert done.returncode != 0
    assert "optimize_by_magic" in done.stderr
    assert "scale_allreduce" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("component", "option"),
    [
        ("cluster", "--port"),
        ("brain", "--port"),
        ("controller", "--metrics-port"),
        ("scheduler", "--metrics-port"),
    ],
)
def test_a_port_in_use_is_named(
    plane: ControlPlane, tmp_path: Path, component: str, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        kubeconfig = plane.home.kubeconfig
        if component == "cluster":
            kubeconfig = tmp_path / "kubeconfig"
        extra = {
            "cluster": [f"--pods-folder={tmp_path / 'pods'}"],
            "brain": [f"--database=sqlite+aiosqlite:///{tmp_path / 'brain.sqlite'}"],
            "controller": [],
            "scheduler": [],
        }[component]
        done = subprocess.run(
            penstock(component, f"{option}={port}", f"--kubeconfig={kubeconfig}", *extra),
            capture_output=True,
            text=True,
            timeout=50,
            cwd=ROOT,
        )
    assert done.returncode != 0
    assert str(port) in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
