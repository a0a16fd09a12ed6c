"""A trainer with the role of its job: what it needs is allowed, and no more than RBAC can narrow.

The objects are those that the controller makes, from the very function that it makes them with.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.reconcile.model.objects import job_objects
from penstock.controller.reconcile.model.observed import Job
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.manifests import MANIFESTS
from penstock.trainer.cluster.kube import ClusterAccess, KubeClient, KubeError
from penstock_cluster.registry.engine import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server

JOBS = "elasticjobs.penstock.dev"
SCALES = "scales.penstock.dev"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
SPEC = {"strategy": "AllReduce", "replicaSpecs": {"worker": {"template": TEMPLATE}}}
WITH_SERVERS = {
    "strategy": "ParameterServer",
    "replicaSpecs": {"worker": {"template": TEMPLATE}, "ps": {"template": TEMPLATE}},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True)) as running:
        for manifest in MANIFESTS:
            for item in manifest.objects():
                running.apply(item)
        yield running


def trainer(cluster: RunningCluster, name: str, spec: dict[str, Any], folder: Path) -> KubeClient:
    """A job with all its objects, and its trainer's line to the API server."""
    document = {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": copy.deepcopy(spec),
    }
    made = cluster.create(JOBS, document)
    job = Job(
        namespace="default",
        name=name,
        uid=made["metadata"]["uid"],
        resource_version="1",
        generation=1,
        created=datetime.now(UTC),
        spec=ElasticJobSpec.model_validate(made["spec"]),
    )
    for one in job_objects(job):
        cluster.apply(dict(one.manifest))
    pod = {
        "metadata": {"name": f"{name}-worker-0-0", "labels": {"penstock.dev/job-uid": job.uid}},
        **TEMPLATE,
    }
    cluster.create("pods", pod, "default")
    token = folder / name
    token.write_text(cluster.account_token("default", f"{name}-trainer"))
    return KubeClient(ClusterAccess(cluster.url, token, None), "default", name, job.uid)


async def refusal(call: Awaitable[Any]) -> str:
    with pytest.raises(KubeError) as refused:
        await call
    assert refused.value.code == 403
    return str(refused.value)


async def first(follow: Callable[[Callable[[list[Any]], None]], Any]) -> list[str]:
    """The names in the first answer of something that a trainer follows."""
    seen: asyncio.Queue[list[Any]] = asyncio.Queue()
    task = asyncio.create_task(follow(seen.put_nowait).run())
    try:
        async with asyncio.timeout(20):
            return [one["metadata"]["name"] for one in await seen.get()]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_trainer_reads_its_own_job_and_no_other(cluster: RunningCluster, tmp_path: Path) -> None:
    own = trainer(cluster, "own", SPEC, tmp_path)
    trainer(cluster, "neighbour", SPEC, tmp_path)

    async def story() -> None:
        assert (await own.job())["metadata"]["name"] == "own"
        assert await first(own.watch_job) == ["own"]
        assert await first(own.watch_pods) == ["own-worker-0-0"]
        root = "/apis/penstock.dev/v1alpha1/namespaces/default"
        for path, query in (
            (f"{root}/elasticjobs", {}),
            (f"{root}/elasticjobs", {"fieldSelector": "metadata.name=neighbour"}),
            (f"{root}/scales", {}),
            ("/api/v1/namespaces/default/secrets", {}),
        ):
            assert "cannot list resource" in await refusal(own.list(path, query))
            watch = anext(own.watch(path, query, "0"))
            assert "cannot watch resource" in await refusal(watch)
        foreign = f"{root}/elasticjobs/neighbour"
        assert "cannot get resource" in await refusal(own._call("GET", foreign))
        status = {"status": {"problems": []}}
        assert "cannot patch" in await refusal(own._call("PATCH", f"{foreign}/status", status))
        await own.close()

    asyncio.run(story())


def test_a_trainer_with_servers_reads_the_scales_that_ask_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    own = trainer(cluster, "served", WITH_SERVERS, tmp_path)

    async def story() -> None:
        scale = {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Scale",
            "metadata": {"name": "served-1"},
            "spec": {
                "jobRef": {"name": "served", "uid": (await own.job())["metadata"]["uid"]},
                "roles": {"ps": {"replicas": 2}},
                "source": "Brain",
            },
        }
        assert await own.create_scale(scale)
        assert await first(own.watch_scales) == ["served-1"]
        made = await asyncio.to_thread(cluster.get, SCALES, "served-1", "default")
        prepared = {
            "type": "Prepared",
            "status": "True",
            "reason": "ServersReady",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        version = made["metadata"]["resourceVersion"]
        await own.set_scale_conditions("served-1", version, [prepared])
        await own.close()

    asyncio.run(story())


def test_the_pods_of_its_namespace_stay_open_to_a_trainer(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """RBAC knows no labels: whoever wants jobs apart gives them namespaces of their own."""
    own = trainer(cluster, "curious", SPEC, tmp_path)
    trainer(cluster, "overlooked", SPEC, tmp_path)

    async def story() -> None:
        items, _ = await own.list("/api/v1/namespaces/default/pods", {})
        assert "overlooked-worker-0-0" in {one["metadata"]["name"] for one in items}
        await own.close()

    asyncio.run(story())
