"""Whatever happens, in whatever order: nothing is over-committed and nothing waits for ever.

``PENSTOCK_PLANNER_RUNS`` is how many interleavings are tried, of up to 40 steps each.
"""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.planner.preemption import PATIENCE_SECONDS
from tests.scheduler.planner.world import World
from tests.scheduler.snapshots import state

RUNS = int(os.environ.get("PENSTOCK_PLANNER_RUNS", "120"))
NODES = st.sampled_from(["n1", "n2", "n3"])


class PlannerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.put_node("n1", 4, 1, False)
        self.world.put_node("n2", 2, 0, False)

    @rule(name=NODES, cpu=st.integers(0, 6), gpus=st.integers(0, 2), cordoned=st.booleans())
    def node_event(self, name: str, cpu: int, gpus: int, cordoned: bool) -> None:
        held = self.world.free(name) if name in self.world.nodes else None
        if held is not None:  # a node does not shrink under its pods
            given = self.world.nodes[name]["status"]["allocatable"]
            cpu, gpus = int(given["cpu"]), int(given.get("nvidia.com/gpu", 0))
        self.world.put_node(name, cpu, gpus, cordoned)

    @rule(name=NODES)
    def node_fails(self, name: str) -> None:
        self.world.remove_node(name)

    @rule(cpu=st.integers(0, 4), gpus=st.integers(0, 1))
    def data_worker_arrives(self, cpu: int, gpus: int) -> None:
        if len(self.world.pods) < 12:
            self.world.create(cpu, gpus, gated=True)

    @rule(cpu=st.integers(0, 4), gpus=st.integers(0, 2))
    def other_pod_arrives(self, cpu: int, gpus: int) -> None:
        if len(self.world.pods) < 12:
            self.world.create(cpu, gpus, gated=False)

    @rule(data=st.data(), ends=st.booleans())
    def pod_goes(self, data: st.DataObject, ends: bool) -> None:
        if self.world.pods:
            name = data.draw(st.sampled_from(sorted(self.world.pods)))
            (self.world.end if ends else self.world.remove_pod)(name)

    @rule()
    def kube_scheduler_works(self) -> None:
        self.world.schedule()

    @rule(nodes=st.integers(0, 4), pods=st.integers(0, 6))
    def events_arrive(self, nodes: int, pods: int) -> None:
        self.world.deliver(nodes, pods)

    @rule(applied=st.booleans(), answered=st.booleans(), late=st.booleans())
    def planner_works(self, applied: bool, answered: bool, late: bool) -> None:
        if not late:
            self.world.deliver(1000, 1000)
        self.world.plan(applied=applied, answered=answered)

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def planner_is_started_anew(self) -> None:
        self.world.restart()

    @invariant()
    def no_node_is_over_committed(self) -> None:
        for name in self.world.nodes:
            assert min(self.world.free(name)) >= 0

    @invariant()
    def reservations_are_bounded_in_time(self) -> None:
        held = self.world.planner.state.snapshot.reservations.values()
        assert all(one.expires_seconds <= self.world.now + PATIENCE_SECONDS for one in held)

    @invariant()
    def what_the_planner_knows_is_what_a_relist_says(self) -> None:
        world = self.world
        if world.node_events or world.pod_events:
            return
        own, fresh = world.planner.state, ClusterState()
        world.relist(fresh)
        for index in ("pods", "gated", "pinned", "waiting", "of_job", "data_workers_on"):
            assert getattr(own, index) == getattr(fresh, index), index
        for reservation in list(fresh.snapshot.reservations):
            fresh.snapshot.release(reservation)
        for reservation in own.snapshot.reservations.values():
            fresh.snapshot.reserve(reservation)
        for name, until in own.snapshot.eligibility.shunned.items():
            fresh.snapshot.shun(name, until)
        assert state(own.snapshot) == state(fresh.snapshot)

    def teardown(self) -> None:
        """Left alone with a kube-scheduler and a planner that work, everything comes to rest."""
        world = self.world
        for _ in range(12):
            world.deliver(1000, 1000)
            world.plan(applied=True, answered=True)
            world.schedule()
            world.now += 31.0
        world.deliver(1000, 1000)
        world.planner.state.snapshot.expire(world.now)
        for name, document in world.pods.items():
            if document["spec"].get("schedulingGates") and not _ended(document):
                rooms = [one for one in world.nodes if world.fits(document, one)]
                clear = {node for node, _ in world.planner.room.made.values()}
                assert not set(rooms) - clear, f"{name} stays gated, but there is room on {rooms}"
        assert not world.planner.state.pinned, "a pin in vain is given up"
        waiting = set(world.planner.state.pods)
        assert set(world.planner.state.snapshot.reservations) <= waiting
        super().teardown()


def _ended(document: dict[str, object]) -> bool:
    # JSON data, nested as the status is.
    return document["status"]["phase"] == "Succeeded"  # type: ignore[index,no-any-return]


TestPlanner = PlannerMachine.TestCase
TestPlanner.settings = settings(max_examples=RUNS, stateful_step_count=40, deadline=None)
