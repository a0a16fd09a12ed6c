"""Pods without processes, for load."""

from __future__ import annotations

from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, condition, pod, run, terminated, until
from penstock_cluster.nodes import NodeDeclaration


def test_pods_run_end_and_go_without_a_process(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(*(pod(f"p{i}", "sleep 60") for i in range(50)))
        for i in range(50):
            await cluster.ready(f"p{i}")
        addresses = {(await cluster.pod(f"p{i}"))["status"]["podIP"] for i in range(50)}
        assert len(addresses) == 50
        await cluster.kubelet.noop.finish(await cluster.pod("p0"))
        await cluster.kubelet.noop.finish(
            await cluster.pod("p1"), exit_code=137, reason="OOMKilled"
        )
        assert (await cluster.pod("p0"))["status"]["phase"] == "Succeeded"
        failed = await cluster.pod("p1")
        assert failed["status"]["phase"] == "Failed"
        assert terminated(failed)["reason"] == "OOMKilled"
        assert condition(failed, "Ready")["status"] == "False"
        await cluster.api.delete("pods", "p2", "default")
        await cluster.gone("p2")
        assert cluster.kubelet.runtime.shim_pid is None

    run(scenario, tmp_path, runs_processes=False)


def test_what_ended_makes_room(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        resources = {"resources": {"requests": {"cpu": "1"}}}
        await cluster.run(pod("first", container=resources), pod("second", container=resources))
        await cluster.ready("first")
        await cluster.kubelet.noop.finish(await cluster.pod("first"))

        async def runs() -> bool:
            return (await cluster.pod("second"))["status"].get("phase") == "Running"

        await until(runs, "the second pod runs")

    run(scenario, tmp_path, NodeDeclaration("n1", cpu="1"), runs_processes=False)
