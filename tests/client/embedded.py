"""An embedded cluster with Penstock's definitions, for tests of the SDK and the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.scale import SCALE
from penstock.crds.schema import crd
from penstock_cluster.testing import RunningCluster, api_server

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


@contextlib.contextmanager
def cluster_with_definitions() -> Iterator[RunningCluster]:
    """The API server with both resources; nobody acts on them."""
    with api_server() as cluster:
        for resource in (ELASTICJOB, SCALE):
            cluster.apply(crd(resource))
        yield cluster


def job(name: str, **spec: Any) -> Json:
    """A job that is accepted."""
    container = {"name": "main", "image": "image", "command": ["train"]}
    worker = {"maxReplicas": 4, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": worker}, **spec},
    }


def condition(kind: str, message: str = "", status: str = "True") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": kind,
        "message": message,
        "lastTransitionTime": NOW,
    }


def set_status(cluster: RunningCluster, name: str, *conditions: Json, **more: Any) -> None:
    """What the controller would write."""
    body = {"status": {"conditions": list(conditions), **more}}
    cluster.patch("elasticjobs.penstock.dev", name, body, "default", "status")
