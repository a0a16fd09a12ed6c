"""A cluster with a database is stopped and started again: nothing is adopted, nothing is lost."""

from __future__ import annotations

from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, is_running, pod, run, terminated


def test_pods_that_ran_are_marked_failed(tmp_path: Path) -> None:
    pids: list[int] = []
    database = tmp_path / "state.sqlite"

    async def first(cluster: Cluster) -> None:
        await cluster.run(pod("ran", f"echo $$$$ > {tmp_path}/pid; sleep 60"))
        await cluster.run(pod("ended", "exit 0"), pod("large", nodeSelector={"no": "such"}))
        await cluster.ready("ran")
        await cluster.ended("ended")
        while not (text := read(tmp_path / "pid")):
            await cluster.ready("ran")
        pids.append(int(text))

    async def second(cluster: Cluster) -> None:
        lost = await cluster.ended("ran")
        assert lost["status"]["phase"] == "Failed"
        assert terminated(lost)["reason"] == "ContainerStatusUnknown"
        assert (await cluster.pod("ended"))["status"]["phase"] == "Succeeded"
        assert not (await cluster.pod("large"))["spec"].get("nodeName")
        await cluster.run(pod("new", "exit 0"))
        await cluster.ended("new")

    run(first, tmp_path, database=database)
    assert not is_running(pids[0])
    run(second, tmp_path, database=database)


def read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
