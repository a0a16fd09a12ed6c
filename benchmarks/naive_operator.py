"""The usual kopf pattern, for comparison: create and update handlers, and an index of pods.

What tutorials and most kopf operators do: a handler for creation makes the children, a handler for
updates scales them, an event handler on pods replaces the failed and counts the ready in the
parent's status. No queue, no own cache beyond kopf's, the synchronous client in kopf's threads.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
from kubernetes import client, config

GROUP, VERSION, PLURAL = "penstock.dev", "v1alpha1", "elasticjobs"
JOB, RANK = "penstock.dev/job", "penstock.dev/rank"


def pod(name: str, spec: Any, rank: int, incarnation: int, owner: Any = None) -> dict[str, Any]:
    template = spec["replicaSpecs"]["worker"]["template"]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-worker-{rank}-{incarnation}",
            "labels": {JOB: name, RANK: str(rank), "penstock.dev/role": "worker"},
        },
        "spec": dict(template["spec"]),
    }
    kopf.adopt(manifest, owner=owner)
    return manifest


@kopf.on.create(GROUP, VERSION, PLURAL)
def on_create(name: str, namespace: str, spec: Any, **_: Any) -> dict[str, int]:
    core = client.CoreV1Api()
    replicas = int(spec["replicaSpecs"]["worker"].get("replicas", 1))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {JOB: name}},
        "spec": {"clusterIP": "None", "selector": {JOB: name}, "ports": [{"port": 8476}]},
    }
    kopf.adopt(service)
    core.create_namespaced_service(namespace, service)
    for rank in range(replicas):
        core.create_namespaced_pod(namespace, pod(name, spec, rank, 0))
    return {"replicas": replicas}


@kopf.on.update(GROUP, VERSION, PLURAL)
def on_update(name: str, namespace: str, spec: Any, **_: Any) -> dict[str, int]:
    core = client.CoreV1Api()
    replicas = int(spec["replicaSpecs"]["worker"].get("replicas", 1))
    present = core.list_namespaced_pod(namespace, label_selector=f"{JOB}={name}").items
    ranks = {int(one.metadata.labels[RANK]) for one in present}
    for rank in range(replicas):
        if rank not in ranks:
            core.create_namespaced_pod(namespace, pod(name, spec, rank, 0))
    for one in present:
        if int(one.metadata.labels[RANK]) >= replicas:
            core.delete_namespaced_pod(one.metadata.name, namespace)
    return {"replicas": replicas}


@kopf.on.event("", "v1", "pods", labels={JOB: kopf.PRESENT})
def on_pod(event: Any, name: str, namespace: str, labels: Any, status: Any, **_: Any) -> None:
    if event["type"] == "DELETED":
        return
    core, custom = client.CoreV1Api(), client.CustomObjectsApi()
    parent = labels[JOB]
    pods = core.list_namespaced_pod(namespace, label_selector=f"{JOB}={parent}").items
    ready = sum(one.status.phase == "Running" for one in pods)
    custom.patch_namespaced_custom_object_status(
        GROUP, VERSION, namespace, PLURAL, parent, {"status": {"workers": f"{ready}/{len(pods)}"}}
    )
    if status.get("phase") == "Failed":
        job = custom.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, parent)
        incarnation = int(name.rsplit("-", 1)[1]) + 1
        manifest = pod(parent, job["spec"], int(labels[RANK]), incarnation, job)
        try:
            core.create_namespaced_pod(namespace, manifest)
        except client.ApiException as error:
            if error.status != 409:
                raise


def main() -> None:
    kopf.configure(verbose=False)
    config.load_kube_config()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    print("naive operator listening on nothing", flush=True)
    asyncio.run(
        kopf.operator(
            registry=kopf.get_default_registry(),
            settings=settings,
            standalone=True,
            clusterwide=True,
        )
    )


if __name__ == "__main__":
    main()
