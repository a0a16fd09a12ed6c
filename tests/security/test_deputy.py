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


def test_a_name_that_somebody_took_before_keeps_nobodys_override_out(sqlite_url: str) -> None:
    with api_server(EngineOptions(rbac=True)) as cluster:
        uid = _cluster_with_job(cluster)
        taken = "job-user-000002"
        cluster.apply(
            {
                "apiVersion": "penstock.dev/v1alpha1",
                "kind": "Scale",
                "metadata": {"name": taken, "namespace": "default"},
                "spec": {
                    "jobRef": {"name": "job", "uid": uid},
                    "roles": {"worker": {"replicas": 4}},
                    "source": "Brain",
                },
            }
        )

        async def main() -> None:
            async with connected_cluster(str(cluster.kubeconfig_path)) as connection:
                known = KubernetesAuthenticator(connection)
                async with api(sqlite_url, authenticator=known, scales=connection) as service:
                    job, headers = f"/v1/jobs/{uid}", {"Authorization": f"Bearer {cluster.token}"}
                    registered = await service.http.put(job, json=REGISTRATION, headers=headers)
                    assert registered.status_code == 200, registered.text
                    made = await service.http.post(f"{job}/plans", json=PIN, headers=headers)
                    assert made.status_code == 201, made.text
                    name = made.json()["scale"]
                    assert name > taken
                    scale = await asyncio.to_thread(cluster.get, SCALES, name, "default")
                    assert scale["spec"]["policy"] == "Pin"
                    assert scale["spec"]["roles"] == {"worker": {"replicas": 2}}
                    # The same once more, as after a crash between writing it and noting it.
                    row = await service.brain.plans.detail(uid, 2)
                    assert row.row.scale == name
                    assert row.row.scale_written
                    await connection.write(await service.brain.jobs.get(uid), row.row)
                    # Lifting it takes away its own Scale, and no other one.
                    lifted = await service.http.delete(f"{job}/override", headers=headers)
                    assert lifted.status_code == 200
                    left = await asyncio.to_thread(cluster.list, SCALES, "default")
                    assert [one["metadata"]["name"] for one in left] == [taken]

        run(main)


def test_nobody_registers_the_uid_of_somebody_elses_job(sqlite_url: str) -> None:
    """Who did so first had it: the job's own trainer was refused, and had no plans, for ever."""
    with api_server(EngineOptions(rbac=True)) as cluster:
        uid = _cluster_with_job(cluster)
        trainer = account_token(cluster, "job-trainer", BRAIN_AUDIENCE)
        tenant = account_token(cluster, "tenant", BRAIN_AUDIENCE)
        _grant(cluster, "tenant", ("elasticjobs", ["*"]))
        other = account_token(cluster, "other-trainer", BRAIN_AUDIENCE)
        theirs = {**REGISTRATION, "name": "other"}

        async def main() -> None:
            async with connected_cluster(str(cluster.kubeconfig_path)) as connection:
                known = KubernetesAuthenticator(connection)
                async with api(sqlite_url, authenticator=known, scales=connection) as service:
                    job = f"/v1/jobs/{uid}"
                    for token in (tenant, other):
                        assert await _status(service, token, "PUT", job, json=theirs) == 409
                    assert await _status(service, trainer, "PUT", job, json=REGISTRATION) == 200
                    assert await _status(service, trainer, "PUT", job, json=REGISTRATION) == 200

        run(main)
