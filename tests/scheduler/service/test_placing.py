"""The planner on an embedded cluster: gated pods are pinned, and kube-scheduler binds them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock_cluster.nodes import NodeDeclaration
from tests.scheduler.service.plane import GPU, Plane, plane, pod, until

GPU_NODES = (
    NodeDeclaration("gpu-a", cpu="8", memory="8Gi", accelerators={GPU: 4}),
    NodeDeclaration("gpu-b", cpu="8", memory="8Gi", accelerators={GPU: 4}),
)


async def bound(cluster: Plane, name: str) -> str:
    where: str = await until(f"{name} is bound", lambda: cluster.node_of(name))
    return where


def test_a_gated_pod_goes_where_fragmentation_says_and_people_are_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with plane(tmp_path, *GPU_NODES) as cluster:
            await cluster.create(pod("busy", "1", 4))
            busy = await bound(cluster, "busy")
            async with cluster.planner() as loop:
                await cluster.create(pod("data", "4", gated=True))
                assert await bound(cluster, "data") == busy
                placed = await cluster.get("data")
                assert placed["metadata"]["annotations"]["penstock.dev/placement-node"] == busy

                async def told() -> str:
                    events = await cluster.api.list("events", "default")
                    return next((e["message"] for e in events.items if e["reason"] == "Placed"), "")

                message = await until("an Event says why", told)
                assert f"node {busy}" in message
                assert "next best" in message

                async def released() -> bool:
                    return not loop.planner.state.snapshot.reservations

                await until("the reservation is released", released)

    asyncio.run(story())


def test_only_our_gate_is_removed_and_every_term_is_narrowed(tmp_path: Path) -> None:
    async def story() -> None:
        async with plane(tmp_path, *GPU_NODES) as cluster, cluster.planner():
            terms = [
                {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["q"]}]},
            ]
            required = {"nodeSelectorTerms": terms}
            affinity = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            }
            document = pod("data", "1", gated=True, affinity=affinity)
            document["spec"]["schedulingGates"].append({"name": "example.org/quota"})
            await cluster.create(document)

            async def pinned() -> bool:
                gates = (await cluster.get("data"))["spec"].get("schedulingGates") or []
                return gates == [{"name": "example.org/quota"}]

            await until("our gate is gone", pinned)
            found = (await cluster.get("data"))["spec"]["affinity"]["nodeAffinity"]
            narrowed = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            assert len(narrowed) == 2
            for term in narrowed:
                assert term["matchFields"][-1]["operator"] == "In"

    asyncio.run(story())


def test_what_fits_nowhere_stays_gated_until_it_fits(tmp_path: Path) -> None:
    async def story() -> None:
        small = NodeDeclaration("small", cpu="2", memory="8Gi")
        async with plane(tmp_path, small) as cluster, cluster.planner():
            await cluster.create(pod("data", "4", gated=True), pod("other", "1", gated=True))
            await bound(cluster, "other")
            assert (await cluster.get("data"))["spec"]["schedulingGates"]
            await cluster.cluster.kubelet.add_node(NodeDeclaration("large", cpu="8", memory="8Gi"))
            assert await bound(cluster, "data") == "large"

    asyncio.run(story())


def test_a_planner_that_comes_later_finds_what_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with plane(tmp_path, *GPU_NODES) as cluster:
            await cluster.create(*(pod(f"d{i}", "1", gated=True) for i in range(5)))
            async with cluster.planner():
                await bound(cluster, "d0")
            await cluster.create(pod("late", "1", gated=True))
            async with cluster.planner() as second:
                for name in ("d1", "d2", "d3", "d4", "late"):
                    await bound(cluster, name)

                async def none_waits() -> bool:
                    return not second.planner.state.gated

                await until("the planner has seen them bound", none_waits)

    asyncio.run(story())


def test_a_pin_that_cannot_be_bound_is_deleted(tmp_path: Path) -> None:
    """The planner's picture is wrong: it believes that a cordoned node takes pods."""

    async def story() -> None:
        async with plane(tmp_path, *GPU_NODES[:1]) as cluster:
            await cluster.create(pod("data", "1", gated=True))
            async with cluster.planner() as loop:
                await bound(cluster, "data")
                document = pod("stuck", "1")
                document["metadata"]["labels"] = pod("x", "1", gated=True)["metadata"]["labels"]
                document["metadata"]["annotations"] = {
                    "penstock.dev/placement-node": "gone",
                    "penstock.dev/placement-time": "1.0",
                }
                document["spec"]["nodeSelector"] = {"no": "where"}
                await cluster.create(document)

                async def deleted() -> bool:
                    pods = await cluster.api.list("pods", "default")
                    return all(one["metadata"]["name"] != "stuck" for one in pods.items)

                await until("the pin in vain is deleted", deleted)
                assert "gone" in loop.planner.state.snapshot.eligibility.shunned

    asyncio.run(story())
