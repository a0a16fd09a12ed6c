"""The official synchronous client: typed, custom and dynamic API, watches, informer, elections."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import SharedInformer

from cluster.tests.clients.notes import API_VERSION, GROUP, PLURAL, VERSION, crd, note
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import RunningCluster, api_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(serving=ServeOptions(tls=True)) as running:
        running.apply(crd())
        yield running


@pytest.fixture(scope="module")
def api(cluster: RunningCluster) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(cluster.kubeconfig_path)) as found:
        yield found


def pod(name: str, **labels: str) -> client.V1Pod:
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels=labels),
        spec=client.V1PodSpec(
            containers=[client.V1Container(name="main", image="example.org/app:1")]
        ),
    )


def test_a_typed_object_goes_there_and_back(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    created = core.create_namespaced_pod("default", pod("typed", app="a"))
    assert created.status.phase == "Pending"
    assert created.metadata.creation_timestamp.tzinfo is not None
    changed = core.patch_namespaced_pod("typed", "default", {"metadata": {"labels": {"b": "c"}}})
    assert changed.metadata.labels == {"app": "a", "b": "c"}
    assert int(changed.metadata.resource_version) > int(created.metadata.resource_version)
    core.delete_namespaced_pod("typed", "default", grace_period_seconds=0)
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_pod("typed", "default")
    assert caught.value.status == 404


def test_a_stale_update_is_a_conflict(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map(
        "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="raced"), data={"a": "1"})
    )
    mine = core.read_namespaced_config_map("raced", "default")
    theirs = core.read_namespaced_config_map("raced", "default")
    theirs.data = {"a": "2"}
    core.replace_namespaced_config_map("raced", "default", theirs)
    mine.data = {"a": "3"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("raced", "default", mine)
    assert caught.value.status == 409


def test_lists_come_in_pages(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    for number in range(5):
        core.create_namespaced_pod("default", pod(f"page-{number}", paged="yes"))
    names: list[str] = []
    token = None
    while True:
        page = core.list_namespaced_pod(
            "default", label_selector="paged=yes", limit=2, _continue=token
        )
        assert len(page.items) <= 2
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(5)]


def test_custom_objects_and_their_status(api: client.ApiClient) -> None:
    custom = client.CustomObjectsApi(api)
    place = (GROUP, VERSION, "default", PLURAL)
    custom.create_namespaced_custom_object(*place, note("custom", size=1))
    custom.patch_namespaced_custom_object_status(*place, "custom", {"status": {"seen": True}})
    found = custom.get_namespaced_custom_object(*place, "custom")
    assert found["status"] == {"seen": True}
    assert found["metadata"]["generation"] == 1
    assert len(custom.list_namespaced_custom_object(*place)["items"]) == 1


def test_a_watch_starts_where_a_list_ended(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    version = core.list_namespaced_config_map("default").metadata.resource_version
    for name in ("w1", "w2"):
        core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))
        )
    core.delete_namespaced_config_map("w1", "default")
    seen = []
    watching = watch.Watch()
    for event in watching.stream(
        core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=10
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            watching.stop()
    assert seen == [("ADDED", "w1"), ("ADDED", "w2"), ("DELETED", "w1")]


def test_the_dynamic_client_discovers_and_applies(api: client.ApiClient) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its discovery cache file
        notes = dynamic.DynamicClient(api).resources.get(api_version=API_VERSION, kind="Note")
    body = note("applied", colour="red")
    notes.server_side_apply(body=body, namespace="default", field_manager="one")
    with pytest.raises(dynamic.exceptions.ConflictError):
        notes.server_side_apply(
            body=note("applied", colour="blue"), namespace="default", field_manager="two"
        )
    assert notes.get(name="applied", namespace="default").spec.colour == "red"
    notes.delete(name="applied", namespace="default")


def test_an_informer_follows_the_cluster(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_secret(
        "default", client.V1Secret(metadata=client.V1ObjectMeta(name="before"))
    )
    changes: list[tuple[str, str]] = []
    enough = threading.Event()
    informer = SharedInformer(core.list_namespaced_secret, namespace="default")

    def noted(kind: str) -> Any:
        def handler(item: Any) -> None:
            changes.append((kind, item.metadata.name))
            if ("DELETED", "later") in changes:
                enough.set()

        return handler

    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, noted(kind))
    informer.start()
    try:
        RunningCluster.wait(lambda: ("ADDED", "before") in changes, "the initial list")
        core.create_namespaced_secret(
            "default", client.V1Secret(metadata=client.V1ObjectMeta(name="later"))
        )
        RunningCluster.wait(lambda: ("ADDED", "later") in changes, "the event")
        assert informer.cache.get_by_key("default/later") is not None
        core.patch_namespaced_secret("later", "default", {"metadata": {"labels": {"a": "b"}}})
        core.delete_namespaced_secret("later", "default")
        assert enough.wait(10)
        assert informer.cache.get_by_key("default/later") is None
        assert changes.index(("MODIFIED", "later")) < changes.index(("DELETED", "later"))
    finally:
        informer.stop()


def test_one_of_two_candidates_leads_and_the_other_follows_it_when_it_dies(
    cluster: RunningCluster,
) -> None:
    first, second = start_candidate(cluster, "a"), start_candidate(cluster, "b", after="a")
    try:
        assert holder(cluster) == "a"
        assert read_line(second, timeout_seconds=2.5) is None
        first.kill()
        assert read_line(second, timeout_seconds=20) == "leading\n"
        assert holder(cluster) == "b"
    finally:
        for process in (first, second):
            process.kill()
            process.communicate(timeout=10)


def start_candidate(cluster: RunningCluster, name: str, after: str = "") -> subprocess.Popen[str]:
    """Start a candidate; the first one is waited for until it leads."""
    program = Path(__file__).with_name("elector_program.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(cluster.kubeconfig_path), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if not after:
        assert read_line(process, timeout_seconds=20) == "leading\n"
    return process


def read_line(process: subprocess.Popen[str], timeout_seconds: float) -> str | None:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:  # select() takes no descriptor above 1,023
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(timeout_seconds)
    return process.stdout.readline() if ready else None


def holder(cluster: RunningCluster) -> str:
    annotations = cluster.get("configmaps", "sync-lock", "default")["metadata"]["annotations"]
    record = json.loads(annotations["control-plane.alpha.kubernetes.io/leader"])
    return str(record["holderIdentity"])
