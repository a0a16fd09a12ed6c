"""The planner works with the roles that it prints, and with no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.kube.errors import ApiRefusedError
from penstock.scheduler.manifests import render
from penstock.scheduler.model.decisions import Reason, SetDeletionCost, WriteScale
from penstock_cluster.nodes import NodeDeclaration
from tests.scheduler.service.plane import GPU, Plane, plane, pod, until

NAME, SYSTEM = "penstock-scheduler", "penstock-system"
RBAC = "rbac.authorization.k8s.io"


async def grant(cluster: Plane) -> None:
    """The account, its roles, its token in the kubeconfig."""
    api = cluster.api
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}
    await api.create("namespaces", {"metadata": {"name": SYSTEM}})
    await api.create("serviceaccounts", {"metadata": {"name": NAME}}, SYSTEM)
    for document in yaml.safe_load_all(render()):
        kind, namespace = document["kind"], document["metadata"].get("namespace")
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}[kind]
        await api.create(f"{plural}.{RBAC}", document, namespace)
        binding = {
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME},
            "subjects": [subject],
        }
        await api.create(f"{plural[:-1]}bindings.{RBAC}", binding, namespace)
    request: dict[str, Any] = {"spec": {"expirationSeconds": 3600}}
    made = await api.create("serviceaccounts", request, SYSTEM, name=NAME, subresource="token")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": made["status"]["token"]}
    cluster.kubeconfig.write_text(yaml.safe_dump(config))


def test_it_pins_tells_and_asks(tmp_path: Path) -> None:
    async def story() -> None:
        node = NodeDeclaration("gpu", cpu="8", memory="8Gi", accelerators={GPU: 1})
        async with plane(tmp_path, node, rbac=True) as cluster:
            await grant(cluster)
            async with cluster.planner() as loop:
                await cluster.create(pod("data", "1", gated=True))
                await until("it is bound", lambda: cluster.node_of("data"))

                async def told() -> bool:
                    events = await cluster.api.list("events", "default")
                    return any(one["reason"] == "Placed" for one in events.items)

                await until("an Event says why", told)
                view = next(iter(loop.planner.state.pods.values()))
                scale = WriteScale(
                    "u", "default", "j", {"dataWorker": {"replicas": 1}}, Reason.DATA_STALL, "x"
                )
                await loop._ask([SetDeletionCost(view, 7), scale])
                assert len((await cluster.api.list("scales.penstock.dev", "default")).items) == 1
                assert (await cluster.get("data"))["metadata"]["annotations"][
                    "controller.kubernetes.io/pod-deletion-cost"
                ] == "7"
                errors = loop.metrics.call_errors.collect()[0].samples
                assert [one for one in errors if one.name.endswith("_total")] == []
                for resource in ("secrets", "serviceaccounts"):
                    with pytest.raises(ApiRefusedError) as refused:
                        await loop._api.list(resource, None)
                    assert refused.value.code == 403

    asyncio.run(story())
