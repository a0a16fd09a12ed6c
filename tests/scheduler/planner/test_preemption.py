"""Room for a GPU pod: who leaves, and what is asked for."""

from __future__ import annotations

from typing import Any

from penstock.scheduler.model.decisions import Plan, Reason, SetDeletionCost, WriteScale
from penstock.scheduler.planner.planner import Planner
from penstock.scheduler.planner.preemption import (
    FIRST_TO_GO,
    GRACE_SECONDS,
    PATIENCE_SECONDS,
    Standing,
)
from tests.scheduler.planner.documents import Json, node, pod, unschedulable

SINCE = "2026-01-01T00:00:00Z"
NOW = 1_767_225_600.0 + GRACE_SECONDS  # SINCE, and a moment


def planner_of(*documents: Json) -> Planner:
    planner = Planner()
    for document in documents:
        if "containers" in document["spec"]:
            planner.state.put_pod(document, NOW)
        else:
            planner.state.put_node(document)
    return planner


def incoming(cpu: str = "6", gpus: int = 1) -> Json:
    return unschedulable(pod("train", cpu, gpus), SINCE)


def scales(plan: Plan) -> dict[str, Json]:
    return {one.job: dict(one.roles) for one in plan.actions if isinstance(one, WriteScale)}


def test_data_workers_that_fit_elsewhere_are_moved() -> None:
    planner = planner_of(
        node("gpu", "8", 1),
        node("cpu", "8"),
        pod("d0", "2", job="a", rank=0, on="gpu"),
        pod("d1", "2", job="a", rank=1, on="gpu"),
        incoming(),
    )
    plan = planner.place(NOW)
    [(job, roles)] = scales(plan).items()
    assert job == "a"
    [(rank, target)] = roles["dataWorker"]["ranks"].items()
    assert rank in {"0", "1"}
    assert target == {"minIncarnation": 1, "avoidNodes": ["gpu"]}
    assert "replicas" not in roles["dataWorker"]
    [record] = plan.records
    assert record.reason is Reason.ROOM_FOR_ACCELERATORS
    assert "1 data workers move away" in record.message
    assert not planner.place(NOW + 1).actions, "room is made once"


def test_where_there_is_no_other_room_the_job_with_the_largest_key_drains_first() -> None:
    planner = planner_of(
        node("gpu", "8", 1),
        *(pod(f"a{i}", "2", job="a", rank=i, on="gpu") for i in range(2)),
        *(pod(f"b{i}", "2", job="b", rank=i, on="gpu") for i in range(2)),
        incoming("2"),
    )
    planner._standings = {"uid-a": Standing(1.0), "uid-b": Standing(9.0)}
    plan = planner.place(NOW)
    assert scales(plan) == {"b": {"dataWorker": {"replicas": 1}}}
    [cost] = [one for one in plan.actions if isinstance(one, SetDeletionCost)]
    assert cost.view.job == "b"
    assert cost.cost == FIRST_TO_GO


def test_surplus_cores_of_training_workers_go_first() -> None:
    planner = planner_of(
        node("gpu", "8", 2),
        pod("w0", "4", 1, job="a", role="worker", on="gpu"),
        pod("d0", "2", job="a", rank=0, on="gpu"),
        incoming("4"),
    )
    planner._standings = {"uid-a": Standing(1.0, surplus_milli_cpu=2000)}
    assert scales(planner.place(NOW)) == {"a": {"worker": {"ranks": {"0": {"cpu": "2"}}}}}


def test_nobody_gives_anything_up_in_vain() -> None:
    planner = planner_of(node("gpu", "8", 1), pod("d0", "2", job="a", on="gpu"), incoming("12"))
    assert not planner.place(NOW).actions


def test_data_workers_cannot_give_accelerators() -> None:
    planner = planner_of(
        node("gpu", "8", 1),
        pod("w0", "1", 1, job="a", role="worker", on="gpu"),
        pod("d0", "4", job="a", rank=0, on="gpu"),
        incoming("6"),
    )
    assert not planner.place(NOW).actions


def stage_worker(name: str, cpu: str = "1", *, job: str = "a", rank: int = 0, **more: Any) -> Json:
    return pod(name, cpu, 1, job=job, role="accelerated-data-worker", rank=rank, **more)


def test_a_stage_worker_gives_its_accelerator_before_others_give_their_cores() -> None:
    planner = planner_of(
        node("gpu", "8", 2),
        pod("w0", "2", 1, job="a", role="worker", on="gpu"),
        stage_worker("s0", "2", on="gpu"),
        pod("d0", "2", job="a", rank=0, on="gpu"),
        incoming("4"),
    )
    plan = planner.place(NOW)
    assert scales(plan) == {"a": {"acceleratedDataWorker": {"replicas": 0}}}
    [cost] = [one for one in plan.actions if isinstance(one, SetDeletionCost)]
    assert (cost.view.name, cost.cost) == ("s0", FIRST_TO_GO)
    [scale] = [one for one in plan.actions if isinstance(one, WriteScale)]
    assert scale.message == "default/train needs the accelerators on gpu"
    assert plan.records[0].figures["freed_accelerators"] == 1.0


def test_a_stage_worker_moves_where_another_accelerator_is_free() -> None:
    planner = planner_of(
        node("big", "8", 2),
        node("small", "2", 1),
        pod("w0", "2", 1, job="a", role="worker", on="big"),
        stage_worker("s0", on="big"),
        incoming("6"),
    )
    assert scales(planner.place(NOW)) == {
        "a": {
            "acceleratedDataWorker": {"ranks": {"0": {"minIncarnation": 1, "avoidNodes": ["big"]}}}
        }
    }


def test_two_stage_workers_do_not_move_to_one_accelerator() -> None:
    planner = planner_of(
        node("big", "8", 2),
        node("small", "4", 1),
        stage_worker("s0", job="a", on="big"),
        stage_worker("s1", job="b", on="big"),
        incoming("6", gpus=2),
    )
    plan = planner.place(NOW)
    assert plan.records[0].figures["moved"] == 1.0
    assert plan.records[0].figures["drained"] == 1.0


def test_stage_workers_with_another_kind_of_accelerator_are_of_no_use() -> None:
    mixed, other = node("gpu", "8", 1), stage_worker("s0", on="gpu")
    mixed["status"]["allocatable"]["amd.com/gpu"] = "1"
    requests = other["spec"]["containers"][0]["resources"]["requests"]
    requests["amd.com/gpu"] = requests.pop("nvidia.com/gpu")
    own = pod("w0", "1", 1, job="a", role="worker", on="gpu")
    assert not planner_of(mixed, own, other, incoming("2")).place(NOW).actions


def test_a_pod_that_fits_already_is_kube_schedulers_business() -> None:
    planner = planner_of(node("gpu", "8", 1), pod("d0", "2", job="a", on="gpu"), incoming("6"))
    assert not planner.place(NOW).actions


def test_memory_counts_too() -> None:
    planner = planner_of(
        node("gpu", "8", 1),
        node("cpu", "8"),
        pod("d0", "4", job="a", rank=0, on="gpu", memory="4Gi"),
        pod("hog", "1", on="gpu", memory="50Gi"),
        unschedulable(pod("train", "4", 1, memory="20Gi"), SINCE),
    )
    assert not planner.place(NOW).actions


def test_kube_scheduler_has_a_moment_to_preempt() -> None:
    planner = planner_of(
        node("gpu", "8", 1), node("cpu"), pod("d0", "4", job="a", on="gpu"), incoming("6")
    )
    plan = planner.place(NOW - GRACE_SECONDS / 2)
    assert not plan.actions
    assert plan.look_again_seconds == NOW


def test_the_room_is_kept_clear_until_the_pod_is_bound() -> None:
    planner = planner_of(
        node("gpu", "8", 1), node("cpu", "4"), pod("d0", "4", job="a", on="gpu"), incoming("6")
    )
    assert planner.place(NOW).actions
    planner.state.remove_pod("uid-d0")
    planner.state.put_pod(pod("d1", "4", job="a", gated=True), NOW)
    [pin] = planner.place(NOW + 1).actions
    # The actions here are all pins.
    assert pin.node == "cpu", "and not where the GPU pod is to go"  # type: ignore[union-attr]
    planner.state.put_pod(pod("train", "6", 1, on="gpu"), NOW + 2)
    planner.place(NOW + 3)
    assert not planner.room.made
    assert "uid-train" not in planner.state.snapshot.reservations


def test_it_is_made_again_if_the_pod_did_not_get_it() -> None:
    planner = planner_of(
        node("gpu", "8", 1), node("cpu"), pod("d0", "4", job="a", on="gpu"), incoming("6")
    )
    assert planner.place(NOW).actions
    assert not planner.place(NOW + PATIENCE_SECONDS - 1).actions
    assert planner.place(NOW + PATIENCE_SECONDS).actions or planner.room.made == {}


def test_two_pods_do_not_count_on_the_same_room() -> None:
    planner = planner_of(
        node("gpu", "8", 2),
        node("cpu"),
        pod("d0", "4", job="a", rank=0, on="gpu"),
        incoming("6"),
        unschedulable(pod("train2", "6", 1), SINCE),
    )
    planner.place(NOW)
    assert len(planner.room.made) == 1
