"""The effective request of a pod and its quality of service."""

from __future__ import annotations

import pytest

from penstock_cluster.requests import pod_requests, quality_of_service


def container(name: str = "main", cpu: str | None = None, **more) -> dict:
    return {"name": name, "resources": {"requests": {"cpu": cpu}} if cpu else {}, **more}


def requests(**spec) -> dict[str, int]:
    return pod_requests({"spec": spec}, count_pod=False)


def test_containers_add_up() -> None:
    assert requests(containers=[container(cpu="500m"), container("b", cpu="1")]) == {"cpu": 1500}


def test_the_largest_init_container_counts_when_it_is_larger() -> None:
    spec = {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3")]}
    assert requests(**spec) == {"cpu": 3000}


def test_sidecars_run_beside_everything_after_them() -> None:
    sidecar = container("s", cpu="1", restartPolicy="Always")
    early, late = container("early", cpu="4"), container("late", cpu="4")
    main = [container(cpu="2")]
    assert requests(containers=main, initContainers=[sidecar]) == {"cpu": 3000}
    assert requests(containers=main, initContainers=[sidecar, late]) == {"cpu": 5000}
    assert requests(containers=main, initContainers=[early, sidecar]) == {"cpu": 4000}


def test_overhead_comes_on_top() -> None:
    assert requests(containers=[container(cpu="1")], overhead={"cpu": "100m"}) == {"cpu": 1100}


def test_a_limit_alone_is_the_request() -> None:
    assert requests(containers=[{"name": "m", "resources": {"limits": {"cpu": "2"}}}]) == {
        "cpu": 2000
    }


def test_a_pod_that_is_being_shrunk_still_counts_with_what_it_has() -> None:
    pod = {
        "spec": {"containers": [container(cpu="1")]},
        "status": {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "3"}}]},
    }
    assert pod_requests(pod, count_pod=False) == {"cpu": 3000}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"nvidia.com/gpu": "1"}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_quality_of_service(resources: dict, expected: str) -> None:
    pod = {"spec": {"containers": [{"name": "m", "resources": resources}]}}
    assert quality_of_service(pod) == expected
