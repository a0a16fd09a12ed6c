"""Machines: nothing above what a node has, groups whole or not at all, services first."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.request import Request
from penstock.sim.ps.jobs.model import GIB
from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.bills import Given
from penstock.sim.week.world.clock import Clock
from penstock.sim.week.world.cluster import CYCLE, Cluster, PlacedPod
from penstock.sim.week.world.services import Service, draw

ASSUMED = Assumptions(node_cores=8.0, node_gib=8.0, pod_cores=8.0, node_repair=100.0)


@dataclass
class Job:
    """Remembers what it is told."""

    placed_pods: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    lost_pods: list[tuple[str, str]] = field(default_factory=list)

    def placed(self, pods: list[PlacedPod]) -> None:
        self.placed_pods += [pod.uid for pod in pods]

    def unplaced(self, pod: PlacedPod) -> None:
        self.waiting.append(pod.uid)

    def lost(self, pod: PlacedPod, why: str) -> None:
        self.lost_pods.append((pod.uid, why))


def pod(uid: str, cores: float, owner: Job) -> PlacedPod:
    return PlacedPod(uid, "worker", 0, Request(round(1000 * cores), GIB), owner, 0.0, Given())


def run(clock: Clock, until: float) -> None:
    clock.run(until, lambda: True)
    clock.now = until


def test_a_group_is_placed_whole_or_not_at_all() -> None:
    clock = Clock()
    cluster, job = Cluster(1, clock, ASSUMED), Job()
    first = [pod("a", 6, job)]
    cluster.submit(first)
    cluster.submit([pod("b", 2, job), pod("c", 2, job)])
    run(clock, 1.0)
    assert job.placed_pods == ["a"]
    assert cluster.waiting == 2
    cluster.release(first[0])
    run(clock, 2 * CYCLE)
    assert job.placed_pods == ["a", "b", "c"]


def test_a_pod_waits_rather_than_have_a_node_that_it_avoids() -> None:
    clock = Clock()
    cluster, job = Cluster(2, clock, ASSUMED), Job()
    first, choosy, other = pod("a", 7, job), pod("b", 2, job), pod("c", 2, job)
    cluster.submit([first])
    run(clock, 1.0)
    free = "node-00001" if cluster.node_of(first) == "node-00000" else "node-00000"
    choosy.avoids = frozenset({free})
    cluster.submit([choosy])
    cluster.submit([other])
    run(clock, 2.0)
    assert (cluster.node_of(choosy), cluster.node_of(other)) == ("", free), "others do not wait"
    taken = cluster.node_of(first)
    cluster.release(first)
    run(clock, 2 * CYCLE)
    assert cluster.node_of(choosy) == taken


def test_who_waits_is_told_once() -> None:
    clock = Clock()
    cluster, job = Cluster(1, clock, ASSUMED), Job()
    first, second = [pod("a", 6, job)], [pod("b", 1, job)]
    cluster.submit(first)
    cluster.submit([pod("c", 4, job), pod("d", 4, job)])
    cluster.submit(second)
    run(clock, 1.0)
    cluster.release(second[0])
    run(clock, 2 * CYCLE)
    assert job.waiting == ["c", "d"]
    cluster.release(first[0])
    run(clock, 4 * CYCLE)
    assert job.placed_pods == ["a", "b", "c", "d"]


@pytest.mark.parametrize("seed", range(20))
def test_a_group_waits_only_where_placing_it_pod_by_pod_fails(seed: int) -> None:
    rng, clock = np.random.default_rng(seed), Clock()
    cluster, job = Cluster(4, clock, ASSUMED), Job()
    for number in range(8):
        cluster.submit([pod(f"single-{number}", float(rng.integers(1, 5)), job)])
    cluster.table.set_schedulable(int(rng.integers(4)), False)
    run(clock, 1.0)
    large, small = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    group = [pod(f"large-{number}", 3, job) for number in range(large)]
    group += [pod(f"small-{number}", 1, job) for number in range(small)]
    free = cluster.table.free_milli_cpu.copy()
    rows: list[int] = []
    placer = Placer(cluster.table, make_policy("spread", Context(np.random.default_rng(0), {})))
    for one in group:
        found = placer.place(one.request)
        if found is None:
            break
        rows.append(found.row)
    for row, one in zip(rows, group, strict=False):
        cluster.table.give(row, one.request)
    assert (cluster.table.free_milli_cpu == free).all()
    cluster.submit(group)
    run(clock, 2.0)
    assert [one.row for one in group] == (rows if len(rows) == len(group) else [-1] * len(group))
    if len(rows) < len(group):
        assert (cluster.table.free_milli_cpu == free).all()


def test_what_nodes_gave_is_what_pods_were_given() -> None:
    clock = Clock()
    cluster, job = Cluster(2, clock, ASSUMED), Job()
    pods = [pod(str(number), 3, job) for number in range(4)]
    cluster.submit(pods)
    run(clock, 10.0)
    assert cluster.resize(pods[0], Request(4000, GIB))
    assert not cluster.resize(pods[0], Request(9000, GIB))
    assert pods[0].request.milli_cpu == 4000
    for number, one in enumerate(pods):
        run(clock, 20.0 + 10 * number)
        cluster.release(one)
    assert cluster.totals.core_seconds == pytest.approx(cluster.node_core_seconds)
    assert cluster.totals.core_seconds == pytest.approx(3 * (20 + 30 + 40 + 50) + 10)
    assert cluster.table.free_milli_cpu.tolist()[:2] == [8000, 8000]


def test_a_service_takes_the_place_of_the_fewest_pods() -> None:
    clock = Clock()
    cluster, job = Cluster(2, clock, ASSUMED), Job()
    cluster.submit([pod("large", 8, job)])
    cluster.submit([pod("small", 4, job)])
    cluster.submit([pod("other", 4, job)])
    run(clock, 1.0)
    cluster.start_service(Service(1.0, 50.0, Request(4000, GIB)))
    assert len(job.lost_pods) == 1
    assert job.lost_pods[0][1] == "Preempted"
    assert cluster.totals.preempted == 1
    cluster.start_service(Service(1.0, 50.0, Request(9000, GIB)))
    assert cluster.totals.services_refused == 1
    run(clock, 60.0)
    assert cluster.table.free_milli_cpu.sum() == 16_000 - cluster.given_milli_cpu


def test_a_lost_node_comes_back() -> None:
    clock = Clock()
    cluster, job = Cluster(1, clock, ASSUMED), Job()
    cluster.submit([pod("a", 8, job)])
    run(clock, 1.0)
    cluster.lose_node(0)
    assert job.lost_pods == [("a", "NodeLost")]
    cluster.submit([pod("b", 8, job)])
    run(clock, 50.0)
    assert "b" in job.waiting
    run(clock, 200.0)
    assert job.placed_pods == ["a", "b"]


def test_services_hold_the_share_that_is_assumed() -> None:
    assumed = Assumptions()
    services = draw(20_000.0, 0, assumed, None)
    standing = sum(one.request.milli_cpu for one in services if one.start == 0.0) / 1000
    assert standing == pytest.approx(20_000 * assumed.services_share, rel=0.05)
    assert [one.start for one in services] == sorted(one.start for one in services)
