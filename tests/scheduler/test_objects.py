from __future__ import annotations

from typing import Any

import pytest

from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import Amounts, read_node, read_pod, read_request
from penstock.scheduler.request import Expression, Taint, Term, Toleration

GPU = "nvidia.com/gpu"


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    quantities = {key.replace("gpu", GPU): value for key, value in requests.items()}
    return {"name": name, "resources": {"requests": quantities}}


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "ns"},
        "spec": {"nodeName": "n", **spec},
        "status": status or {"phase": "Running"},
    }


def test_a_node_is_read_with_its_traits() -> None:
    node = read_node(
        {
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "7910m", "memory": "15Gi", GPU: "4", "pods": "110"}},
        }
    )
    assert node.allocatable == Amounts(7910, 15 * 1024**3, ((GPU, 4),))
    assert node.cordoned
    assert node.taints == (Taint("k", "", "NoSchedule"),)


def test_a_node_may_say_nothing_or_less_than_nothing() -> None:
    assert read_node({"metadata": {"name": "n"}}).allocatable == Amounts()
    odd = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-2", GPU: "0"}}}
    assert read_node(odd).allocatable == Amounts()


def test_unknown_accelerators_are_not_counted_unless_named() -> None:
    document = {"metadata": {"name": "n"}, "status": {"allocatable": {"acme.com/npu": "2"}}}
    assert read_node(document).allocatable.accelerators == ()
    named = read_node(document, kinds=("acme.com/npu",))
    assert named.allocatable.accelerators == (("acme.com/npu", 2),)


@pytest.mark.parametrize(
    ("quantity", "milli"),
    [("2", 2000), ("500m", 500), ("0.1", 100), ("1e1", 10_000), ("1k", 1_000_000)],
)
def test_quantities_are_read_in_every_notation(quantity: str, milli: int) -> None:
    assert read_pod(pod({"containers": [container(cpu=quantity)]})).held.milli_cpu == milli


def test_a_broken_quantity_names_the_object_and_the_field() -> None:
    with pytest.raises(InvalidRequestError, match=r"pod ns/p: resources of c\.cpu='2 cores'"):
        read_pod(pod({"containers": [container(cpu="2 cores")]}))


def test_init_containers_sidecars_and_overhead_count_as_the_kubelet_counts() -> None:
    held = read_pod(
        pod(
            {
                "initContainers": [
                    container("setup", cpu="3"),
                    {**container("sidecar", cpu="1"), "restartPolicy": "Always"},
                    container("late", cpu="6"),
                ],
                "containers": [container(cpu="2"), container("d", cpu="2", gpu="1")],
                "overhead": {"cpu": "250m"},
            }
        )
    ).held
    assert held == Amounts(7250, 0, ((GPU, 1),))


def test_while_a_pod_is_resized_the_larger_counts() -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4", "memory": "1Gi"}}],
    }
    held = read_pod(pod({"containers": [container(cpu="2", memory="2Gi")]}, status)).held
    assert held == Amounts(4000, 2 * 1024**3)


def test_limits_stand_for_requests_that_are_not_there() -> None:
    document = pod({"containers": [{"name": "c", "resources": {"limits": {GPU: "2", "cpu": "1"}}}]})
    assert read_pod(document).held == Amounts(1000, 0, ((GPU, 2),))


def test_an_ended_pod_holds_nothing() -> None:
    ended = read_pod(pod({"containers": [container(cpu="2")]}, {"phase": "Succeeded"}))
    assert not ended.holds_resources


def test_a_request_carries_the_constraints_of_its_pod() -> None:
    spec = {
        "containers": [container(cpu="1", gpu="2")],
        "nodeSelector": {"b": "2", "a": "1"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n"]}
                            ]
                        }
                    ]
                }
            }
        },
    }
    request = read_request(spec)
    assert (request.milli_cpu, request.accelerators, request.accelerator_kinds) == (1000, 2, (GPU,))
    assert request.constraints.node_selector == (("a", "1"), ("b", "2"))
    assert request.constraints.tolerations == (Toleration("", "Exists"),)
    assert request.constraints.affinity == (
        Term(fields=(Expression("metadata.name", "In", ("n",)),)),
    )


def test_two_kinds_of_accelerators_in_one_pod_are_refused() -> None:
    spec = {
        "containers": [{"resources": {"requests": {GPU: "1", "amd.com/gpu": "1"}}}],
    }
    with pytest.raises(InvalidRequestError, match="one kind only"):
        read_request(spec)
