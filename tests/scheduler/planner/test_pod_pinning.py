"""Gate and pin, one pass at a time."""

from __future__ import annotations

import pytest

from penstock.scheduler.model.decisions import DeletePod, Pin, Plan, Reason, WriteScale
from penstock.scheduler.placement.snapshot import RESERVATION_SECONDS
from penstock.scheduler.planner.planner import Planner
from tests.scheduler.planner.documents import Json, job, node, pod, unschedulable

NOW = 1_800_000_000.0


def planner_of(*documents: Json) -> Planner:
    planner = Planner()
    for document in documents:
        if "containers" in document["spec"]:
            planner.state.put_pod(document, NOW)
        else:
            planner.state.put_node(document)
    return planner


def pins(plan: Plan) -> dict[str, str]:
    return {one.view.name: one.node for one in plan.actions if isinstance(one, Pin)}


def pinned(document: Json, to: str, at: float) -> Json:
    """The pod as the API server shows it after the pin."""
    spec = {key: value for key, value in document["spec"].items() if key != "schedulingGates"}
    notes = {"penstock.dev/placement-node": to, "penstock.dev/placement-time": str(at)}
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": notes},
        "spec": spec,
    }


def test_it_goes_where_fragmentation_says() -> None:
    """The CPU of gpu-busy is not needed by its accelerators, all of which are in use."""
    planner = planner_of(
        node("gpu-free", "8", 4),
        node("gpu-busy", "8", 4),
        pod("training", "1", 4, on="gpu-busy"),
        pod("data", "4", job="j", gated=True),
    )
    plan = planner.place(NOW)
    assert pins(plan) == {"data": "gpu-busy"}
    [record] = plan.records
    assert record.reason is Reason.PLACED
    assert record.runner_up == "gpu-free"
    assert "gpu-free" in record.message


def test_a_batch_never_takes_more_than_there_is() -> None:
    planner = planner_of(
        node("a", "4"), node("b", "2"), *(pod(f"p{i}", "1", gated=True) for i in range(9))
    )
    plan = planner.place(NOW)
    assert sorted(pins(plan).values()) == ["a"] * 4 + ["b"] * 2
    reasons = [record.reason for record in plan.records if record.reason is not Reason.PLACED]
    assert reasons == [Reason.NO_ROOM] * 3
    again = planner.place(NOW + 1)
    assert not again.actions, "what is on its way is not planned twice"
    assert not again.records, "people are told once"


def test_a_pod_that_fits_nowhere_is_placed_when_there_is_room() -> None:
    planner = planner_of(node("a", "1"), pod("p", "2", gated=True))
    assert not pins(planner.place(NOW))
    planner.state.put_node(node("b", "2"))
    assert pins(planner.place(NOW + 1)) == {"p": "b"}


def test_a_pod_that_cannot_be_read_waits_and_stops_nobody() -> None:
    planner = planner_of(node("a"), pod("bad", "1e", gated=True), pod("good", "1", gated=True))
    plan = planner.place(NOW)
    assert pins(plan) == {"good": "a"}
    assert [
        record.reason for record in plan.records if record.view and record.view.name == "bad"
    ] == [Reason.UNREADABLE]


def test_a_node_that_cannot_be_read_is_no_node() -> None:
    planner = planner_of(node("a", "lots"), node("b"), pod("p", "1", gated=True))
    assert pins(planner.place(NOW)) == {"p": "b"}
    assert "lots" in planner.state.problems["a"]


def test_a_node_full_of_pods_takes_no_more() -> None:
    planner = planner_of(node("a", "8", pods=1), pod("old", "1", on="a"), pod("p", "1", gated=True))
    assert not pins(planner.place(NOW))
    planner.state.remove_pod("uid-old")
    assert pins(planner.place(NOW)) == {"p": "a"}


def test_a_pin_that_was_refused_is_planned_anew_at_once() -> None:
    planner = planner_of(node("a", "1"), pod("p", "1", gated=True))
    planner.place(NOW)
    planner.pinner.failed("uid-p")
    assert not planner.state.snapshot.reservations
    assert pins(planner.place(NOW)) == {"p": "a"}


def test_a_pin_that_nobody_answered_is_planned_anew_after_its_reservation() -> None:
    planner = planner_of(node("a", "1"), pod("p", "1", gated=True))
    plan = planner.place(NOW)
    assert plan.look_again_seconds == NOW + RESERVATION_SECONDS
    assert not planner.place(NOW + RESERVATION_SECONDS - 1).actions
    assert pins(planner.place(NOW + RESERVATION_SECONDS)) == {"p": "a"}


def test_an_unschedulable_pin_is_deleted_after_ten_seconds_and_its_node_is_shunned() -> None:
    waiting = pod("p", "1", job="j", gated=True)
    planner = planner_of(node("a", "8", 0), node("b", "2"), waiting)
    [pin] = planner.place(NOW).actions
    assert isinstance(pin, Pin)
    seen = unschedulable(pinned(waiting, pin.node, NOW), "2026-01-01T00:00:00Z")
    planner.state.put_pod(seen, NOW)
    assert not planner.place(NOW + 9).actions
    plan = planner.place(NOW + 10)
    assert [type(action) for action in plan.actions] == [DeletePod]
    assert not planner.place(NOW + 11).actions, "it is deleted once"
    planner.state.remove_pod("uid-p")
    planner.state.put_pod(pod("p2", "1", job="j", gated=True), NOW + 12)
    assert pins(planner.place(NOW + 12))["p2"] != pin.node


def test_a_pin_that_is_merely_slow_is_left_alone() -> None:
    waiting = pod("p", "1", gated=True)
    planner = planner_of(node("a"), waiting)
    planner.place(NOW)
    planner.state.put_pod(pinned(waiting, "a", NOW), NOW)
    assert not planner.place(NOW + 25).actions
    assert planner.state.snapshot.reservations
    planner.place(NOW + RESERVATION_SECONDS)
    assert not planner.state.snapshot.reservations


def test_a_new_planner_holds_the_room_of_the_pins_before_it() -> None:
    waiting = pod("p", "1", gated=True)
    planner = planner_of(node("a", "1"), pinned(waiting, "a", NOW - 5), pod("q", "1", gated=True))
    assert not pins(planner.place(NOW))
    assert not pins(planner.place(NOW + 24))
    assert pins(planner.place(NOW + 25)) == {"q": "a"}


def test_a_clock_that_is_ahead_holds_no_room_for_longer() -> None:
    planner = planner_of(node("a", "1"), pinned(pod("p", "1"), "a", NOW + 9999))
    [held] = planner.state.snapshot.reservations.values()
    assert held.expires_seconds == NOW + RESERVATION_SECONDS


def test_an_important_pod_goes_first() -> None:
    planner = planner_of(
        node("a", "1"),
        pod("late", "1", gated=True, priority=5, created="2026-01-02T00:00:00Z"),
        pod("early", "1", gated=True),
    )
    assert pins(planner.place(NOW)) == {"late": "a"}


def test_room_where_kube_scheduler_preempts_is_not_given_away() -> None:
    nominated = pod("gpu", "4", 1)
    nominated["status"]["nominatedNodeName"] = "a"
    planner = planner_of(node("a", "4", 1), nominated, pod("p", "1", gated=True))
    assert not pins(planner.place(NOW))


def test_a_data_worker_that_fits_nowhere_is_asked_for_in_the_size_of_the_largest_gap() -> None:
    planner = planner_of(node("a", "3"), node("b", "2"), pod("data", "4", job="j", gated=True))
    planner.state.put_job(job("j"))
    plan = planner.place(NOW)
    [scale] = plan.actions
    assert isinstance(scale, WriteScale)
    assert scale.roles == {"dataWorker": {"ranks": {"0": {"cpu": "3"}}}}
    assert scale.reason is Reason.FRAGMENT
    assert not planner.place(NOW + 1).actions, "it is asked for once"
    planner.state.remove_pod("uid-data")
    planner.state.put_pod(pod("smaller", "3", job="j", gated=True), NOW)
    assert pins(planner.place(NOW + 2)) == {"smaller": "a"}


def test_no_two_data_workers_are_shrunk_to_one_gap() -> None:
    data = [pod(f"data-{rank}", "4", job="j", gated=True) for rank in range(3)]
    planner = planner_of(node("a", "2"), *data)
    planner.state.put_job(job("j"))
    assert len(planner.place(NOW).actions) == 1
    assert not planner.place(NOW + 1).actions


def test_a_smaller_size_that_nobody_answers_is_asked_for_again() -> None:
    planner = planner_of(node("a", "3"), pod("data", "4", job="j", gated=True))
    planner.state.put_job(job("j"))
    assert len(planner.place(NOW).actions) == 1
    assert not planner.place(NOW + RESERVATION_SECONDS - 1).actions
    assert len(planner.place(NOW + RESERVATION_SECONDS).actions) == 1
    planner.state.remove_pod("uid-data")
    planner.place(NOW + RESERVATION_SECONDS + 1)
    assert not planner.state.snapshot.reservations


@pytest.mark.parametrize("spec", [{"input": {"offload": "Never"}}, {"suspend": True}, None])
def test_nobody_elses_data_worker_is_made_smaller(spec: Json | None) -> None:
    planner = planner_of(node("a", "3"), pod("data", "4", job="j", gated=True))
    if spec is not None:
        planner.state.put_job(job("j", **spec))
    plan = planner.place(NOW)
    assert not plan.actions
    assert [record.reason for record in plan.records] == [Reason.NO_ROOM]


def test_there_is_no_gap_smaller_than_a_core() -> None:
    planner = planner_of(node("a", "500m"), pod("data", "4", job="j", gated=True))
    planner.state.put_job(job("j"))
    assert [record.reason for record in planner.place(NOW).records] == [Reason.NO_ROOM]


def test_an_accelerated_data_worker_waits_for_a_free_accelerator() -> None:
    taken = pod("w", "1", 1, job="j", role="worker", on="gpu")
    stage = pod("s", "1", 1, job="j", role="accelerated-data-worker", gated=True)
    planner = planner_of(node("cpu", "64"), node("gpu", "8", 1), taken, stage)
    planner.state.put_job(job("j"))
    assert [record.reason for record in planner.place(NOW).records] == [Reason.NO_ROOM]
    planner.state.remove_pod("uid-w")
    assert pins(planner.place(NOW + 1)) == {"s": "gpu"}


def test_it_is_made_smaller_as_its_own_role() -> None:
    stage = pod("s", "4", 1, job="j", role="accelerated-data-worker", gated=True)
    planner = planner_of(node("gpu", "3", 1), stage)
    planner.state.put_job(job("j"))
    [scale] = planner.place(NOW).actions
    assert isinstance(scale, WriteScale)
    assert scale.roles == {"acceleratedDataWorker": {"ranks": {"0": {"cpu": "3"}}}}
