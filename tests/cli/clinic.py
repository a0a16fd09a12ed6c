"""A cluster in which everything is as the doctor wants it, without a process that acts.

The API server, its roles and the Brain are real; Deployments, Leases and nodes are objects that
nobody keeps up, which is what lets a test plant a fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from penstock.cli.doctor.model.facts import COMPONENTS_NEED
from penstock.local.install import manifests
from penstock_cluster.faults.clock import SkewableClock
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.cli.terminal import Ran, Terminal
from tests.client.embedded import Json, condition, job
from tests.client.test_against_the_service import service

SYSTEM = "penstock-system"
RBAC = "rbac.authorization.k8s.io"
VERSION = version("penstock")


@dataclass
class Clinic:
    """A healthy cluster, and what a test may do to it."""

    cluster: RunningCluster
    clock: SkewableClock
    brain_url: str
    job_uid: str = field(default="")

    def examine(self, *options: str, brain_url: str | None = None) -> tuple[Ran, list[Json]]:
        """``penstock doctor -o json``: the run, and its findings."""
        terminal = Terminal(self.cluster.kubeconfig_path, brain_url or self.brain_url)
        ran = terminal("doctor", "-o", "json", *options)
        return ran, ran.json

    def renew(self, *parts: str, ago: timedelta = timedelta()) -> None:
        """Renew Leases, as of some time ago."""
        for part in parts or ("controller", "scheduler"):
            name = f"penstock-{part}"
            moment = (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": f"{part}-0", "leaseDurationSeconds": 12, "renewTime": moment}
            if self.cluster.find("leases.coordination.k8s.io", name, SYSTEM) is None:
                lease = {"metadata": {"name": name}, "spec": spec}
                self.cluster.create("leases.coordination.k8s.io", lease, SYSTEM)
            else:
                self.cluster.patch("leases.coordination.k8s.io", name, {"spec": spec}, SYSTEM)

    def node(self, name: str, ready: str = "True") -> None:
        """Set a node's condition."""
        status = {"conditions": [{**condition("Ready", status=ready), "lastHeartbeatTime": None}]}
        del status["conditions"][0]["lastHeartbeatTime"]
        self.cluster.patch("nodes", name, {"status": status}, subresource="status")

    def ready(self, component: str, replicas: int) -> None:
        """Set how many pods of a Deployment are ready."""
        self.cluster.patch(
            "deployments.apps",
            f"penstock-{component}",
            {"status": {"replicas": replicas, "readyReplicas": replicas}},
            SYSTEM,
            "status",
        )

    def phase(self, phase: str) -> None:
        """Set the phase of the Brain's volume claim."""
        self.cluster.patch(
            "persistentvolumeclaims",
            "penstock-brain",
            {"status": {"phase": phase}},
            SYSTEM,
            "status",
        )


@contextlib.contextmanager
def clinic(database_url: str) -> Iterator[Clinic]:
    """A healthy cluster with everything that the doctor looks at."""
    clock = SkewableClock()
    with (
        api_server(EngineOptions(rbac=True, clock=clock)) as cluster,
        service(database_url) as url,
    ):
        for manifest in manifests():
            cluster.apply(manifest)
        found = Clinic(cluster, clock, url)
        brain = {"metadata": {"name": "penstock-brain"}, "rules": _rules("brain")}
        cluster.create(f"clusterroles.{RBAC}", brain)
        for component in ("controller", "brain", "scheduler"):
            _component(cluster, component)
            found.ready(component, 1)
        claim = {
            "metadata": {
                "name": "penstock-brain",
                "labels": {"app.kubernetes.io/part-of": "penstock"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        cluster.create("persistentvolumeclaims", claim, SYSTEM)
        found.phase("Bound")
        cluster.create("nodes", {"metadata": {"name": "node-1"}})
        found.node("node-1")
        found.renew()
        made = cluster.create("elasticjobs.penstock.dev", job("healthy"), "default")
        found.job_uid = made["metadata"]["uid"]
        status = {"status": {"conditions": [condition("Accepted")]}}
        cluster.patch("elasticjobs.penstock.dev", "healthy", status, "default", "status")
        yield found


def _component(cluster: RunningCluster, component: str) -> None:
    name = f"penstock-{component}"
    tags = {
        "app.kubernetes.io/part-of": "penstock",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/version": VERSION,
    }
    account = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    cluster.create("serviceaccounts", {"metadata": {"name": name}}, SYSTEM)
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [account]}
    cluster.create(f"clusterrolebindings.{RBAC}", binding)
    pod = {
        "metadata": {"labels": tags},
        "spec": {
            "serviceAccountName": name,
            "containers": [{"name": component, "image": "penstock/control"}],
        },
    }
    deployment = {
        "metadata": {"name": name, "labels": tags},
        "spec": {"replicas": 1, "selector": {"matchLabels": tags}, "template": pod},
    }
    cluster.create("deployments.apps", deployment, SYSTEM)


def _rules(component: str) -> list[Json]:
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for right in COMPONENTS_NEED[component]
    ]
