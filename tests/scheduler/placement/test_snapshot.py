"""The snapshot after any events equals a relist, and placing never over-commits what it sees."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.scheduler.objects import Amounts, Node, Pod
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.holdings import Reservation
from penstock.scheduler.placement.snapshot import RESERVATION_SECONDS, Snapshot
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import Request, Taint
from tests.scheduler.snapshots import relisted, state

GPU = "nvidia.com/gpu"
NAMES = st.sampled_from(["n1", "n2", "n3"])
UIDS = st.sampled_from([f"p{index}" for index in range(6)])
GPUS = st.integers(0, 3).map(lambda count: ((GPU, count),) if count else ())
AMOUNTS = st.builds(Amounts, st.integers(0, 6000), st.integers(0, 100), GPUS)
NODES = st.builds(
    Node,
    NAMES,
    st.builds(Amounts, st.integers(0, 16_000), st.integers(0, 400), GPUS),
    taints=st.sampled_from([(), (Taint("k"),)]),
    cordoned=st.booleans(),
)


def placer_of(snapshot: Snapshot) -> Placer:
    return Placer(snapshot.columns, Stranding(), eligible=snapshot.eligible)


class SnapshotMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot()
        self.placer = placer_of(self.snapshot)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.reserved: dict[str, Reservation] = {}
        self.now = 0.0
        self.asked = 0

    @rule(node=NODES)
    def node_event(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.snapshot.upsert_node(node)

    @rule(name=NAMES)
    def node_deleted(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.snapshot.remove_node(name)

    @rule(uid=UIDS, node=st.one_of(st.none(), NAMES), held=AMOUNTS, terminal=st.booleans())
    def pod_event(self, uid: str, node: str | None, held: Amounts, terminal: bool) -> None:
        pod = Pod(uid, node, held, terminal)
        self.pods[uid] = pod
        if node is not None or terminal:
            self.reserved.pop(uid, None)
        self.snapshot.upsert_pod(pod)

    @rule(uid=UIDS)
    def pod_deleted(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.reserved.pop(uid, None)
        self.snapshot.remove_pod(uid)

    @rule(cpu=st.integers(0, 4000), gpus=st.integers(0, 2))
    def place(self, cpu: int, gpus: int) -> None:
        self.asked += 1
        uid = f"new-{self.asked}"
        kinds = (GPU,) if gpus else ()
        request = Request(cpu, 10, gpus, accelerator_kinds=kinds)
        before = {name: values[2] for name, values in state(self.snapshot).items()}
        placement = self.snapshot.place(self.placer, uid, request, self.now)
        if placement is None:
            return
        node = self.nodes[placement.node]
        assert not node.cordoned
        assert not node.taints
        assert before[placement.node] >= cpu
        row = self.snapshot.columns.row(placement.node)
        assert self.snapshot.columns.free_milli_cpu[row] == before[placement.node] - cpu
        self.reserved[uid] = self.snapshot.reservations[uid]

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        over = {held.uid for held in self.snapshot.expire(self.now)}
        for uid, held in list(self.reserved.items()):
            assert (held.expires_seconds <= self.now) == (uid in over)
            if uid in over:
                del self.reserved[uid]

    @invariant()
    def equals_a_relist(self) -> None:
        fresh = relisted(self.nodes.values(), self.pods.values(), self.reserved.values())
        assert state(self.snapshot) == state(fresh)
        assert dict(self.snapshot.reservations) == self.reserved

    @invariant()
    def equals_the_model(self) -> None:
        held = dict.fromkeys(self.nodes, 0)
        for pod in self.pods.values():
            if pod.node in held and not pod.terminal:
                held[pod.node] += pod.held.milli_cpu
        for reservation in self.reserved.values():
            if reservation.node in held:
                held[reservation.node] += reservation.held.milli_cpu
        for name, node in self.nodes.items():
            free = self.snapshot.columns.free_milli_cpu[self.snapshot.columns.row(name)]
            assert free == node.allocatable.milli_cpu - held[name]


TestSnapshot = SnapshotMachine.TestCase
TestSnapshot.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_reservation_outlives_its_seconds_by_nothing() -> None:
    snapshot = relisted([Node("n", Amounts(4000))])
    placer = placer_of(snapshot)
    assert snapshot.place(placer, "a", Request(4000), 100.0) is not None
    assert snapshot.place(placer, "b", Request(1), 100.0) is None
    assert snapshot.expire(100.0 + RESERVATION_SECONDS - 0.1) == []
    assert [held.uid for held in snapshot.expire(100.0 + RESERVATION_SECONDS)] == ["a"]
    assert snapshot.place(placer, "b", Request(4000), 131.0) is not None


def test_a_pod_counts_once_when_it_takes_its_reservation_up() -> None:
    snapshot = relisted([Node("n", Amounts(4000))])
    snapshot.place(placer_of(snapshot), "a", Request(3000), 0.0)
    snapshot.upsert_pod(Pod("a", "n", Amounts(3000)))
    assert snapshot.columns.free_milli_cpu[0] == 1000
    assert not snapshot.reservations


def test_pods_that_came_before_their_node_count_when_it_comes() -> None:
    snapshot = Snapshot()
    snapshot.upsert_pod(Pod("a", "n", Amounts(3000)))
    snapshot.upsert_node(Node("n", Amounts(2000)))
    assert snapshot.columns.free_milli_cpu[snapshot.columns.row("n")] == -1000
    assert snapshot.place(placer_of(snapshot), "b", Request(1), 0.0) is None
