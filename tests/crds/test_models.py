"""The models in Python: snake case, frozen, tolerant of what the server is tolerant of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from penstock.base.enums import Guarantee, Role, Source
from penstock.base.targets import RankTarget, Resources, RoleTarget
from penstock.crds.elasticjob import ElasticJob
from penstock.crds.job_status import ElasticJobStatus, RankStatus
from penstock.crds.meta import Condition, ObjectMeta
from penstock.crds.scale import JobReference, Scale, ScaleSpec
from tests.crds.schemas import TEMPLATE, job


def plan() -> Scale:
    """A Scale as the trainer writes one."""
    return Scale(
        metadata=ObjectMeta(generate_name="mnist-"),
        spec=ScaleSpec(
            job_ref=JobReference(name="mnist", uid="1-2"),
            source=Source.BRAIN,
            roles={
                Role.WORKER: RoleTarget(replicas=4, resources=Resources(cpu="8", memory="16Gi")),
                Role.PS: RoleTarget(ranks={3: RankTarget(memory="64Gi")}),
            },
        ),
    )


def test_a_scale_is_written_in_camel_case_without_what_is_absent() -> None:
    assert plan().model_dump(by_alias=True, exclude_none=True, mode="json") == {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"generateName": "mnist-"},
        "spec": {
            "jobRef": {"name": "mnist", "uid": "1-2"},
            "source": "Brain",
            "policy": "Apply",
            "dryRun": False,
            "ttlSecondsAfterFinished": 3600,
            "roles": {
                "worker": {"replicas": 4, "resources": {"cpu": "8", "memory": "16Gi"}},
                "ps": {"ranks": {"3": {"memory": "64Gi"}}},
            },
        },
    }


def test_what_is_written_is_read_back() -> None:
    written = plan().model_dump(by_alias=True, exclude_none=True, mode="json")
    assert Scale.model_validate(written) == plan()


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        plan().spec.source = Source.USER  # type: ignore[misc]  # the assignment is what is refused


def test_roles_and_ranks_are_keys_that_python_can_use() -> None:
    roles = plan().spec.roles
    assert roles[Role.PS] is roles["ps"]  # type: ignore[index]  # a plain string is the key's equal
    assert roles[Role.PS].ranks == {3: RankTarget(memory="64Gi")}


def test_an_integer_quantity_becomes_its_text() -> None:
    assert Resources.model_validate({"cpu": 4}).cpu == "4"


def test_nulls_are_absent_fields() -> None:
    spec = ElasticJob.model_validate(
        job(
            spec__optimize=None,
            spec__input={"guarantee": None},
            spec__resourceLimits={"cpu": None, "memory": "1Gi"},
            spec__replicaSpecs__ps=None,
        )
    ).spec
    assert spec.optimize == "Auto"
    assert spec.input.guarantee is Guarantee.EXACTLY_ONCE
    assert spec.resource_limits == {"memory": "1Gi"}
    assert set(spec.replica_specs.by_role()) == {Role.WORKER}


def test_fields_and_roles_of_a_later_version_are_dropped() -> None:
    status = ElasticJobStatus.model_validate(
        {"phase": "Running", "replicas": {"worker": {"ready": 1}, "router": {"ready": 1}}}
    )
    assert status.replicas is not None
    assert set(status.replicas) == {Role.WORKER}


def test_a_template_is_kept_as_it_was_written() -> None:
    pod_spec = {**TEMPLATE["spec"], "future": [1, {"x": None}]}
    template = {"spec": pod_spec, "note": None}
    spec = ElasticJob.model_validate(job(spec__replicaSpecs__worker__template=template)).spec
    assert spec.replica_specs.worker.template is template
    written = spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert written["replicaSpecs"]["worker"]["template"] == template


def test_a_rank_writes_only_what_is_not_zero() -> None:
    status = ElasticJobStatus(ranks={Role.WORKER: {0: RankStatus(incarnation=2)}})
    written = status.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert written == {"ranks": {"worker": {"0": {"incarnation": 2}}}}
    assert RankStatus.model_validate({}) == RankStatus(incarnation=0, restarts=0, preemptions=0)


def test_times_are_written_in_utc_with_whole_seconds() -> None:
    moment = datetime(2026, 1, 31, 14, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    condition = Condition(
        type="Running",
        status="True",
        reason="EnoughWorkers",
        message="",
        last_transition_time=moment,
    )
    written = condition.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert written["lastTransitionTime"] == "2026-01-31T12:00:00Z"
    read = Condition.model_validate(written)
    assert read.last_transition_time == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert read.is_true


def test_metadata_that_the_server_sets_is_optional() -> None:
    read = ObjectMeta.model_validate(
        {
            "name": "mnist",
            "uid": "1",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{}],
            "labels": None,
        }
    )
    assert (read.generation, read.labels, read.owner_references) == (2, {}, [])
    assert ObjectMeta(name="a").model_dump(by_alias=True, exclude_none=True, mode="json") == {
        "name": "a"
    }


def test_roles_come_in_the_order_of_their_enum() -> None:
    specs = {role.value: {"template": TEMPLATE} for role in reversed(Role)}
    read = ElasticJob.model_validate(
        job(spec__strategy="ParameterServer", spec__replicaSpecs=specs)
    )
    assert list(read.spec.replica_specs.by_role()) == list(Role)
    assert read.spec.replica_specs.data_worker is not None
    assert read.spec.replica_specs.data_worker.min_replicas == 0
    assert read.spec.replica_specs.accelerated_data_worker is not None
    assert read.spec.replica_specs.accelerated_data_worker.min_replicas == 0
