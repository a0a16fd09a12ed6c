"""Jobs that share batches: eight of them do not get eight times the data workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.brain.algorithms import data_workers, offload
from penstock.brain.algorithms.group_part import group_part
from penstock.brain.control.planner import share_group
from penstock.brain.model.share_figures import ShareFigures
from penstock.brain.planning import GroupMember, History, JobDescription, Limits, Plan
from penstock.brain.store.samples import SharingJob
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, waiting
from tests.throughput.programs import STARVING

Ask = Callable[[History, JobDescription], Plan | None]


def by_model(history: History, job: JobDescription) -> Plan | None:
    return offload.plan(history, job, Limits(), offload.OffloadParams())


def by_waiting(history: History, job: JobDescription) -> Plan | None:
    return data_workers.plan(history, job, Limits(), data_workers.DataWorkersParams())


def member(uid: str, rate: float = 50.0, have: int = 0, cores: float = 0.0) -> GroupMember:
    return GroupMember(
        uid=uid,
        batches_per_second=rate,
        data_workers=have,
        data_worker_milli_cpu=1000 * cores,
    )


def history(ask: Ask, group: tuple[GroupMember, ...] = ()) -> History:
    profile = STARVING if ask is by_model else None
    made = ps_history(waiting(0.6), in_force_plan(4, 3, 1, 8))
    return replace(made, profile=profile, group=group)


def demanded(ask: Ask, uid: str, group: tuple[GroupMember, ...] = ()) -> int:
    made = ask(history(ask, group), replace(ps_job(), uid=uid))
    return made.data_workers.replicas if made is not None and made.data_workers else 0


@pytest.mark.parametrize("ask", [by_model, by_waiting])
def test_eight_members_alike_demand_what_one_does(ask: Ask) -> None:
    uids = [f"uid-{number}" for number in range(8)]
    group = tuple(member(uid) for uid in uids)
    alone = demanded(ask, uids[0])
    assert alone >= 2
    parts = [demanded(ask, uid, group) for uid in uids]
    assert sum(parts) <= 1.1 * alone
    assert sum(parts) == alone


@pytest.mark.parametrize("ask", [by_model, by_waiting])
def test_a_slow_member_asks_for_what_the_fastest_needs(ask: Ask) -> None:
    group = (member("a", 25.0), member("b", 50.0))
    need = sum(demanded(ask, uid, group) for uid in "ab")
    alone = demanded(ask, "a")
    # As "a" sees it the need is twice its own, as "b" does it is its own: both are half-right.
    assert alone <= need <= 2 * alone


def test_what_others_have_counts_and_a_plan_says_so() -> None:
    alone = demanded(by_model, "a")
    group = (member("a"), member("b", have=alone - 1))
    assert demanded(by_model, "a", group) == 1
    made = by_model(history(by_model, group), replace(ps_job(), uid="a"))
    assert made is not None
    assert f"of {alone} for the 2 jobs of its share group" in made.message
    assert demanded(by_model, "a", (member("a"), member("b", have=alone))) == 0


def test_data_workers_of_all_members_are_what_a_wait_is_measured_with() -> None:
    """Two cores of them, at a wait of 60 %: five are needed, and not five for each member."""
    group = (member("a", have=1, cores=2.0), member("b", have=1, cores=2.0))
    assert sum(demanded(by_waiting, uid, group) for uid in "ab") == 5


def test_a_group_of_one_is_a_job_like_any_other() -> None:
    assert demanded(by_model, "a", (member("a"),)) == demanded(by_model, "a")
    found = group_part(history(by_model), ps_job(), 3.2)
    assert (found.own, found.need, found.others, found.remark) == (4, 4, 0, "")


def said(uid: str, group: str, rate: float | None, dequeued: float | None = None) -> SharingJob:
    figures = ShareFigures(group=group, own_data_workers=2, milli_cpu=500.0)
    return SharingJob(uid, f"job-{uid}", rate, dequeued, figures.dump())


def test_the_members_are_read_from_what_they_said_last() -> None:
    rows = [
        said("b", "sweep", 20.0),
        said("c", "other", 90.0),
        said("a", "sweep", None, 7.0),
        said("b", "other", 80.0),  # older: it counts no more
        SharingJob("d", "job-d", 1.0, 1.0, "not JSON"),
    ]
    assert share_group("a", rows) == (
        GroupMember(uid="a", batches_per_second=7.0, data_workers=2, data_worker_milli_cpu=500.0),
        GroupMember(uid="b", batches_per_second=20.0, data_workers=2, data_worker_milli_cpu=500.0),
    )
    assert [one.uid for one in share_group("c", rows)] == ["c"]
    assert share_group("nobody", rows) == ()
