"""``spec.input.cache`` on pods: the node's cache, memory for one of their own, or neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from penstock.controller.commands import controller
from penstock.controller.reconcile import Settings
from penstock.controller.reconcile.desired.cache import memory_of
from penstock.data.cache.index import index_bytes
from penstock.kube.errors import ApiRefusedError
from tests.controller.life import Life, template

Json = dict[str, Any]

SOCKET = "/run/penstock-cache/cache.sock"
VARIABLE = "PENSTOCK_CACHE_SOCKET"
RESTRICTED = (
    'violates PodSecurity "baseline:latest": hostPath volumes (volume "penstock-cache" uses'
    " restricted volume type)"
)


@pytest.fixture
def cached() -> Iterator[Life]:
    """A controller that was told of the nodes' caches."""
    found = Life(Settings(trainer_image="trainer", cache_socket=SOCKET))
    yield found
    found.close()


def asked(scope: str, memory: str = "2Gi") -> Json:
    return {"cache": {"memory": memory, "scope": scope, "paths": ["/data"]}}


def has_socket(pod: Json) -> bool:
    """Whether a pod has the socket whole; half of it is a fault."""
    volumes = [one for one in pod["spec"].get("volumes", ()) if one["name"] == "penstock-cache"]
    found = [bool(volumes)]
    for container in pod["spec"]["containers"]:
        mounts = container.get("volumeMounts", ())
        mounted = [one for one in mounts if one["name"] == "penstock-cache"]
        named = [one["value"] for one in container["env"] if one["name"] == VARIABLE]
        assert all(one["readOnly"] for one in mounted)
        assert [one["mountPath"] for one in mounted] == ["/run/penstock-cache"] * len(mounted)
        assert named in ([], [SOCKET])
        found += [bool(mounted), bool(named)]
    assert len(set(found)) == 1, "all of it or nothing"
    return found[0]


def start(life: Life, **input_: Any) -> None:
    life.create_job(workers={"replicas": 1}, input=input_)
    life.create_scale("data", {"dataWorker": {"replicas": 1}}, source="Scheduler")
    life.settle()


def refuse(life: Life, forbids: Callable[[Json], str]) -> list[str]:
    """The API server forbids pods for what a test says of them; which it was asked for."""
    put, tried = life.server.put, []

    def refusing(resource: str, found: Json) -> Json:
        if resource == "pods":
            tried.append(found["metadata"]["name"])
            if why := forbids(found):
                raise ApiRefusedError(why, code=403, reason="Forbidden")
        return put(resource, found)

    life.server.put = refusing  # type: ignore[method-assign]  # stands in for the server's own
    return tried


def not_mounted(life: Life) -> list[str]:
    """What the Events say of caches that are not mounted."""
    events = life.server.objects["events"].values()
    return [one["message"] for one in events if one["reason"] == "CacheNotMounted"]


def forbids_folders_of_the_node(pod: Json) -> str:
    return RESTRICTED if any("hostPath" in one for one in pod["spec"].get("volumes", ())) else ""


@pytest.mark.parametrize("scope", ["Node", "Nodes"])
def test_whoever_reads_the_dataset_reaches_the_cache(cached: Life, scope: str) -> None:
    start(cached, **asked(scope))
    for role in ("worker", "data-worker"):
        [pod] = cached.pods(role)
        assert has_socket(pod), role
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "penstock-cache"]
        # Made where there is no daemon: the pod must start all the same.
        assert volume["hostPath"] == {"path": "/run/penstock-cache", "type": "DirectoryOrCreate"}
    [trainer] = cached.pods("trainer")
    assert not has_socket(trainer), "it reads no dataset"


def test_without_the_option_there_is_none(life: Life) -> None:
    start(life, **asked("Node"))
    assert not any(has_socket(pod) for pod in life.pods("worker") + life.pods("data-worker"))


@pytest.mark.parametrize("input_", [{}, asked("Pod")])
def test_who_does_not_ask_gets_none(cached: Life, input_: Json) -> None:
    start(cached, **input_)
    assert not any(has_socket(pod) for pod in cached.pods("worker") + cached.pods("data-worker"))


def test_what_a_template_has_by_that_name_gives_way(cached: Life) -> None:
    worker = template()
    worker["spec"]["volumes"] = [
        {"name": "penstock-cache", "emptyDir": {}},
        {"name": "data", "emptyDir": {}},
    ]
    [container] = worker["spec"]["containers"]
    container["volumeMounts"] = [
        {"name": "penstock-cache", "mountPath": "/mine"},
        {"name": "data", "mountPath": "/run/penstock-cache"},
        {"name": "data", "mountPath": "/data"},
    ]
    container["env"] = [{"name": VARIABLE, "value": "/mine/cache.sock"}]
    cached.create_job(workers={"replicas": 1, "template": worker}, input=asked("Node"))
    cached.settle()
    [pod] = cached.pods("worker")
    assert has_socket(pod)
    [made] = pod["spec"]["containers"]
    paths = [one["mountPath"] for one in made["volumeMounts"] if one["name"] != "penstock-shm"]
    assert paths == ["/data", "/run/penstock-cache"]


def test_a_namespace_that_forbids_it_runs_the_job_without(cached: Life) -> None:
    tried = refuse(cached, forbids_folders_of_the_node)
    start(cached, **asked("Node"))
    [worker], [data_worker] = cached.pods("worker"), cached.pods("data-worker")
    assert not has_socket(worker)
    assert not has_socket(data_worker)
    assert worker["metadata"]["name"] == "job-worker-0-0", "no incarnation is spent on it"
    assert cached.condition("Accepted")[0] == "True"
    assert cached.condition("Scaling") == ("False", "Settled")
    events = not_mounted(cached)
    assert len(events) == 1, "said once, not for each pod"
    assert RESTRICTED in events[0]
    tried.clear()
    cached.end_pod("job-worker-0-0", 1)
    cached.settle()
    assert tried == ["job-worker-0-1"], "what is known is not tried again"


def test_a_new_generation_tries_again(cached: Life) -> None:
    refuse(cached, forbids_folders_of_the_node)
    start(cached, **asked("Node"))
    del cached.server.put
    cached.edit_spec(lambda spec: spec["input"]["cache"].update(memory="3Gi"))
    cached.settle()
    cached.end_pod("job-worker-0-0", 1)
    cached.settle()
    [worker] = cached.pods("worker")
    assert has_socket(worker)


@pytest.mark.parametrize(
    ("why", "tries"),
    [
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', 2),
        ("exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8", 1),
    ],
)
def test_what_is_forbidden_for_another_reason_is_told_as_ever(
    cached: Life, why: str, tries: int
) -> None:
    tried = refuse(cached, lambda pod: why if "-worker-" in pod["metadata"]["name"] else "")
    cached.create_job(workers={"replicas": 1}, input=asked("Node"))
    cached.deliver()
    for _ in range(20):
        if "job-worker-0-0" in tried:
            break
        cached.one_pass()
    assert tried.count("job-worker-0-0") == tries
    del cached.server.put
    cached.settle()
    [worker] = cached.pods("worker")
    assert has_socket(worker), "the cache was not the reason"
    assert not_mounted(cached) == []


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        # The cache holds 2 GiB, and takes a fiftieth and 64 MiB for itself.
        ({"requests": {"memory": "1Gi"}}, "3176Mi", None),
        ({"limits": {"memory": "4Gi"}}, None, "6248Mi"),
        ({"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}, "3176Mi", "6248Mi"),
        ({}, "2152Mi", None),
        ({"requests": {"cpu": "1"}}, "2152Mi", None),
    ],
)
def test_a_cache_of_ones_own_is_asked_for_as_memory(
    life: Life, resources: Json, requests: str | None, limits: str | None
) -> None:
    worker = template()
    worker["spec"]["containers"][0]["resources"] = resources
    life.create_job(workers={"replicas": 1, "template": worker}, input=asked("Pod"))
    life.create_scale("data", {"dataWorker": {"replicas": 1}}, source="Scheduler")
    life.settle()
    [pod] = life.pods("data-worker")
    found = pod["spec"]["containers"][0].get("resources") or {}
    assert (found.get("requests") or {}).get("memory") == requests
    assert (found.get("limits") or {}).get("memory") == limits
    [training] = life.pods("worker")
    assert training["spec"]["containers"][0]["resources"] == resources, "only data workers keep"


@pytest.mark.parametrize("held", [1 << 20, 1 << 30, (1 << 34) + 1, 1 << 40])
def test_it_has_room_for_its_process_its_index_and_files_of_80_kilobytes(held: int) -> None:
    of_files = held // 80_000 * 820
    assert memory_of(held) >= held + (60 << 20) + index_bytes(held) + of_files


def test_a_scale_names_all_of_the_memory(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, input=asked("Pod"))
    roles = {"dataWorker": {"replicas": 1, "resources": {"memory": "8Gi"}}}
    life.create_scale("data", roles, source="User")
    life.settle()
    [pod] = life.pods("data-worker")
    assert pod["spec"]["containers"][0]["resources"]["requests"]["memory"] == "8Gi"
    assert life.condition("Scaling") == ("False", "Settled"), "and it is not replaced for ever"


def test_the_memory_counts_for_the_jobs_limit(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1}, input=asked("Pod", "8Gi"), resourceLimits={"memory": "10Gi"}
    )
    life.create_scale("data", {"dataWorker": {"replicas": 2}}, source="Scheduler")
    life.settle()
    assert len(life.names("data-worker")) < 2


@pytest.mark.parametrize("path", ["cache.sock", "/cache.sock", "/run/../cache.sock", "run/x/y"])
def test_a_path_that_cannot_be_mounted_is_refused(path: str) -> None:
    with pytest.raises(typer.BadParameter, match="in a folder of its own"):
        controller(cache_socket=path, print_manifests=False)
