"""Accelerated data workers: their template, their one accelerator, and how they are replaced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.controller.reconcile.desired.accelerators import (
    accelerator_of,
    with_one_accelerator,
    without_accelerators,
)
from tests.controller.life import Life, template, with_accelerators

Json = dict[str, Any]
ROLE = "acceleratedDataWorker"
IN_NAMES = "accelerated-data-worker"
GPU = "nvidia.com/gpu"


def limits(*amounts: Json) -> Json:
    """A template of containers with these limits."""
    containers = [
        {"name": f"c{number}", "resources": {"limits": of}} for number, of in enumerate(amounts)
    ]
    return {"spec": {"containers": containers}}


@pytest.fixture
def fed(life: Life) -> Life:
    """A job of 4 accelerators with two accelerated data workers that nobody declared."""
    life.create_job(workers={"replicas": 1, "template": with_accelerators(4)})
    life.create_scale("stage", {ROLE: {"replicas": 2}}, source="Scheduler")
    life.settle()
    assert len(life.names(IN_NAMES)) == 2
    return life


def test_they_are_made_from_the_workers_template_with_one_of_its_accelerators(fed: Life) -> None:
    pod = fed.pods(IN_NAMES)[0]
    [made] = pod["spec"]["containers"]
    assert made["command"] == ["penstock", "data-worker"]
    assert made["resources"]["limits"] == {"cpu": "1", GPU: "1"}
    assert made["resources"]["requests"][GPU] == "1"
    assert pod["spec"]["priorityClassName"] == "penstock-data"
    assert pod["spec"]["hostname"] == "accelerated-data-worker-0"
    told = {one["name"]: one.get("value") for one in made["env"]}
    assert told["PENSTOCK_ROLE"] == ROLE
    assert told["PENSTOCK_ACCELERATOR"] == GPU
    assert fed.status["acceleratedDataWorkers"] == "2/2"
    assert fed.status["replicas"][ROLE]["ready"] == 2


def test_a_plain_data_worker_has_none(life: Life) -> None:
    life.create_job(workers={"replicas": 1, "template": with_accelerators(4)})
    life.create_scale("data", {"dataWorker": {"replicas": 1}})
    life.settle()
    [made] = life.pods("data-worker")[0]["spec"]["containers"]
    assert GPU not in made["resources"]["limits"]
    assert "PENSTOCK_ACCELERATOR" not in {one["name"] for one in made["env"]}
    assert life.names(IN_NAMES) == [], "none unless somebody asks"


def test_a_job_without_accelerators_is_told_to_declare_them(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.create_scale("stage", {ROLE: {"replicas": 1}})
    life.settle()
    assert life.scale_condition("stage", "Failed") == ("True", "Invalid")
    stored = life.server.objects["scales"]["stage"]
    [failed] = [one for one in stored["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(f"spec.roles.{ROLE}: there is none to make it from")
    assert f"declare spec.replicaSpecs.{ROLE} with a template" in failed["message"]
    assert life.names(IN_NAMES) == []


def test_a_declared_template_must_ask_for_an_accelerator(life: Life) -> None:
    life.create_job(workers={"replicas": 1}, roles={ROLE: {"replicas": 1, "template": template()}})
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    message = life.message("Accepted")
    assert message.startswith(f"spec.replicaSpecs.{ROLE}.template.spec.containers[*].resources: ")
    assert message.endswith("must ask for one kind of accelerator, such as "
                            "resources.limits[nvidia.com/gpu]: 1")  # fmt: skip
    assert life.names(live=False) == []


def test_devices_of_a_claim_are_taken_for_an_accelerator(life: Life) -> None:
    claimed = template()
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    life.create_job(workers={"replicas": 1}, roles={ROLE: {"replicas": 1, "template": claimed}})
    life.settle()
    assert life.condition("Accepted")[0] == "True"
    assert len(life.names(IN_NAMES)) == 1


def test_what_the_spec_declares_is_made_as_it_says(life: Life) -> None:
    own = with_accelerators(1, "amd.com/gpu")
    life.create_job(workers={"replicas": 1}, roles={ROLE: {"replicas": 2, "template": own}})
    life.settle()
    assert len(life.names(IN_NAMES)) == 2
    [made] = life.pods(IN_NAMES)[0]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in made["env"]}
    assert told["PENSTOCK_ACCELERATOR"] == "amd.com/gpu"
    assert made["command"] == ["train"], "a declared template says itself what runs"


def test_a_worker_template_that_loses_its_accelerators_is_told_and_what_runs_stays(
    fed: Life,
) -> None:
    fed.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(template=template()))
    fed.settle()
    assert fed.condition("Accepted") == ("False", "InvalidTemplate")
    assert f"spec.replicaSpecs.{ROLE}.template: there is none" in fed.message("Accepted")
    assert len(fed.names(IN_NAMES)) == 2
    fed.end_pod(f"job-{IN_NAMES}-0-0", 1)
    fed.server.advance(60)
    fed.settle()
    assert len(fed.names(IN_NAMES)) == 1, "nothing can be made in its place"
    fed.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(template=with_accelerators(2)))
    fed.settle()
    assert fed.condition("Accepted")[0] == "True"
    assert len(fed.names(IN_NAMES)) == 2


def test_their_accelerators_count_against_the_limits(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1, "template": with_accelerators(2)}, resourceLimits={GPU: 3}
    )
    life.create_scale("one", {ROLE: {"replicas": 1}})
    life.settle()
    life.server.advance(2)
    life.create_scale("two", {ROLE: {"replicas": 2}})
    life.settle()
    assert life.scale_condition("one", "Admitted")[0] == "True"
    assert life.scale_condition("two", "Failed") == ("True", "OverQuota")
    assert len(life.names(IN_NAMES)) == 1


def test_they_are_gated_while_a_planner_lives(life: Life) -> None:
    life.planner_alive = True
    life.create_job(workers={"replicas": 1, "template": with_accelerators(1)})
    life.create_scale("stage", {ROLE: {"replicas": 1}})
    life.settle()
    [pod] = life.pods(IN_NAMES)
    assert pod["spec"]["schedulingGates"] == [{"name": "penstock.dev/placement"}]
    assert life.condition("Scaling") == ("False", "Settled"), "nobody waits for the planner"


def test_a_killed_one_comes_back_after_a_pause_and_never_fails_the_job(fed: Life) -> None:
    fed.edit_spec(lambda spec: spec["failurePolicy"].update(maxRestarts=0, maxPreemptions=0))
    fed.end_pod(f"job-{IN_NAMES}-1-0", 137)
    fed.settle()
    assert f"job-{IN_NAMES}-1-1" not in fed.names()
    fed.server.advance(6)
    fed.settle()
    assert f"job-{IN_NAMES}-1-1" in fed.names()
    assert fed.status["ranks"][ROLE]["1"] == {"incarnation": 1, "restarts": 1}
    assert fed.condition("Failed")[0] == "False"


def test_scale_in_takes_the_lowest_deletion_cost(fed: Life) -> None:
    def change(pod: Json) -> None:
        pod["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "-5"}

    fed.server.edit("pods", f"job-{IN_NAMES}-0-0", change)
    fed.server.advance(2)
    fed.create_scale("fewer", {ROLE: {"replicas": 1}})
    fed.settle()
    assert fed.names(IN_NAMES) == [f"job-{IN_NAMES}-1-0"]


def test_failures_of_one_kind_of_data_workers_take_only_these_away(fed: Life) -> None:
    fed.create_scale("data", {"dataWorker": {"replicas": 1}})
    fed.settle()
    for incarnation in range(2):
        for rank in range(2):
            fed.end_pod(f"job-{IN_NAMES}-{rank}-{incarnation}", 1)
        fed.server.advance(6)
        fed.settle()
    assert fed.names(IN_NAMES) == []
    assert len(fed.names("data-worker")) == 1
    assert fed.condition("Running") == ("True", "InputRunsLocally")


def test_offload_never_means_none_of_them(life: Life) -> None:
    life.create_job(
        workers={"replicas": 1, "template": with_accelerators(1)}, input={"offload": "Never"}
    )
    life.create_scale("stage", {ROLE: {"replicas": 1}})
    life.settle()
    assert life.names(IN_NAMES) == []
    assert life.scale_condition("stage", "Failed") == ("True", "Invalid")


@pytest.mark.parametrize("partition", [None, "Never", "Declared", "Auto"])
def test_whoever_makes_batches_knows_what_of_a_step_may_move(
    life: Life, partition: str | None
) -> None:
    life.create_job(
        workers={"replicas": 1, "template": with_accelerators(1)},
        input={"partition": partition} if partition else {},
        roles={"evaluator": {"replicas": 1, "template": template()}},
    )
    life.create_scale("data", {"dataWorker": {"replicas": 1}, ROLE: {"replicas": 1}})
    life.settle()
    for role in ("worker", "data-worker", IN_NAMES, "evaluator", "trainer"):
        [container] = life.pods(role)[0]["spec"]["containers"]
        told = {one["name"]: one.get("value") for one in container["env"]}
        knows = partition is not None and role not in ("evaluator", "trainer")
        assert told.get("PENSTOCK_PARTITION") == (str(partition).lower() if knows else None)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ([{GPU: 8}], GPU),
        ([{GPU: 8, "rdma/hca": 1}], GPU),
        ([{"cpu": 1}, {"habana.ai/gaudi": "8"}], "habana.ai/gaudi"),
        ([{GPU: 0}], None),
        ([{"cpu": "4", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "1Gi"}], None),
        ([{"a.example/x": 1, "b.example/y": 1}], None),
        ([{GPU: 1}, {"amd.com/gpu": 1}], None),
        ([{}], None),
    ],
)
def test_which_accelerator_a_template_asks_for(asked: list[Json], kind: str | None) -> None:
    assert accelerator_of(limits(*asked)) == kind


AMOUNTS = st.dictionaries(
    st.sampled_from([*ACCELERATOR_KINDS, "cpu", "memory", "other.example/x"]), st.integers(0, 8)
)


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS}), min_size=1
    )
)
def test_one_accelerator_whatever_there_was(resources: list[Json]) -> None:
    containers = [{"name": f"c{at}", "resources": of} for at, of in enumerate(resources)]
    found = {"spec": {"containers": containers, "resourceClaims": [{"name": "claim"}]}}
    assert accelerator_of(without_accelerators(found)) is None
    one = with_one_accelerator(found, GPU)
    assert accelerator_of(one) == GPU
    first, *others = one["spec"]["containers"]
    assert first["resources"]["limits"][GPU] == "1"
    assert first["resources"].get("requests", {GPU: "1"})[GPU] == "1"
    assert all(
        "/" not in name for of in others for each in of["resources"].values() for name in each
    )
    assert "resourceClaims" not in one["spec"]
