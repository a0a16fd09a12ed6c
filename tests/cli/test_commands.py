"""The commands on a whole control plane: what a person types in the first half hour."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.terminal import Terminal
from tests.e2e.control_plane import ControlPlane, control_plane, needs_kubectl, until

pytestmark = pytest.mark.e2e
TRAIN = "import time; print('training', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.mark.slow
def test_a_jobs_life(plane: ControlPlane, tmp_path: Path) -> None:
    penstock = Terminal(plane.home.kubeconfig)
    healthy = until(lambda: (ran := penstock("doctor")).code == 0 and ran, 30)
    assert "✗" not in healthy.out

    flags = ("--name=mine", "--image=penstock/examples", "--max-workers=3", "--limit=cpu=8")
    dry = penstock.ok(
        "submit", *flags, "--dry-run", "-o", "yaml", "--", sys.executable, "-c", TRAIN
    )
    manifest = tmp_path / "job.yaml"
    document = yaml.safe_load(dry.out)
    document["metadata"] = {"name": "mine"}
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0].pop(
        "resources", 0
    )
    document.pop("status", None)
    manifest.write_text(yaml.safe_dump(document))
    assert penstock.ok("submit", "-f", str(manifest)).out == "elasticjob/mine created\n"

    until(lambda: "Running" in penstock.ok("list").out, 50)
    found = penstock.ok("get", "mine", "-o", "json").json
    assert found["kind"] == "ElasticJob"
    assert "managedFields" not in found["metadata"]
    assert until(lambda: "training" in penstock("logs", "mine", "--rank=0").out, 30)

    line = penstock.ok("logs", "mine", "--rank=0", "--tail=1", "-o", "json").json
    assert line == {"pod": "worker-0", "line": "training"}
    lines = penstock.ok("logs", "mine", "--role=trainer", "--tail=2", "-o", "yaml").out
    assert [each["pod"] for each in yaml.safe_load_all(lines)] == ["trainer-0", "trainer-0"]

    plans = penstock.ok("plans", "mine", "-o", "json").json
    assert plans[0]["id"] == 1
    assert "runs" in penstock.ok("propose", "mine", "-o", "json").json

    said = penstock.ok("pin", "mine", "--replicas=2", "--wait", "-m", "by hand").out
    assert "applied" in said
    described = penstock.ok("describe", "mine")
    assert "User pin" in described.out
    assert all(len(line) <= 80 for line in described.out.splitlines())
    whole = penstock.ok("describe", "mine", "-o", "json").json
    assert whole["timeline"][-1]["message"] == "by hand"
    assert "1 pin deleted" in penstock.ok("release", "mine").out
    assert "has no pin" in penstock.ok("release", "mine").out

    dry_run = penstock.ok("scale", "mine", "--replicas=3", "--dry-run").out
    assert "worker-2" in dry_run
    assert penstock.ok("top", "-o", "json").json[0]["name"] == "mine"
    assert penstock.ok("cost", "-o", "json").json["total"]["pod_seconds"] >= 0
    assert penstock.ok("cost", "--csv", "--by=user").out.startswith("namespace,user,job,uid,")
    until(lambda: penstock.ok("fragmentation", "-o", "json").json["nodes"], 30)
    assert "strands" in penstock.ok("fragmentation").out

    assert "suspended" in penstock.ok("suspend", "mine", "--wait").out
    assert penstock.ok("resume", "mine").out == "elasticjob/mine resumed\n"


def test_what_up_installed_is_found_again(plane: ControlPlane) -> None:
    expected = {
        ("clusterroles", "penstock-controller"),
        ("clusterroles", "penstock-scheduler"),
        ("clusterroles", "penstock-trainer"),
        ("roles", "penstock-controller"),
        ("validatingadmissionpolicies", "penstock-trainer-scales"),
        ("validatingadmissionpolicybindings", "penstock-trainer-scales"),
        ("priorityclasses", "penstock-spare"),
        ("leases", "penstock-controller"),
        ("secrets", "penstock-job-key"),  # the controller's, once it leads
    }

    def missing() -> set[tuple[str, str]]:
        listed = Terminal(plane.home.kubeconfig).ok("uninstall", "--dry-run", "-o", "json").json
        return expected - {(each["resource"], each["name"]) for each in listed}

    until(lambda: not missing(), 30)


@needs_kubectl
def test_it_is_a_plugin_of_kubectl(plane: ControlPlane) -> None:
    script = Path(sys.executable).with_name("kubectl-ej")
    assert script.exists(), "the package is installed without its scripts: make setup"
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(shutil.which("kubectl")), "ej", "list", "--help"],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(plane.home.kubeconfig)},
    )
    assert "Usage: kubectl ej list" in done.stdout, done.stderr
