"""Accelerators that claims hand out count as any others."""

from __future__ import annotations

from typing import Any

from penstock.scheduler.devices import Devices, read_devices
from penstock.scheduler.fragmentation import of_cluster
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.objects import Amounts
from tests.scheduler.planner.documents import Json, node, pod

NVIDIA = "gpu.nvidia.com"


def slice_of(name: str, *devices: str, driver: str = NVIDIA, generation: int = 1) -> Json:
    return {
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": device} for device in devices],
        }
    }


def claim(on: str, *devices: str, **fields: Any) -> Json:
    results = [
        {"driver": NVIDIA, "pool": on, "device": device, "request": "r", **fields}
        for device in devices
    ]
    return {"status": {"allocation": {"devices": {"results": results}}}}


def gpus(count: int) -> Amounts:
    return Amounts(accelerators=((NVIDIA, count),))


def test_what_is_published_and_what_is_taken() -> None:
    found = read_devices(
        [slice_of("a", "gpu-0", "gpu-1"), slice_of("b", "gpu-0"), slice_of("a", "x", driver="nic")],
        [claim("a", "gpu-1"), {"status": {}}, claim("a", "gpu-9"), claim("b", "gpu-0")],
    )
    assert found == Devices({"a": gpus(2), "b": gpus(1)}, {"a": gpus(1), "b": gpus(1)})


def test_a_device_that_two_claims_share_is_taken_once() -> None:
    found = read_devices([slice_of("a", "gpu-0")], [claim("a", "gpu-0"), claim("a", "gpu-0")])
    assert found.taken == {"a": gpus(1)}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    slices = [slice_of("a", "gpu-0", "gpu-1"), slice_of("a", "gpu-0", generation=2)]
    assert read_devices(slices, []).there == {"a": gpus(1)}


def test_parts_of_devices_those_of_no_node_and_access_for_administration_are_left_out() -> None:
    part = slice_of("a", "gpu-0", "mig-0")
    part["spec"]["devices"][1]["attributes"] = {"type": {"string": "mig"}}
    nowhere = slice_of("b", "gpu-0")
    del nowhere["spec"]["nodeName"]
    found = read_devices([part, nowhere], [claim("a", "gpu-0", adminAccess=True)])
    assert found == Devices({"a": gpus(1)}, {})


def test_they_strand_as_others_do_and_come_and_go() -> None:
    state = ClusterState()
    state.put_node(node("a", "8"))
    state.put_pod(pod("busy", "8", on="a"), 0.0)
    state.replace_devices(Devices({"a": gpus(4)}, {"a": gpus(1)}))
    assert of_cluster(state.snapshot.columns).stranded_accelerators == 3.0
    state.replace_pods([pod("busy", "8", on="a")], 1.0)
    state.put_node(node("a", "8", unschedulable=True))
    assert of_cluster(state.snapshot.columns).stranded_accelerators == 3.0
    state.replace_devices(Devices({"a": gpus(4)}, {}))
    assert of_cluster(state.snapshot.columns).stranded_accelerators == 4.0
    state.replace_devices(Devices())
    assert of_cluster(state.snapshot.columns).stranded_accelerators == 0.0
    assert set(state.snapshot.bound) == {"uid-busy"}


def test_what_is_an_extended_resource_as_well_is_counted_once() -> None:
    state = ClusterState()
    state.replace_devices(Devices({"a": gpus(4)}, {}))
    state.put_node(node("a", "8", 4))
    assert state.snapshot.nodes["a"].allocatable.accelerators == (("nvidia.com/gpu", 4),)


def test_a_node_takes_as_many_pods_as_before() -> None:
    state = ClusterState()
    state.replace_devices(Devices({"a": gpus(1)}, {"a": gpus(1)}))
    state.put_node(node("a", "8", pods=1))
    assert state.snapshot.nodes["a"].most_pods == 2
