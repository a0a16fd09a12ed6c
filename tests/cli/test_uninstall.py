"""Uninstall deletes what was installed, asks first, and leaves jobs and strangers alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.exits import Exit
from tests.cli.clinic import RBAC, SYSTEM, Clinic, clinic
from tests.cli.terminal import Terminal


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Clinic]:
    with clinic(f"sqlite+aiosqlite:///{tmp_path / 'brain.sqlite'}") as found:
        secret = {"metadata": {"name": "penstock-job-key"}, "stringData": {"key": "k"}}
        found.cluster.create("secrets", secret, SYSTEM)
        release = {
            "metadata": {
                "name": "sh.helm.release.v1.penstock.v1",
                "labels": {"owner": "helm", "name": "penstock"},
            },
            "type": "helm.sh/release.v1",
        }
        found.cluster.create("secrets", release, SYSTEM)
        found.cluster.create("clusterroles." + RBAC, {"metadata": {"name": "penstock-friend"}})
        yield found


def test_it_removes_what_it_should_and_nothing_else(place: Clinic) -> None:
    terminal = Terminal(place.cluster.kubeconfig_path)
    cluster = place.cluster
    # The embedded installer's field manager is what `penstock up` uses; tests apply as another.
    listed = terminal.ok("uninstall", "--dry-run", "-o", "json").json
    names = {(each["resource"], each["name"]) for each in listed}
    assert ("deployments", "penstock-controller") in names
    assert ("leases", "penstock-scheduler") in names
    assert ("secrets", "penstock-job-key") in names
    assert ("clusterroles", "penstock-friend") not in names
    assert not any(each == "customresourcedefinitions" for each, _ in names)
    assert cluster.find("deployments.apps", "penstock-controller", SYSTEM) is not None

    refused = terminal("uninstall")
    assert refused.code == Exit.USAGE
    assert cluster.find("deployments.apps", "penstock-controller", SYSTEM) is not None

    ran = terminal.ok("uninstall", "--yes")
    assert f"{len(listed)} objects deleted" in ran.out
    assert cluster.find("deployments.apps", "penstock-controller", SYSTEM) is None
    assert cluster.find("persistentvolumeclaims", "penstock-brain", SYSTEM) is not None
    assert cluster.find("elasticjobs.penstock.dev", "healthy", "default") is not None
    assert cluster.find("clusterroles." + RBAC, "penstock-friend") is not None

    ran = terminal.ok("uninstall", "--yes", "--crds", "--history", "-o", "json")
    assert ("elasticjobs", "healthy") in {(each["resource"], each["name"]) for each in ran.json}
    gone = "elasticjobs.penstock.dev"
    assert cluster.find("customresourcedefinitions.apiextensions.k8s.io", gone) is None
    assert cluster.find("persistentvolumeclaims", "penstock-brain", SYSTEM) is None
    assert "nothing of Penstock" in terminal("uninstall", "--yes").err
