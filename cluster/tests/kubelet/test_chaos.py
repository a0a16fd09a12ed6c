"""Whatever happens to pods in whatever order, nothing is left of them and the books are even."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from cluster.tests.kubelet.clusters import Cluster, is_running, pod, run, until
from penstock_cluster.faults.catalogue import FaultError
from penstock_cluster.nodes import NodeDeclaration
from penstock_cluster.registry import ApiError

NODES = (NodeDeclaration("n1", cpu="4"), NodeDeclaration("n2", cpu="4"))
SCRIPTS = ("exit 0", "exit 1", "sleep 0.2", "sleep 60", "trap '' TERM; sleep 60", "sleep 60 & wait")
POLICIES = ("Always", "OnFailure", "Never")


def some_pod(number: int, choices: random.Random) -> dict:
    resources = {"requests": {"cpu": choices.choice(["100m", "500m", "2"])}}
    return pod(
        f"p{number}",
        choices.choice(SCRIPTS),
        container={"resources": resources},
        restartPolicy=choices.choice(POLICIES),
        terminationGracePeriodSeconds=choices.choice([0, 1]),
        volumes=[{"name": "v", "emptyDir": {}}],
    )


async def disturb(cluster: Cluster, name: str, choices: random.Random) -> None:
    faults = cluster.faults
    fault = choices.choice(
        [
            lambda: faults.kill_container(name=name),
            lambda: faults.oom_kill_container(name=name),
            lambda: faults.freeze_container(name=name),
            lambda: faults.evict_pod(name=name),
            lambda: faults.preempt_pod(name=name),
            lambda: faults.lose_processes(name=name),
            lambda: faults.delete_pod(name=name),
            lambda: faults.delete_pod(name=name, grace_seconds=0),
            lambda: faults.lose_node(name="n2"),
            lambda: faults.lose_node(name="n2", processes_survive=True),
            lambda: faults.return_node(name="n2"),
        ]
    )
    # It may be gone already, or not running.
    with contextlib.suppress(FaultError, ApiError):
        await fault()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_left(tmp_path: Path, seed: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        choices = random.Random(seed)
        pids: set[int] = set()
        for number in range(24):
            await cluster.run(some_pod(number, choices))
            for _ in range(2):
                await disturb(cluster, f"p{choices.randrange(number + 1)}", choices)
            for worker in cluster.kubelet.workers.values():
                pids |= {each.running.pid for each in worker.runners.values() if each.running}
            await asyncio.sleep(choices.random() * 0.1)
        await cluster.faults.return_node(name="n2")
        await cluster.api.delete_collection("pods", "default")

        async def all_gone() -> bool:
            return not (await cluster.api.list("pods")).items

        await until(all_gone, "all pods are gone", 30)

        async def even() -> bool:
            kubelet = cluster.kubelet
            cores = kubelet.services.cores
            return (
                not kubelet.workers
                and not any(map(is_running, pids))
                and all(cores.claimed(core) == 0 for core in kubelet.options.cores)
                and all(node.used == {} for node in kubelet.nodes.values())
                and not any(account.occupants for account in cluster.binder.inventory)
                and not [each for each in (tmp_path / "pods").iterdir() if each.is_dir()]
            )

        await until(even, "the books are even", 10)
        assert pids

    run(scenario, tmp_path, *NODES)
