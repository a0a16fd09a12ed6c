"""What a change of the nodes does to the jobs that run and wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.capacity.change import Change, failed, resized
from penstock.scheduler.capacity.outlook import JobOutlook, Outlook, outlook
from penstock.scheduler.capacity.workload import PodGroup, Workload
from penstock.scheduler.objects import Amounts
from tests.scheduler.capacity.clusters import cluster, hosted, pods


def of(found: Outlook, uid: str) -> JobOutlook:
    [job] = [one for one in found.jobs if one.uid == uid]
    return job


def test_a_job_that_waits_starts_on_new_nodes_and_one_that_fits_anyway_is_not_counted() -> None:
    workload = cluster(
        [hosted("a", 8, 2), hosted("b", 8, 2)],
        pods("full", 2, on="a"),
        pods("fits", 2),
        pods("waits", 2, created_seconds=5.0),
    )
    found = outlook(workload, resized(workload, 1))
    assert not of(found, "fits").changes
    assert of(found, "fits").after == {"worker": 2}
    assert (of(found, "waits").before, of(found, "waits").after) == ({}, {"worker": 2})
    assert (found.before.waiting_pods, found.after.waiting_pods) == (2, 0)
    assert (found.before.accelerators, found.after.accelerators) == (4, 6)


def test_pods_of_a_failed_node_go_where_they_fit_before_those_that_have_waited_less() -> None:
    workload = cluster(
        [hosted("a", 8, 2), hosted("b", 8, 2)],
        pods("old", 2, on="a", created_seconds=1.0),
        pods("young", 2, created_seconds=9.0),
    )
    found = outlook(workload, failed(workload, "a"))
    old, young = of(found, "old"), of(found, "young")
    assert (old.lost, old.after) == ({"worker": 2}, {"worker": 2})
    assert (young.before, young.after) == ({"worker": 2}, {}), "its place is taken"
    assert found.after.nodes == 1


def test_a_pod_goes_only_to_nodes_that_its_selector_allows() -> None:
    workload = cluster(
        [hosted("a", 8, 2, labels={"zone": "x"}), hosted("b", 8, 2, labels={"zone": "y"})],
        pods("j", 1, on="a", zone="x"),
    )
    assert of(outlook(workload, failed(workload, "a")), "j").after == {}
    assert of(outlook(workload, failed(workload, "b")), "j").changes is False


def test_a_gang_starts_as_a_whole_or_not_at_all() -> None:
    nodes = [hosted("a", 8, 2)]
    workload = cluster(nodes, pods("gang", 4), pods("small", 1, created_seconds=3.0), gang=4)
    found = outlook(workload, resized(workload, 1))
    assert (of(found, "gang").before, of(found, "gang").after) == ({}, {"worker": 4})
    assert of(found, "small").before == {"worker": 1}, "the gang holds nothing while it waits"
    assert of(found, "small").after == {}


def test_what_strands_is_told_before_and_after() -> None:
    workload = cluster([hosted("a", 8, 4)], pods("cpu", 1, on="a", cores=8, gpus=0))
    found = outlook(workload, resized(workload, 1))
    assert found.before.stranded_accelerators == 4
    assert found.after.free_accelerators == 8
    assert found.after.stranded_accelerators == 4, "a new node strands nothing"


def test_what_others_hold_of_a_node_that_goes_is_told() -> None:
    workload = cluster([hosted("a", 8, others=Amounts(3000, 5), other_pods=2), hosted("b")])
    assert outlook(workload, failed(workload, "a")).others_lost == Amounts(3000, 5)


GROUPS = st.builds(
    lambda job, count, on, cores, gpus, priority: pods(
        f"j{job}", count, on=on, cores=cores, gpus=gpus, priority=priority
    ),
    st.integers(0, 3),
    st.integers(1, 4),
    st.sampled_from(["", "", "a", "b"]),
    st.integers(1, 8),
    st.integers(0, 2),
    st.integers(0, 2),
)
HUGE = [hosted(name, 1000, 100) for name in "ab"]


@given(st.lists(GROUPS, max_size=6))
def test_no_change_changes_nothing(groups: list[PodGroup]) -> None:
    workload = cluster([hosted("a", 16, 4), hosted("b", 16, 4)], *groups)
    found = outlook(workload, Change())
    assert found.before == found.after
    assert not any(job.changes for job in found.jobs)


@given(st.lists(GROUPS, max_size=6))
def test_no_pod_is_lost_or_made_and_with_room_for_all_none_waits(groups: list[PodGroup]) -> None:
    workload: Workload = cluster(HUGE, *groups)
    for change in (failed(workload, "a"), resized(workload, 1), resized(workload, -1)):
        found = outlook(workload, change)
        assert found.after.waiting_pods == 0
        for job in found.jobs:
            all_pods = sum(one.count for one in groups if one.job == job.uid)
            assert sum(job.after.values()) == all_pods
            assert sum(job.running.values()) + sum(job.waiting.values()) == all_pods


@given(st.lists(GROUPS, max_size=6), st.integers(1, 3))
def test_what_is_placed_fits(groups: list[PodGroup], more: int) -> None:
    waiting = [replace(one, node="") for one in groups]
    workload = cluster([hosted("a", 8, 2)], *waiting)
    found = outlook(workload, resized(workload, more))
    used = found.after.cpu_cores - found.after.free_cpu_cores
    assert 0 <= used <= 8 * (1 + more)
    asked = sum(one.count for one in waiting)
    placed = sum(sum(job.after.values()) for job in found.jobs)
    assert placed + found.after.waiting_pods == asked
