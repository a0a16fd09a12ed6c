"""The binder on a cluster: what it binds, what it leaves, what it says, whom it removes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, condition, pod, run, until
from penstock_cluster.nodes import NodeDeclaration

SMALL = (NodeDeclaration("n1", cpu="2"), NodeDeclaration("n2", cpu="2"))


def asking(name: str, cpu: str, script: str = "sleep 60", **spec) -> dict:
    return pod(name, script, container={"resources": {"requests": {"cpu": cpu}}}, **spec)


async def unschedulable(cluster: Cluster, name: str) -> str:
    found = await cluster.pod_until(
        name,
        lambda p: any(
            each["type"] == "PodScheduled" and each["status"] == "False"
            for each in p["status"].get("conditions") or ()
        ),
        "is unschedulable",
    )
    scheduled = condition(found, "PodScheduled")
    assert scheduled["reason"] == "Unschedulable"
    return str(scheduled["message"])


def test_pods_are_spread_and_the_one_too_many_waits_for_room(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(*(asking(f"p{i}", "1500m") for i in range(3)))
        message = await unschedulable(cluster, "p2")
        assert message.startswith("0/2 nodes are available: 2 Insufficient cpu. preemption: ")
        nodes = {(await cluster.ready(name))["spec"]["nodeName"] for name in ("p0", "p1")}
        assert nodes == {"n1", "n2"}
        assert "FailedScheduling" in await cluster.events("p2")
        await cluster.api.delete("pods", "p0", "default")
        bound = await cluster.ready("p2")
        assert condition(bound, "PodScheduled")["status"] == "True"

    run(scenario, tmp_path, *SMALL)


def test_a_new_node_is_used_at_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        await cluster.run(pod(script="sleep 60", container=gpu))
        message = await unschedulable(cluster, "p")
        assert "1 Insufficient nvidia.com/gpu" in message
        node = NodeDeclaration("gpu", accelerators={"nvidia.com/gpu": 2})
        await cluster.kubelet.add_node(node)
        assert (await cluster.ready("p"))["spec"]["nodeName"] == "gpu"

    run(scenario, tmp_path)


def test_a_gated_pod_is_left_alone_until_it_is_released_and_pinned(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        gate = {"name": "penstock.dev/placement"}
        await cluster.run(asking("p", "1", schedulingGates=[gate]))
        await asyncio.sleep(0.3)
        gated = await cluster.pod("p")
        assert not gated["spec"].get("nodeName")
        assert condition(gated, "PodScheduled")["reason"] == "SchedulingGated"
        field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
        terms = [{"matchFields": [field]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        change = {"spec": {"schedulingGates": None, "affinity": {"nodeAffinity": required}}}
        await cluster.api.patch("pods", "p", change, "default")
        assert (await cluster.ready("p"))["spec"]["nodeName"] == "n2"

    run(scenario, tmp_path, *SMALL)


def test_another_schedulers_pods_are_left_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod("other", schedulerName="mine"), pod("ours"))
        await cluster.ended("ours")
        assert not (await cluster.pod("other"))["spec"].get("nodeName")

    run(scenario, tmp_path)


async def add_class(cluster: Cluster, name: str, value: int, **more: str) -> None:
    wanted = {"metadata": {"name": name}, "value": value, **more}
    await cluster.api.create("priorityclasses.scheduling.k8s.io", wanted)


def test_the_more_important_pod_pushes_the_least_important_out(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for name, value in (("spare", -10), ("middle", 5), ("high", 100)):
            await add_class(cluster, name, value)
        await cluster.run(
            asking("spare", "2", priorityClassName="spare"),
            asking("middle", "2", priorityClassName="middle"),
        )
        await cluster.ready("spare")
        await cluster.ready("middle")
        async with cluster.api.watch("pods", "default") as events:
            await cluster.run(asking("high", "1", priorityClassName="high"))
            last: dict[str, dict] = {}
            async for event in events:
                last[event.object["metadata"]["name"]] = event.object
                if event.type == "DELETED":
                    break
        target = condition(last["spare"], "DisruptionTarget")
        assert target["reason"] == "PreemptionByScheduler"
        assert last["high"]["status"]["nominatedNodeName"] == last["spare"]["spec"]["nodeName"]
        high = await cluster.ready("high")
        assert high["spec"]["nodeName"] == last["spare"]["spec"]["nodeName"]
        assert (await cluster.pod("middle"))["status"]["phase"] == "Running"
        assert "Preempted" in await cluster.events("spare")

    run(scenario, tmp_path, *SMALL)


def test_who_may_not_preempt_waits(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await add_class(cluster, "patient", 100, preemptionPolicy="Never")
        await cluster.run(asking("a", "2"))
        await cluster.ready("a")
        await cluster.run(asking("patient", "2", priorityClassName="patient"))
        message = await unschedulable(cluster, "patient")
        assert "not eligible due to preemptionPolicy=Never" in message
        assert (await cluster.pod("a"))["status"]["phase"] == "Running"

    run(scenario, tmp_path, SMALL[0])


def test_no_more_pods_are_removed_while_victims_are_on_their_way_out(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await add_class(cluster, "high", 100)
        stubborn = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
        await cluster.run(*(asking(f"v{i}", "2", stubborn) for i in range(2)))
        for i in range(2):
            await cluster.log_until(f"v{i}", "deaf")
        await cluster.run(asking("high", "2", priorityClassName="high"))
        await cluster.ready("high")
        pods = await cluster.api.list("pods", "default")
        victims = [each for each in pods.items if each["metadata"]["name"].startswith("v")]
        # The one that was removed has ended: it may be there for a moment yet.
        left = [each for each in victims if not each["metadata"].get("deletionTimestamp")]
        assert len(left) == 1

    run(scenario, tmp_path, *SMALL)


def test_the_important_go_first_when_room_comes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await add_class(cluster, "high", 100, preemptionPolicy="Never")
        await cluster.run(asking("first", "2"))
        await cluster.ready("first")
        await cluster.run(asking("low", "2"), asking("high", "2", priorityClassName="high"))
        await unschedulable(cluster, "low")
        await unschedulable(cluster, "high")
        await cluster.api.delete("pods", "first", "default")
        await cluster.ready("high")
        assert not (await cluster.pod("low"))["spec"].get("nodeName")

    run(scenario, tmp_path, SMALL[0])


def test_who_names_the_node_himself_is_rejected_by_the_kubelet(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(asking("a", "1500m"))
        await cluster.ready("a")
        await cluster.run(asking("b", "1", nodeName="n1"))
        rejected = await cluster.ended("b")
        assert rejected["status"]["reason"] == "OutOfcpu"
        assert rejected["status"]["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 1, "
            "used: 1500m, capacity: 2"
        )

    run(scenario, tmp_path, SMALL[0])


def test_many_pods_never_over_commit_a_node(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(*(asking(f"p{i}", "300m") for i in range(40)))

        async def settled() -> bool:
            pods = (await cluster.api.list("pods")).items
            bound = sum(bool(each["spec"].get("nodeName")) for each in pods)
            told = sum(bool(each["status"].get("conditions")) for each in pods)
            return bound == 12 and told == 40

        await until(settled, "as many as fit are bound")

    run(scenario, tmp_path, *SMALL, runs_processes=False)
