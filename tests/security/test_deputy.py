"""The Brain is no deputy: through it nobody changes what the API server would refuse them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import yaml

from penstock.api.auth.kubernetes import KubernetesAuthenticator
from penstock.api.cluster import connected_cluster
from penstock.crds.environment import BRAIN_AUDIENCE
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.api.service import REGISTRATION, Api, api, run
from tests.api.test_kubernetes import CRDS, JOB, SCALES, account_token

PIN: Final = {"policy": "Pin", "roles": {"worker": {"replicas": 2}}}


def _cluster_with_job(cluster: RunningCluster) -> str:
    for name in ("elasticjob", "scale"):
        cluster.apply(yaml.safe_load((CRDS / f"{name}.crd.yaml").read_text()))
    uid: str = cluster.apply(JOB)["metadata"]["uid"]
    return uid


def _grant(cluster: RunningCluster, account: str, *rules: tuple[str, list[str]]) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": account, "namespace": "default"},
        "rules": [
            {"apiGroups": ["penstock.dev"], "resources": [resource], "verbs": verbs}
            for resource, verbs in rules
        ],
    }
    cluster.apply(role)
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": account, "namespace": "default"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": account,
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        }
    )


async def _status(service: Api, token: str, method: str, path: str, **options: Any) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    answer = await service.http.request(method, path, headers=headers, **options)
    return answer.status_code


def test_an_override_needs_what_the_same_change_of_scales_needs(sqlite_url: str) -> None:
    with api_server(EngineOptions(rbac=True)) as cluster:
        uid = _cluster_with_job(cluster)
        trainer = account_token(cluster, "job-trainer", BRAIN_AUDIENCE)
        # As the role of trainers has it: the admission policy is what keeps it from Scales of User.
        _grant(cluster, "job-trainer", ("elasticjobs", ["get", "update"]), ("scales", ["*"]))
        wide = account_token(cluster, "job-trainer", None)
        editor = account_token(cluster, "jobs-alone", None)
        _grant(cluster, "jobs-alone", ("elasticjobs", ["*"]))
        creator = account_token(cluster, "creator", None)
        _grant(cluster, "creator", ("elasticjobs", ["*"]), ("scales", ["create"]))
        person = account_token(cluster, "person", None)
        _grant(cluster, "person", ("elasticjobs", ["get"]), ("scales", ["create", "delete"]))

        async def main() -> None:
            async with connected_cluster(str(cluster.kubeconfig_path)) as connection:
                known = KubernetesAuthenticator(connection)
                async with api(sqlite_url, authenticator=known, scales=connection) as service:
                    job = f"/v1/jobs/{uid}"
                    assert await _status(service, trainer, "PUT", job, json=REGISTRATION) == 200
                    for token in (trainer, wide, editor):
                        made = await _status(service, token, "POST", f"{job}/plans", json=PIN)
                        assert made == 403
                    made = await _status(service, creator, "POST", f"{job}/plans", json=PIN)
                    assert made == 201
                    for token in (trainer, wide, editor, creator):
                        lifted = await _status(service, token, "DELETE", f"{job}/override")
                        assert lifted == 403
                    assert len(await asyncio.to_thread(cluster.list, SCALES, "default")) == 1
                    assert await _status(service, person, "DELETE", f"{job}/override") == 200
                    made = await _status(service, person, "POST", f"{job}/plans", json=PIN)
                    assert made == 201

        run(main)
        assert len(cluster.list(SCALES, "default")) == 1
