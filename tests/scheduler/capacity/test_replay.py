"""Recorded jobs run again with another placement policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scheduler.capacity.comparison import compare
from penstock.scheduler.capacity.replay import OutOfTimeError, RecordedJob, RecordedPods, replay
from penstock.scheduler.capacity.workload import HostedNode
from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.objects import Amounts
from penstock.scheduler.placement.registry import POLICY_NAMES
from penstock.scheduler.request import Taint
from tests.scheduler.capacity.clusters import GIB, hosted

HOUR = 3600.0
DAY = 24 * HOUR


def job(
    uid: str, at: float, hours: float, count: int = 1, cores: int = 4, gpus: int = 0, **more: bool
) -> RecordedJob:
    pods = RecordedPods(count=count, milli_cpu=1000 * cores, memory_bytes=GIB, accelerators=gpus)
    return RecordedJob(
        uid=uid, arrived_seconds=at, train_seconds=HOUR * hours, pods=(pods,), **more
    )


def tainted(name: str) -> HostedNode:
    one = hosted(name, 8, 2)
    node = type(one.node)(name, one.node.allocatable, taints=(Taint("gpu", "only"),))
    return HostedNode(node=node)


def test_a_job_waits_for_the_one_before_it_and_a_smaller_one_passes() -> None:
    jobs = [job("big", 10, 2, cores=6), job("next", 20, 1, cores=6), job("small", 30, 1, cores=2)]
    found = replay([hosted("a", 8)], jobs, "stranding", DAY)
    assert found.waited == {"big": 0, "next": 2 * HOUR - 10, "small": 0}


def test_packing_leaves_a_whole_node_where_spreading_does_not() -> None:
    nodes = [hosted("a", 8), hosted("b", 8)]
    jobs = [job("one", 1000, 4), job("two", 2000, 4), job("whole", 3000, 1, cores=8)]
    assert replay(nodes, jobs, "most", DAY).waited["whole"] == 0
    assert replay(nodes, jobs, "spread", DAY).waited["whole"] == pytest.approx(4 * HOUR - 2000)
    found = compare(nodes, jobs, "spread", "most", DAY)
    assert found.change["mean_wait"].value == pytest.approx((2000 - 4 * HOUR) / 3)
    assert found.change["mean_wait"].high < -HOUR, "a minute more or less changes nothing"
    assert found.change["mean_completion"].value == pytest.approx((2000 - 4 * HOUR) / 3)
    assert (found.earlier, found.later, found.jobs, found.ended, found.repetitions) == (
        1,
        0,
        3,
        3,
        8,
    )
    assert (found.before["waited"].value, found.after["waited"].value) == (1, 0)


def test_accelerators_strand_where_cores_are_taken_and_the_mean_is_over_the_time() -> None:
    jobs = [job("eats", 1e-9, 12, cores=8)]
    found = replay([hosted("a", 8, 4)], jobs, "stranding", DAY)
    assert found.stranded_accelerators == pytest.approx(2.0)
    assert found.free_accelerators == pytest.approx(4.0)


def test_jobs_of_before_take_room_and_are_not_counted() -> None:
    jobs = [job("old", -HOUR, 3, cores=8), job("new", 60, 1, cores=8)]
    found = replay([hosted("a", 8)], jobs, "stranding", DAY)
    assert found.waited == {"new": 3 * HOUR - 60}


def test_a_job_that_fits_on_no_node_is_told_and_holds_up_nobody() -> None:
    jobs = [job("huge", 10, 1, cores=64), job("fits", 20, 1), job("on", 30, 1, ended=False)]
    found = compare([hosted("a", 8)], jobs, "stranding", "most", DAY, repetitions=0)
    assert (found.never, found.jobs, found.ended, found.repetitions) == (1, 2, 1, 0)


def test_pods_without_accelerators_keep_off_tainted_nodes() -> None:
    nodes = [tainted("g"), hosted("c", 4)]
    jobs = [job("one", 10, 1), job("two", 20, 1), job("gpu", 30, 1, gpus=1)]
    assert replay(nodes, jobs, "most", DAY).waited == {
        "one": 0,
        "two": pytest.approx(HOUR - 10),
        "gpu": 0,
    }


def test_what_others_hold_of_a_node_is_not_to_be_had() -> None:
    nodes = [hosted("a", 8, others=Amounts(4000, GIB), other_pods=2)]
    jobs = [job("one", 10, 1), job("two", 20, 1)]
    assert replay(nodes, jobs, "most", DAY).waited["two"] == pytest.approx(HOUR - 10)


@pytest.mark.parametrize(
    ("policy", "said"), [("best", "one of random, bestfit"), ("most", "is the policy now")]
)
def test_a_policy_that_says_nothing_is_refused(policy: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        compare([hosted("a")], [job("one", 10, 1)], "most", policy, DAY)


def test_out_of_time_there_are_fewer_repetitions_and_without_one_run_no_answer() -> None:
    jobs = [job("one", 10, 1), job("two", 20, 1)]
    asked = 0

    def often() -> bool:
        nonlocal asked
        asked += 1
        return asked < 30

    found = compare([hosted("a")], jobs, "stranding", "most", DAY, in_time=often)
    assert 0 < found.repetitions < 8
    with pytest.raises(OutOfTimeError):
        compare([hosted("a")], jobs, "stranding", "most", DAY, in_time=lambda: False)


JOBS = st.lists(
    st.builds(
        lambda at, hours, count, cores, gpus: (at, hours, count, cores, gpus),
        st.floats(-HOUR, DAY),
        st.floats(0.01, 12),
        st.integers(1, 4),
        st.integers(1, 9),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(drawn=JOBS, policy=st.sampled_from(POLICY_NAMES))
def test_every_job_starts_or_is_told_and_at_no_time_is_more_in_use_than_there_is(
    drawn: list[tuple[float, float, int, int, int]], policy: str
) -> None:
    jobs = [job(f"j{number}", *one) for number, one in enumerate(drawn)]
    nodes = [hosted("a", 8, 2), hosted("b", 8, 2), hosted("c", 16)]
    found = replay(nodes, jobs, policy, DAY)
    counted = {one.uid for one in jobs if one.counted}
    assert found.waited.keys() | found.never == counted
    assert not found.waited.keys() & found.never
    assert all(waited >= 0 for waited in found.waited.values())
    assert 0 <= found.stranded_accelerators <= found.free_accelerators <= 4
    spans = [
        (one.arrived_seconds + found.waited[one.uid], one.train_seconds, one)
        for one in jobs
        if one.uid in found.waited
    ]
    for start, _, _ in spans:
        on = [each for begin, seconds, each in spans if begin <= start < begin + seconds]
        assert sum(each.pods[0].count * each.pods[0].milli_cpu for each in on) <= 32_000
        assert sum(each.pods[0].count * each.pods[0].accelerators for each in on) <= 4
    assert replay(nodes, jobs, policy, DAY) == found, "the same question has the same answer"
