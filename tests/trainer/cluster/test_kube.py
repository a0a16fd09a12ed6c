"""The trainer's calls to a real API server: reading its job, following pods, writing Scales."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.enums import Role, Source, Stage
from penstock.base.targets import RoleTarget
from penstock.crds import labels
from penstock.crds.manifests import MANIFESTS
from penstock.job.identities import PodIdentity
from penstock.trainer.cluster.job_view import scale_of, worker_pods
from penstock.trainer.cluster.kube import ClusterAccess, KubeClient, KubeError
from penstock.wire import Plan
from penstock_cluster.testing import RunningCluster, api_server

JOB = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "j", "namespace": "default"},
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        for manifest in MANIFESTS:
            for item in manifest.objects():
                running.apply(item)
        yield running


@pytest.fixture(scope="module")
def identity(cluster: RunningCluster) -> PodIdentity:
    job = cluster.create("elasticjobs.penstock.dev", JOB)
    return PodIdentity(
        job="j",
        namespace="default",
        uid=job["metadata"]["uid"],
        role="trainer",
        rank=0,
        incarnation=0,
        pod="j-trainer-0-0",
        ip="127.0.0.1",
        node="",
        token="t",
    )


@pytest.fixture
def access(cluster: RunningCluster, tmp_path: Path) -> ClusterAccess:
    token = tmp_path / "token"
    token.write_text(cluster.token)
    return ClusterAccess(cluster.url, token, None)


def client(access: ClusterAccess, identity: PodIdentity) -> KubeClient:
    return KubeClient(access, identity.namespace, identity.job, identity.uid)


def pod(name: str, uid: str, rank: int, role: str = "worker") -> dict[str, Any]:
    tags = {
        labels.JOB_UID: uid,
        labels.ROLE: role,
        labels.RANK: str(rank),
        labels.INCARNATION: "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": tags},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


def plan(identity: PodIdentity, number: int = 1, **changes: Any) -> Plan:
    fields = {
        "id": number,
        "job_uid": identity.uid,
        "created_seconds": 1_700_000_000.5 + number,
        "source": Source.BRAIN,
        "stage": Stage.CREATE,
        "reason": "ColdStart",
        "message": "no history",
        "roles": {Role.WORKER: RoleTarget(replicas=2)},
        **changes,
    }
    return Plan.model_validate(fields)


def test_the_job_is_read_with_its_defaults(access: ClusterAccess, identity: PodIdentity) -> None:
    async def read() -> dict[str, Any]:
        kube = client(access, identity)
        try:
            return await kube.job()
        finally:
            await kube.close()

    assert asyncio.run(read())["spec"]["replicaSpecs"]["worker"]["minReplicas"] == 1


def test_a_refusal_names_code_and_reason(
    cluster: RunningCluster, identity: PodIdentity, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("nonsense")

    async def read() -> None:
        kube = client(ClusterAccess(cluster.url, wrong, None), identity)
        try:
            await kube.job()
        finally:
            await kube.close()

    with pytest.raises(KubeError) as caught:
        asyncio.run(read())
    assert caught.value.code == 401


def test_pods_are_followed_from_the_first_to_the_last(
    cluster: RunningCluster, access: ClusterAccess, identity: PodIdentity
) -> None:
    uid = identity.uid
    cluster.create("pods", pod("w0", uid, 0))
    cluster.create("pods", pod("trainer", uid, 0, role="trainer"))

    async def follow() -> list[frozenset[int]]:
        kube = client(access, identity)
        seen: list[frozenset[int]] = []
        reflector = kube.watch_pods(lambda pods: seen.append(worker_pods(pods).expected))
        task = asyncio.create_task(reflector.run())
        try:
            await until(lambda: seen[-1:] == [frozenset({0})])
            await asyncio.to_thread(cluster.create, "pods", pod("w1", uid, 1))
            await until(lambda: seen[-1:] == [frozenset({0, 1})])
            await asyncio.to_thread(cluster.delete, "pods", "w0", "default")
            await until(lambda: seen[-1:] == [frozenset({1})])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kube.close()
        return seen

    assert asyncio.run(follow())[-1] == frozenset({1})


def test_a_pod_runs_once_its_containers_have_started_and_until_it_is_to_go() -> None:
    pods = [pod(f"w{rank}", "uid", rank) for rank in range(4)]
    for each, phase in zip(pods, ("Pending", "Running", "Running", "Succeeded"), strict=True):
        each["status"] = {"phase": phase}
    pods[2]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    seen = worker_pods(pods)
    assert seen.expected == {0, 1}
    assert seen.running == {(1, 0)}
    assert seen.ended == ((3, 0),)


def test_a_plan_becomes_one_scale_however_often_it_is_written(
    cluster: RunningCluster, access: ClusterAccess, identity: PodIdentity
) -> None:
    scale = scale_of(plan(identity), identity)
    assert scale is not None

    async def write() -> list[bool]:
        kube = client(access, identity)
        try:
            return [await kube.create_scale(scale) for _ in range(2)]
        finally:
            await kube.close()

    assert asyncio.run(write()) == [True, False]
    [stored] = cluster.list("scales.penstock.dev", "default")
    assert stored["metadata"]["annotations"][labels.PLAN] == "1"
    assert stored["spec"]["roles"] == {"worker": {"replicas": 2}}
    assert stored["spec"]["source"] == "Brain"
    assert stored["spec"]["policy"] == "Apply"


def test_conditions_of_a_scale_are_written_only_as_of_the_version_that_was_read(
    cluster: RunningCluster, access: ClusterAccess, identity: PodIdentity
) -> None:
    scale = scale_of(plan(identity, 77), identity)
    assert scale is not None
    name = scale["metadata"]["name"]
    stamp = "2026-01-01T12:00:00Z"
    asked = [
        {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": stamp}
        for kind, status in (("Admitted", "True"), ("Prepared", "Unknown"))
    ]

    async def write() -> list[int]:
        kube = client(access, identity)
        codes = []
        try:
            await kube.create_scale(scale)
            items, _ = await kube.list(f"{kube._root}/scales", {})
            first = next(one for one in items if one["metadata"]["name"] == name)
            version = first["metadata"]["resourceVersion"]
            for conditions in (asked, [asked[0], {**asked[1], "status": "True"}]):
                try:
                    await kube.set_scale_conditions(name, version, conditions)
                except KubeError as error:
                    codes.append(error.code)
        finally:
            await kube.close()
        return codes

    assert asyncio.run(write()) == [409]
    [stored] = [
        one
        for one in cluster.list("scales.penstock.dev", "default")
        if one["metadata"]["name"] == name
    ]
    assert [one["status"] for one in stored["status"]["conditions"]] == ["True", "Unknown"]


def test_the_names_of_scales_sort_as_their_plans(identity: PodIdentity) -> None:
    scales = [scale_of(plan(identity, number), identity) for number in (1, 2, 10)]
    names = [scale["metadata"]["name"] for scale in scales if scale]
    assert names == sorted(names)
    assert len(names) == 3


@pytest.mark.parametrize(
    "changes", [{"source": Source.USER}, {"held": True}, {"roles": {}}, {"scale": "written"}]
)
def test_a_plan_that_is_not_the_trainers_to_write_becomes_no_scale(
    identity: PodIdentity, changes: dict[str, Any]
) -> None:
    assert scale_of(plan(identity, **changes), identity) is None


async def until(ready: Any, timeout: float = 10) -> None:
    async with asyncio.timeout(timeout):
        while not ready():  # noqa: ASYNC110  (what is awaited changes on another thread)
            await asyncio.sleep(0.02)
