"""Nodes that go silent, come back, are cordoned or removed, and what becomes of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.tests.kubelet.clusters import (
    Cluster,
    condition,
    is_running,
    pod,
    python,
    run,
    terminated,
    until,
)
from penstock_cluster.faults.catalogue import FaultError
from penstock_cluster.node_lifecycle import seconds_tolerated
from penstock_cluster.nodes import NodeDeclaration

TWO = (NodeDeclaration("n1"), NodeDeclaration("n2"))
AT_ONCE = [
    {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 0,
    }
]


def on(name: str, node: str, script: str = "sleep 60", **spec) -> dict:
    return pod(name, script, nodeSelector={"kubernetes.io/hostname": node}, **spec)


async def node_is(cluster: Cluster, name: str, status: str) -> None:
    async def holds() -> bool:
        return condition(await cluster.api.get("nodes", name), "Ready")["status"] == status

    await until(holds, f"node {name} is Ready={status}")


def pid_script(tmp_path: Path) -> str:
    return f"echo $$$$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 60"


def test_a_lost_node_takes_its_processes_along_and_its_pods_are_evicted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(on("p", "n1", pid_script(tmp_path), tolerations=AT_ONCE))
        await cluster.run(on("other", "n2"))
        await cluster.ready("p")
        await cluster.ready("other")
        await cluster.log("p")

        async def said() -> bool:
            return (tmp_path / "pid").exists()

        await until(said, "the process says its number")
        pid = int((tmp_path / "pid").read_text())
        await cluster.faults.lose_node(name="n1")
        await node_is(cluster, "n1", "Unknown")

        async def ended() -> bool:
            return not is_running(pid)

        await until(ended, "the process ended with its machine")
        lost = await cluster.pod_until(
            "p", lambda found: found["metadata"].get("deletionTimestamp"), "is evicted"
        )
        assert condition(lost, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert condition(lost, "Ready")["status"] == "False"
        # Nobody can tell that it has ended: it stays, terminating, until the node is back.
        await asyncio.sleep(0.5)
        assert await cluster.exists("p")
        assert (await cluster.pod("other"))["status"]["phase"] == "Running"
        await cluster.faults.return_node(name="n1")
        await cluster.gone("p")
        await node_is(cluster, "n1", "True")

        async def untainted() -> bool:
            return not (await cluster.api.get("nodes", "n1"))["spec"].get("taints")

        await until(untainted, "the taints are gone")

    run(scenario, tmp_path, *TWO)


def test_a_node_that_is_back_in_time_finds_its_dead_pods_failed(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(on("p", "n1"))
        await cluster.ready("p")
        await cluster.faults.lose_node(name="n1")
        await cluster.faults.return_node(name="n1")
        lost = await cluster.ended("p")
        assert lost["status"]["phase"] == "Failed"
        assert terminated(lost)["reason"] == "ContainerStatusUnknown"
        assert terminated(lost)["exitCode"] == 137

    run(scenario, tmp_path, *TWO)


def test_behind_a_partition_processes_go_on_and_are_reported_later(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(on("stays", "n1"), on("ends", "n1", "sleep 0.5; exit 4"))
        await cluster.ready("stays")
        await cluster.ready("ends")
        await cluster.faults.lose_node(name="n1", processes_survive=True)
        await node_is(cluster, "n1", "Unknown")
        await asyncio.sleep(0.8)
        assert (await cluster.pod("ends"))["status"]["phase"] == "Running"
        await cluster.faults.return_node(name="n1")
        assert terminated(await cluster.ended("ends"))["exitCode"] == 4
        await cluster.ready("stays")

    run(scenario, tmp_path, *TWO)


def test_a_removed_node_takes_its_pods_with_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(on("p", "n1"))
        await cluster.ready("p")
        await cluster.faults.remove_node(name="n1")
        await cluster.gone("p")

    run(scenario, tmp_path, *TWO)


def test_a_cordoned_node_takes_no_new_pods(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(on("before", "n1"))
        await cluster.ready("before")
        await cluster.faults.cordon_node(name="n1")
        await cluster.run(on("after", "n1"))
        pending = await cluster.pod_until(
            "after", lambda found: found["status"].get("conditions"), "is refused"
        )
        assert "1 node(s) were unschedulable" in condition(pending, "PodScheduled")["message"]
        assert (await cluster.pod("before"))["status"]["phase"] == "Running"
        await cluster.faults.cordon_node(name="n1", cordoned=False)
        await cluster.ready("after")

    run(scenario, tmp_path, *TWO)


def test_a_no_execute_taint_evicts_those_that_do_not_tolerate_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tolerant = [{"key": "leave", "operator": "Exists"}]
        await cluster.run(on("goes", "n1"), on("stays", "n1", tolerations=tolerant))
        await cluster.ready("goes")
        await cluster.ready("stays")
        taint = {"key": "leave", "effect": "NoExecute"}
        await cluster.api.patch("nodes", "n1", {"spec": {"taints": [taint]}})
        await cluster.gone("goes")
        assert (await cluster.pod("stays"))["status"]["phase"] == "Running"

    run(scenario, tmp_path, *TWO)


def test_how_long_a_taint_is_tolerated() -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    exists = {"key": "k", "operator": "Exists"}
    assert seconds_tolerated({}, taint) == 0
    assert seconds_tolerated({"tolerations": [exists]}, taint) is None
    both = [{**exists, "tolerationSeconds": 30}, {**exists, "tolerationSeconds": 5}]
    assert seconds_tolerated({"tolerations": both}, taint) == 5


SPEED = """
import time

def waited():
    try:
        return int(open("/proc/self/schedstat").read().split()[1]) / 1e9
    except OSError:
        return 0.0

while True:
    began, used, queued = time.monotonic(), time.process_time(), waited()
    while time.process_time() - used < 0.02:
        pass
    time.sleep(0.02)
    taken = time.monotonic() - began - 0.02 - (waited() - queued)
    print(f"{taken / 0.02:.2f}")
"""
"""How many times longer its work takes than the CPU time of it, again and again.

That it had to wait for a CPU, on a machine that is busy with something else, does not count.
"""


def test_pods_of_a_slow_node_take_longer_for_the_same_work(tmp_path: Path) -> None:
    async def times(cluster: Cluster, name: str) -> float:
        """How many times longer its work of late has taken the pod."""
        found = [float(each) for each in (await cluster.log(name)).split()[-12:]]
        return sum(found) / len(found)

    async def takes(cluster: Cluster, name: str, holds: Callable[[float], bool]) -> None:
        begun = len(await cluster.log(name))

        async def enough() -> bool:
            more = (await cluster.log(name))[begun:].count("\n")
            return more > 12 and holds(await times(cluster, name))

        await until(enough, f"{name} has another speed")

    async def scenario(cluster: Cluster) -> None:
        limits = {"resources": {"limits": {"cpu": "900m"}}}
        for name, node in (("a", "n1"), ("b", "n2")):
            chosen = {"kubernetes.io/hostname": node}
            await cluster.run(python(name, SPEED, container=limits, nodeSelector=chosen))
            await cluster.log_until(name, ".")
        await cluster.faults.slow_node(name="n1", percent=25)
        await takes(cluster, "a", lambda longer: longer > 3)
        await takes(cluster, "b", lambda longer: longer < 3)
        chosen = {"kubernetes.io/hostname": "n1"}
        await cluster.run(python("later", SPEED, nodeSelector=chosen))
        await cluster.log_until("later", ".")
        await takes(cluster, "later", lambda longer: longer > 3)
        await cluster.api.delete("pods", "later", "default", grace_period_seconds=0)
        await cluster.faults.clear()
        await takes(cluster, "a", lambda longer: longer < 3)
        with pytest.raises(FaultError, match="percent"):
            await cluster.faults.slow_node(name="n1", percent=100)
        with pytest.raises(FaultError, match="no node"):
            await cluster.faults.slow_node(name="n9", percent=25)

    run(scenario, tmp_path, *TWO)


def test_cpu_limits_are_enforced_where_that_is_asked_for(tmp_path: Path) -> None:
    source = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass\n"
    source += "print(time.process_time())"
    limits = {"resources": {"limits": {"cpu": "200m"}}}

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source, container=limits))
        await cluster.ended("p")
        assert float(await cluster.log("p")) == pytest.approx(0.6, abs=0.2)

    run(scenario, tmp_path, enforces_cpu_limits=True)
