"""Templates with fields of the wrong types: told, and a job that runs stays under control."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.aio.client import ApiClient

from penstock.controller.metrics import Metrics
from penstock.controller.operator import Operator, Options
from tests.controller.life import KEY, SETTINGS, Life, template

Json = dict[str, Any]


def container(**fields: Any) -> Json:
    made = template()
    made["spec"]["containers"][0].update(fields)
    return made


def pod_spec(**fields: Any) -> Json:
    made = template()
    made["spec"].update(fields)
    return made


SHAPES = [
    (container(env={"A": "b"}), "spec.containers[0].env: {'A': 'b'}: must be a list"),
    (container(env="x"), "spec.containers[0].env: 'x'"),
    (container(env=[None]), "spec.containers[0].env[0]: None: must be an object"),
    (container(resources="abc"), "spec.containers[0].resources: 'abc'"),
    (container(resources={"requests": ["cpu"]}), "spec.containers[0].resources.requests: ['cpu']"),
    (pod_spec(initContainers="abc"), "spec.initContainers: 'abc': must be a list"),
    (pod_spec(initContainers=[None]), "spec.initContainers[0]: None"),
    (pod_spec(affinity="x"), "spec.affinity: 'x'"),
    (pod_spec(schedulingGates="x"), "spec.schedulingGates: 'x'"),
    ({**template(), "metadata": "abc"}, "metadata: 'abc': must be an object"),
    ({**template(), "metadata": {"labels": ["a"]}}, "metadata.labels: ['a']"),
    ({**template(), "metadata": {"annotations": ["a"]}}, "metadata.annotations: ['a']"),
]


@pytest.mark.parametrize(("broken", "told"), SHAPES)
def test_a_new_job_is_told_the_field(life: Life, broken: Json, told: str) -> None:
    life.create_job(workers={"replicas": 1, "template": broken})
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert life.message("Accepted").startswith(f"spec.replicaSpecs.worker.template.{told}")
    assert life.names(live=False) == []
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(template=template()))
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert life.names("worker") == ["job-worker-0-0"]


@pytest.mark.parametrize(
    ("overlay", "told"),
    [
        ({"spec": {"containers": [{"name": "trainer", "env": "x"}]}}, "spec.containers[0].env"),
        ({"spec": {"initContainers": {"a": 1}}}, "spec.initContainers"),
    ],
)
def test_an_overlay_of_the_trainer_is_told_the_field(life: Life, overlay: Json, told: str) -> None:
    life.create_job(workers={"replicas": 1}, trainer={"template": overlay})
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert life.message("Accepted").startswith(f"spec.trainer.template.{told}: ")


def test_nulls_are_absent(life: Life) -> None:
    wanted = container(env=None, resources=None)
    wanted["spec"].update(affinity=None, initContainers=None, schedulingGates=None)
    overlay = {"metadata": None, "spec": {"containers": None, "volumes": None}}
    life.create_job(workers={"replicas": 1, "template": wanted}, trainer={"template": overlay})
    life.create_scale(
        "plan",
        {"worker": {"resources": {"cpu": "2"}, "ranks": {"0": {"avoidNodes": ["n"]}}}},
        source="User",
    )
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert len(life.names()) == 2


def running(life: Life, **spec: Any) -> None:
    life.create_job(workers={"replicas": 2}, **spec)
    life.settle()
    life.edit_spec(
        lambda found: found["replicaSpecs"]["worker"].update(template=container(env="x"))
    )
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert len(life.names("worker")) == 2, "what runs is left alone"


def test_a_running_job_is_suspended_and_comes_back_once_mended(life: Life) -> None:
    running(life)
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    assert life.names() == []
    assert life.condition("Suspended") == ("True", "Suspended")
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.settle()
    assert life.names("worker") == [], "no pod can be made of it"
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(template=template()))
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert len(life.names("worker")) == 2


def test_a_running_job_meets_its_deadline(life: Life) -> None:
    running(life, activeDeadlineSeconds=100, ttlSecondsAfterFinished=50)
    life.server.advance(101)
    life.settle()
    assert life.condition("Failed") == ("True", "DeadlineExceeded")
    assert life.names() == []
    life.server.advance(60)
    life.settle()
    assert life.server.objects["elasticjobs"] == {}


def test_a_scale_is_decided_once_the_template_can_be_read(life: Life) -> None:
    running(life, resourceLimits={"cpu": "4"})
    life.create_scale("plan", {"worker": {"resources": {"cpu": "3"}}}, source="User")
    life.settle()
    assert "conditions" not in life.server.objects["scales"]["plan"].get("status", {})
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(template=template()))
    life.settle()
    assert life.scale_condition("plan", "Failed") == ("True", "OverQuota")


def test_a_fault_of_the_controller_is_named_in_the_status_once(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("boom")

    life.create_job(workers={"replicas": 1})
    life.deliver()
    monkeypatch.setattr("penstock.controller.reconciler.reconcile", fail)

    async def passes() -> None:
        operator = Operator(ApiClient(), Options(SETTINGS), Metrics())
        operator.store, operator._reconciler = life.store, life.reconciler
        for _ in range(2):
            await operator._pass(KEY)
        operator.queue.close()

    life.loop.run_until_complete(passes())
    assert life.condition("Accepted") == ("Unknown", "ControllerFault")
    assert life.message("Accepted").startswith("RuntimeError: boom")
    assert [verb for verb, _, _ in life.server.calls].count("patch") == 1
    monkeypatch.undo()
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
