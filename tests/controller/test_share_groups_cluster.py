"""Share groups in a cluster with access control: two members, one ends; both end, nothing left."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.controller.real_cluster import LIVE, Cluster, Controllers, job, needs_kubectl, until

pytestmark = [needs_kubectl, pytest.mark.e2e]

NAME = "penstock-share-sweep"
SHOWS = f'printf "token=%s\\n" "$PENSTOCK_SHARE_TOKEN"; {LIVE}'


def member(name: str) -> dict[str, Any]:
    return job(name, SHOWS, workers={"replicas": 1}, input={"share": {"group": "sweep"}})


def owners(cluster: Cluster) -> set[str]:
    found = cluster.get("service", NAME)["metadata"]["ownerReferences"]
    return {one["name"] for one in found}


def logs(cluster: Cluster, name: str) -> str:
    return cluster.kubectl("logs", f"{name}-worker-0-0", check=False)


def says(cluster: Cluster, name: str) -> bool:
    """Whether a job's worker has told its token."""
    return "token=" in logs(cluster, name)


def there(cluster: Cluster) -> bool:
    shown = cluster.kubectl("get", "service", NAME, "--ignore-not-found", "-o", "name")
    return bool(shown.strip())


def test_a_group_lives_as_long_as_its_last_member(
    cluster: Cluster, controller: Controllers
) -> None:
    for name in ("founder", "joiner"):
        cluster.create(member(name))
        cluster.wait(f"ej/{name}", "Running")
    assert owners(cluster) == {"founder", "joiner"}
    for name in ("founder", "joiner"):
        until("both say the token", partial(says, cluster, name))
    assert logs(cluster, "founder") == logs(cluster, "joiner")
    selector = "penstock.dev/share-group=sweep"
    assert len(cluster.find("pods", "-l", selector)) == 2

    uid = cluster.get("service", NAME)["metadata"]["uid"]
    cluster.kubectl("delete", "ej", "founder")
    until("the founder is no owner", lambda: owners(cluster) == {"joiner"})
    assert cluster.get("service", NAME)["metadata"]["uid"] == uid
    cluster.wait("ej/joiner", "Running")

    cluster.kubectl("delete", "ej", "joiner")
    until("no Service is left", lambda: not there(cluster))


def test_a_group_of_another_namespace_is_another_group(
    cluster: Cluster, controller: Controllers
) -> None:
    other = Cluster(cluster.kubeconfig, cluster.folder)
    try:
        for space in (cluster, other):
            space.create(member("far"))
            space.wait("ej/far", "Running")
        assert owners(cluster) == owners(other) == {"far"}
        for space in (cluster, other):
            until("it says the token", partial(says, space, "far"))
        assert logs(cluster, "far") != logs(other, "far")
    finally:
        cluster.kubectl("delete", "ej", "far", "--ignore-not-found")
        other.kubectl("delete", "namespace", other.namespace, "--wait=false", namespaced=False)


def test_somebody_elses_service_is_named_in_an_event(
    cluster: Cluster, controller: Controllers
) -> None:
    other = Cluster(cluster.kubeconfig, cluster.folder)
    try:
        other.kubectl("create", "service", "clusterip", NAME, "--tcp=80")
        other.create(member("alone"))
        other.wait("ej/alone", "Running")
        events = other.find("events")
        [said] = [one["message"] for one in events if one["reason"] == "NotShared"]
        assert f"Service {NAME}" in said
        until("it says that it has none", partial(says, other, "alone"))
        assert logs(other, "alone").strip() == "token="
    finally:
        other.kubectl("delete", "namespace", other.namespace, "--wait=false", namespaced=False)
