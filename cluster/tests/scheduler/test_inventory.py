"""The inventory equals a recount, whatever happened to nodes and pods in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.tests.scheduler.objects import node, pod
from penstock_cluster.scheduler.nodes.fit import refusal
from penstock_cluster.scheduler.nodes.inventory import Inventory, Occupant
from penstock_cluster.scheduler.placement import Placement
from penstock_cluster.scheduler.preemption import choose_preemption
from penstock_cluster.scheduler.score import score

NODES = st.sampled_from(["n1", "n2", "n3", "n4"])
PODS = st.integers(0, 11).map(lambda number: f"p{number}")
CPU = st.sampled_from([None, "250m", "1", "1500m", "3"])
MEMORY = st.sampled_from([None, "1Gi", "3Gi"])
ZONE = st.sampled_from(["a", "b"])


class BindingMachine(RuleBasedStateMachine):
    """Pods come, are placed where the binder says, push others out, and go; nodes too."""

    def __init__(self) -> None:
        super().__init__()
        self.inventory = Inventory()
        self.placement = Placement(self.inventory)
        self.nodes: dict[str, dict] = {}
        self.placed: dict[str, tuple[dict, str]] = {}
        self.shrunk: set[str] = set()

    @rule(name=NODES, cpu=st.sampled_from(["1", "2", "4"]), zone=ZONE, cordoned=st.booleans())
    def put_node(self, name: str, cpu: str, zone: str, cordoned: bool) -> None:
        self.nodes[name] = node(
            name, cpu=cpu, memory="4Gi", pods=3, labels={"zone": zone}, unschedulable=cordoned
        )
        self.inventory.put_node(self.nodes[name])
        if any(where == name for _, where in self.placed.values()):
            self.shrunk.add(name)

    @rule(name=NODES)
    def remove_node(self, name: str) -> None:
        self.inventory.remove_node(name)
        self.nodes.pop(name, None)

    @rule(
        name=PODS,
        cpu=CPU,
        memory=MEMORY,
        priority=st.integers(0, 2),
        zone=st.none() | ZONE,
    )
    def place(
        self, name: str, cpu: str | None, memory: str | None, priority: int, zone: str | None
    ) -> None:
        if name in self.placed:
            return
        selector = {"nodeSelector": {"zone": zone}} if zone else {}
        wanted = pod(name, cpu=cpu, memory=memory, priority=priority, **selector)
        occupant = Occupant.of(wanted)
        chosen = self.placement.choose(wanted, occupant)
        assert chosen == self._best_by_full_scan(wanted, occupant)
        if chosen is not None:
            self._bind(wanted, occupant, chosen)
            return
        preemption = choose_preemption(wanted, occupant, self.inventory)
        if preemption is None:
            return
        assert all(victim.priority < priority for victim in preemption.victims)
        for victim in preemption.victims:
            assert self.placed[victim.name][1] == preemption.node_name
            self.inventory.remove_pod(victim.uid)
            del self.placed[victim.name]
        # What was promised must hold: with the victims gone, the pod fits there.
        assert self.placement.refusals(wanted, occupant) is not None
        account = self.inventory.get(preemption.node_name)
        assert account is not None
        assert refusal(wanted, occupant, account) is None
        self._bind(wanted, occupant, preemption.node_name)

    def _bind(self, wanted: dict, occupant: Occupant, chosen: str) -> None:
        self.inventory.put_pod(occupant, chosen)
        self.placed[wanted["metadata"]["name"]] = (wanted, chosen)

    def _best_by_full_scan(self, wanted: dict, occupant: Occupant) -> str | None:
        fitting = [
            account for account in self.inventory if refusal(wanted, occupant, account) is None
        ]
        if not fitting:
            return None
        return min(fitting, key=lambda a: (-score(occupant.requests, a), a.name)).name

    @rule(name=PODS)
    def end(self, name: str) -> None:
        self.inventory.remove_pod(f"uid-{name}")
        self.placed.pop(name, None)

    @rule(name=PODS, cpu=CPU)
    def resize(self, name: str, cpu: str | None) -> None:
        if name not in self.placed:
            return
        old, where = self.placed[name]
        changed = pod(name, cpu=cpu, priority=old["spec"]["priority"])
        self.inventory.put_pod(Occupant.of(changed), where)
        self.placed[name] = (changed, where)
        self.shrunk.add(where)

    @invariant()
    def accounts_equal_a_recount(self) -> None:
        for account in self.inventory:
            here = [p for p, where in self.placed.values() if where == account.name]
            assert set(account.occupants) == {p["metadata"]["uid"] for p in here}
            for resource in ("cpu", "memory", "pods"):
                total = sum(Occupant.of(p).requests.get(resource, 0) for p in here)
                assert account.used.get(resource, 0) == total

    @invariant()
    def no_node_is_over_committed(self) -> None:
        for account in self.inventory:
            if account.name in self.shrunk:
                continue  # the node itself or one of its pods was resized under the binder
            assert all(account.free(resource) >= 0 for resource in account.allocatable)


BindingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBinding = BindingMachine.TestCase
