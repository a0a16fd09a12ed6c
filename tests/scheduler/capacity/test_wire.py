"""A workload on its way to the Brain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.capacity.wire import read, written
from penstock.scheduler.capacity.workload import PodGroup, workload_of
from penstock.scheduler.objects import Amounts, Taint
from penstock.scheduler.request import Constraints, Expression, Request, Term, Toleration
from penstock.wire.workload import MAX_POD_GROUPS, MAX_WORKLOAD_NODES, Workload
from tests.scheduler.capacity.clusters import GPU, cluster, hosted, pods
from tests.scheduler.capacity.test_workload import state

EXPRESSION = Expression("zone", "In", ("a", "b"))
CONSTRAINTS = st.sampled_from(
    [
        Constraints(),
        Constraints(node_selector=(("a", "1"), ("b", "2"))),
        Constraints(affinity=(Term((EXPRESSION,), ()), Term((), (EXPRESSION,)))),
        Constraints(affinity=(), tolerations=(Toleration("k", "Exists", "", "NoSchedule"),)),
    ]
)
GROUPS = st.builds(
    lambda job, count, gpus, constraints: PodGroup(
        job=job,
        role="worker",
        node="",
        request=Request(
            milli_cpu=1500,
            memory_bytes=7,
            accelerators=gpus,
            accelerator_kinds=(GPU,) if gpus else (),
            constraints=constraints,
        ),
        count=count,
        priority=-5,
        created_seconds=3.0,
    ),
    st.sampled_from(["", "j", "k"]),
    st.integers(1, 9),
    st.integers(0, 3),
    CONSTRAINTS,
)


@given(st.lists(GROUPS, max_size=5))
def test_what_is_read_is_what_was_written(groups: list[PodGroup]) -> None:
    there = [hosted("a", 8, 2, labels={"zone": "a"}, others=Amounts(5, 6), other_pods=2)]
    workload = cluster(there, *groups, j=2)
    sent = Workload.model_validate_json(written(workload, 5.0, "fgd").model_dump_json())
    assert read(sent) == workload
    assert (sent.time, sent.placement, sent.left_out) == (5.0, "fgd", 0)


def test_what_the_scheduler_knows_arrives_whole() -> None:
    known = workload_of(state())
    assert read(written(known, 1.0, "stranding")) == known


def test_a_huge_cluster_is_cut_and_this_is_said_within_the_largest_body() -> None:
    nodes = [hosted(f"node-{index:05}.of.a.cluster.example", 96, 8) for index in range(2000)]
    groups = [
        pods(
            f"00000000-0000-0000-0000-{index % 900:012}", 8, on=nodes[index].node.name, cores=index
        )
        for index in range(2000)
    ]
    groups += [pods("waits", 1, cores=1 + index) for index in range(500)]
    sent = written(cluster(nodes, *groups), 1.0, "stranding")
    assert (len(sent.nodes), len(sent.pods)) == (MAX_WORKLOAD_NODES, MAX_POD_GROUPS)
    assert sent.left_out == 500 + 500
    assert len(sent.model_dump_json(exclude_defaults=True)) < 1024**2


def test_taints_arrive() -> None:
    one = hosted("a")
    tainted = one.node.__class__("a", one.node.allocatable, taints=(Taint("k", "v", "NoExecute"),))
    workload = cluster([one.__class__(node=tainted)])
    assert read(written(workload, 1.0, "fgd")) == workload
