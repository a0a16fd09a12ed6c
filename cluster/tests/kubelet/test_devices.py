"""A pod has its GPUs to itself, for as long as it lives, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.tests.kubelet.clusters import Cluster, pod, run, until
from penstock_cluster.gpus import machine_gpus
from penstock_cluster.kubelet.container.devices import (
    DeviceAllocator,
    container_devices,
    device_variables,
)
from penstock_cluster.nodes import NodeDeclaration

Json = dict[str, Any]

FOUR = NodeDeclaration("n1", accelerators={"nvidia.com/gpu": 4})
SHOW = "echo $$CUDA_VISIBLE_DEVICES/$$NVIDIA_VISIBLE_DEVICES"


def asking(gpus: int) -> Json:
    return {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def spec(gpus: int) -> Json:
    return {"spec": {"containers": [{"name": "main", **asking(gpus)}]}}


@given(
    devices=st.integers(0, 8),
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4)), max_size=40),
)
def test_nobody_shares_while_there_is_enough(devices: int, steps: list[tuple[str, int]]) -> None:
    allocator = DeviceAllocator([f"GPU-{index}" for index in range(devices)])
    held: dict[str, tuple[str, ...]] = {}
    for uid, gpus in steps:
        if uid in held:
            allocator.release(uid)
            del held[uid]
            continue
        held[uid] = allocator.assign(uid, spec(gpus))
        assert len(held[uid]) == (min(gpus, devices) if devices else gpus)
        assert allocator.assign(uid, spec(gpus)) == held[uid]
        everything = [device for each in held.values() for device in each]
        assert len(set(held[uid])) == len(held[uid])
        if not devices:
            assert len(set(everything)) == len(everything)
    for uid in held:
        allocator.release(uid)
    assert len(allocator.assign("last", spec(4))) == (min(4, devices) if devices else 4)


def test_a_full_machine_is_shared_fairly() -> None:
    allocator = DeviceAllocator(["0", "1"])
    given_out = [allocator.assign(str(number), spec(1)) for number in range(4)]
    assert given_out == [("0",), ("1",), ("0",), ("1",)]
    assert allocator.assign("large", spec(5)) == ("0", "1")


def test_each_container_of_a_pod_has_its_own() -> None:
    several = {
        "initContainers": [
            {"name": "first", **asking(3)},
            {"name": "beside", "restartPolicy": "Always", **asking(1)},
            {"name": "second", **asking(2)},
        ],
        "containers": [{"name": "a", **asking(2)}, {"name": "b"}, {"name": "c", **asking(1)}],
    }
    assert container_devices(several, "0123") == {
        "first": ("0", "1", "2"),
        "beside": ("0",),
        "second": ("1", "2"),
        "a": ("1", "2"),
        "b": (),
        "c": ("3",),
    }
    assert set(container_devices(several, "0").values()) == {("0",), ()}
    assert set(container_devices(several, "").values()) == {()}


def test_who_has_none_is_told_so() -> None:
    assert device_variables(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (None, ("0", "1")),
        ("", ()),
        ("-1", ()),
        ("3", ("3",)),
        ("GPU-a, MIG-b", ("GPU-a", "MIG-b")),
    ],
)
def test_the_machines_devices_are_those_that_the_cluster_may_use(
    told: str | None, found: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    environ = {} if told is None else {"CUDA_VISIBLE_DEVICES": told}
    assert machine_gpus(environ, tmp_path) == found


def with_gpus(name: str, script: str, gpus: int, **more: Any) -> Json:
    document = pod(name, script, **more)
    document["spec"]["containers"][0] |= asking(gpus)
    return document


def test_pods_that_run_at_one_time_have_different_devices(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(with_gpus("two", f"{SHOW}; sleep 60", 2))
        await cluster.run(with_gpus("one", f"{SHOW}; sleep 60", 1))
        await cluster.run(pod("none", SHOW))
        await cluster.ended("none")
        assert await cluster.log("none") == "/void\n"
        seen = [(await cluster.log_until(name, "\n")).strip() for name in ("two", "one")]
        for each in seen:
            cuda, runtime = each.split("/")
            assert cuda == runtime
        taken = [device for each in seen for device in each.split("/")[0].split(",")]
        assert len(set(taken)) == 3
        assert set(taken) <= {"4", "5", "6", "7"}
        await cluster.api.delete("pods", "two", "default")
        await cluster.gone("two")
        await cluster.run(with_gpus("three", SHOW, 3))
        await cluster.ended("three")
        own = (await cluster.log("three")).split("/")[0].split(",")
        assert len(set(own)) == 3
        assert not set(own) & set(seen[1].split("/")[0].split(","))

    run(scenario, tmp_path, FOUR, gpus=("4", "5", "6", "7"))


def test_a_container_that_is_started_again_has_the_same_devices(tmp_path: Path) -> None:
    script = f"{SHOW} >> {tmp_path}/seen; test $$(wc -l < {tmp_path}/seen) -gt 2 || exit 1"

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(with_gpus("fails", script, 1, restartPolicy="OnFailure"))

        async def waits() -> bool:
            return (tmp_path / "seen").exists()

        await until(waits, "the first start")
        await cluster.run(with_gpus("other", "sleep 60", 1))
        await cluster.ended("fails")
        seen = (tmp_path / "seen").read_text().split()
        assert len(seen) == 3
        assert len(set(seen)) == 1

    run(scenario, tmp_path, FOUR)


def test_what_a_container_says_itself_holds_as_with_a_device_plugin(tmp_path: Path) -> None:
    own = with_gpus("own", SHOW, 2)
    own["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "9"}]

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(own)
        await cluster.ended("own")
        assert await cluster.log("own") == "9/0,1\n"

    run(scenario, tmp_path, FOUR, gpus=())


def test_a_later_kubelet_gives_out_what_the_pods_of_the_earlier_one_had(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"

    async def first(cluster: Cluster) -> None:
        await cluster.run(with_gpus("ran", "sleep 60", 4))
        await cluster.ready("ran")

    async def second(cluster: Cluster) -> None:
        assert (await cluster.ended("ran"))["status"]["phase"] == "Failed"
        await cluster.run(with_gpus("a", f"{SHOW}; sleep 60", 2), with_gpus("b", SHOW, 2))
        await cluster.ended("b")
        seen = [(await cluster.log_until(name, "\n")).split("/")[0] for name in "ab"]
        assert len({device for each in seen for device in each.split(",")}) == 4

    run(first, tmp_path, FOUR, database=database, gpus=())
    run(second, tmp_path, FOUR, database=database, gpus=())
