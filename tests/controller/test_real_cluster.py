"""The tests that a real cluster is given to leave nothing of theirs in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.real_cluster import (
    GIVEN,
    OURS,
    SYSTEM,
    Cluster,
    kubeconfig,
    needs_kubectl,
    prepared_cluster,
)

RBAC = "clusterroles,clusterrolebindings"
EVERYTHING = (
    f"{RBAC},customresourcedefinitions,priorityclasses,namespaces,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)

pytestmark = [pytest.mark.e2e, needs_kubectl]


def names(cluster: Cluster, kinds: str = EVERYTHING) -> set[str]:
    shown = cluster.kubectl("get", kinds, "-o", "name", namespaced=False)
    return set(shown.split())


def test_nothing_of_the_tests_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GIVEN, raising=False)
    with kubeconfig(tmp_path) as path:
        watcher = Cluster.__new__(Cluster)  # without a namespace of its own
        watcher.kubeconfig, watcher.folder = path, tmp_path
        before = names(watcher)
        monkeypatch.setenv(GIVEN, str(path))
        with prepared_cluster(tmp_path) as first, prepared_cluster(tmp_path) as second:
            assert first.namespace != second.namespace
            role = "clusterrole.rbac.authorization.k8s.io/penstock-controller"
            assert role in names(watcher, RBAC)
        assert names(watcher) == before


def test_who_ends_first_leaves_what_others_still_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(GIVEN, raising=False)
    with kubeconfig(tmp_path) as path:
        monkeypatch.setenv(GIVEN, str(path))
        with prepared_cluster(tmp_path) as lasting:
            needed = names(lasting)
            with prepared_cluster(tmp_path):
                pass
            assert names(lasting) == needed


def test_what_somebody_else_installed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(GIVEN, raising=False)
    with kubeconfig(tmp_path) as path:
        monkeypatch.setenv(GIVEN, str(path))
        owner = Cluster(path, tmp_path)
        role = "penstock-controller"
        owner.kubectl("create", "namespace", SYSTEM, namespaced=False)
        owner.kubectl(
            "create", "clusterrole", role, "--verb=get", "--resource=pods", namespaced=False
        )
        owner.kubectl("delete", "namespace", owner.namespace, namespaced=False)
        with prepared_cluster(tmp_path):
            pass
        found = owner.get("clusterrole", role)
        assert OURS not in found["metadata"].get("labels", {})
        assert found["rules"], "brought up to date, and kept"
        assert f"namespace/{SYSTEM}" in names(owner)
