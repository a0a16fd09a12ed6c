"""Against an API server: real tokens, real access reviews, real Scales."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from penstock.api.auth.chain import Chain
from penstock.api.auth.kubernetes import KubernetesAuthenticator
from penstock.api.cluster import connected_cluster
from penstock.crds.environment import BRAIN_AUDIENCE
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.api.service import REGISTRATION, api, run

CRDS = Path(__file__).parents[2] / "crds"
SCALES = "scales.penstock.dev"
JOB = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "job", "namespace": "default"},
    "spec": {
        "strategy": "AllReduce",
        "replicaSpecs": {
            "worker": {
                "maxReplicas": 4,
                "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
            }
        },
    },
}


def account_token(cluster: RunningCluster, name: str, audience: str | None) -> str:
    """A token of a service account, which is made where it is not there."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "default"},
        }
    )
    spec = {"audiences": [audience]} if audience else {}
    path = cluster.path("serviceaccounts", "default", name, "token")
    token: str = cluster.ok("POST", path, {"spec": spec})["status"]["token"]
    return token


def test_trainers_people_and_strangers_of_a_cluster(sqlite_url: str) -> None:
    with api_server(EngineOptions(rbac=True)) as cluster:
        for name in ("elasticjob", "scale"):
            cluster.apply(yaml.safe_load((CRDS / f"{name}.crd.yaml").read_text()))
        uid = cluster.apply(JOB)["metadata"]["uid"]
        own = account_token(cluster, "job-trainer", BRAIN_AUDIENCE)
        wrong_audience = account_token(cluster, "job-trainer", None)
        stranger = account_token(cluster, "other-trainer", BRAIN_AUDIENCE)

        async def main() -> None:
            async with connected_cluster(str(cluster.kubeconfig_path)) as connection:
                chain = Chain([KubernetesAuthenticator(connection)])
                async with api(sqlite_url, authenticator=chain, scales=connection) as service:

                    async def call(token: str, method: str, path: str, **options: Any) -> Any:
                        headers = {"Authorization": f"Bearer {token}"}
                        return await service.http.request(
                            method, f"/v1/jobs/{uid}{path}", headers=headers, **options
                        )

                    assert (await call("nonsense", "GET", "")).status_code == 401
                    assert (await call(stranger, "PUT", "", json=REGISTRATION)).status_code == 403
                    registered = await call(own, "PUT", "", json=REGISTRATION)
                    assert registered.status_code == 200, registered.text
                    assert (await call(own, "GET", "/plans/current")).status_code == 200
                    assert (await call(wrong_audience, "GET", "")).status_code == 403
                    admin = cluster.token
                    assert (await call(admin, "GET", "")).status_code == 200

                    body = {"policy": "Pin", "roles": {"worker": {"replicas": 2}}, "message": "m"}
                    made = await call(admin, "POST", "/plans", json=body)
                    assert made.status_code == 201, made.text
                    name = made.json()["scale"]
                    scale = await asyncio.to_thread(cluster.get, SCALES, name, "default")
                    assert scale["spec"]["source"] == "User"
                    assert scale["spec"]["policy"] == "Pin"
                    assert scale["spec"]["roles"] == {"worker": {"replicas": 2}}
                    assert scale["spec"]["jobRef"] == {"name": "job", "uid": uid}
                    assert scale["metadata"]["annotations"]["penstock.dev/plan"] == "2"

                    assert (await call(admin, "DELETE", "/override")).status_code == 200
                    assert await asyncio.to_thread(cluster.list, SCALES, "default") == []

        run(main)
