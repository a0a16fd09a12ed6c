"""What the scheduler knows of a cluster, as a what-if needs it."""

from __future__ import annotations

from penstock.scheduler.capacity.workload import workload_of
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.objects import Amounts
from tests.scheduler.planner.documents import GPU, job, node, pod

NOW = 1_800_000_000.0


def state() -> ClusterState:
    found = ClusterState()
    labelled = node("a", "8", 2)
    labelled["metadata"]["labels"] |= {"zone": "x", "rack": "7"}
    found.put_node(labelled)
    found.put_job(
        job(
            "j",
            gang={},
            strategy="AllReduce",
            signature={"model": "resnet"},
            roles={"ps": {"minReplicas": 2, "template": {}}},
        )
    )
    for rank in range(2):
        found.put_pod(pod(f"w{rank}", "2", 1, job="j", role="worker", rank=rank, on="a"), NOW)
    waits = pod("w2", "2", 1, job="j", role="worker", rank=2, nodeSelector={"zone": "x"})
    found.put_pod(waits, NOW)
    found.put_pod(pod("daemon", "500m", memory="2Gi", on="a"), NOW)
    found.put_pod(pod("other", "1", 1), NOW)
    return found


def test_pods_alike_are_one_group_and_what_others_hold_is_a_sum() -> None:
    found = workload_of(state())
    groups = {(one.job, one.role, one.node): one for one in found.pods}
    assert groups["uid-j", "worker", "a"].count == 2
    assert groups["uid-j", "worker", ""].count == 1
    assert groups["", "", ""].request.accelerators == 1, "a pod of no job waits, too"
    [one] = found.nodes
    assert (one.others, one.other_pods) == (Amounts(500, 2 * 1024**3), 1)
    assert one.node.allocatable.accelerators == ((GPU, 2),)


def test_of_labels_only_those_are_there_that_a_pod_asks_for() -> None:
    [one] = workload_of(state()).nodes
    assert one.node.labels == {"zone": "x"}


def test_a_job_comes_with_its_gang_and_what_jobs_like_it_have_in_common() -> None:
    known = workload_of(state()).jobs["uid-j"]
    assert (known.name, known.together, known.strategy) == ("j", 3, "AllReduce")
    assert known.signature == {"model": "resnet"}
