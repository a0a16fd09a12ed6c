"""A template that the API server would refuse is told before a plan needs its pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.kube.errors import ApiRefusedError
from tests.controller.life import Life, template

TOLD = 'Pod "job-worker-0-0" is invalid: spec.containers[0].image: Required value'


def refuse_workers(life: Life, code: int = 422, told: str = TOLD) -> None:
    def refuse(pod: Mapping[str, Any]) -> None:
        if "-worker-" in pod["metadata"]["name"]:
            raise ApiRefusedError(told, code=code, reason="Invalid")

    life.server.refuses_pod = refuse


def checks(life: Life) -> int:
    return sum(verb == "check" for verb, _, _ in life.server.calls)


def test_a_refused_template_is_named_before_there_is_a_plan(life: Life) -> None:
    refuse_workers(life)
    life.create_job(optimize="Auto")
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert life.message("Accepted") == f"spec.replicaSpecs.worker.template: {TOLD}"
    assert life.condition("Planned")[1] == "WaitingForPlan"


def test_a_repaired_template_is_tried_again(life: Life) -> None:
    refuse_workers(life)
    life.create_job(optimize="Auto")
    life.settle()
    life.server.refuses_pod = None
    life.edit_spec(lambda spec: spec.update(suspend=False))
    life.edit_spec(
        lambda spec: spec["replicaSpecs"]["worker"].update(template=template(memory="2Gi"))
    )
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")


def test_a_pod_that_was_made_proves_the_template(life: Life) -> None:
    refuse_workers(life)
    life.create_job(optimize="Auto")
    life.settle()
    life.server.refuses_pod = None
    life.create_scale("plan", {"worker": {"replicas": 1}}, source="Brain")
    life.settle()
    assert life.names("worker") == ["job-worker-0-0"]
    assert life.condition("Accepted") == ("True", "Accepted")


def test_an_edit_of_a_running_jobs_template_is_checked_at_once(life: Life) -> None:
    life.create_job(workers={"replicas": 1})
    life.settle()
    assert checks(life) == 0, "its pods were the check"
    refuse_workers(life)
    life.edit_spec(
        lambda spec: spec["replicaSpecs"]["worker"].update(template=template(memory="2Gi"))
    )
    life.settle()
    assert life.condition("Accepted") == ("False", "InvalidTemplate")
    assert life.names("worker") == ["job-worker-0-0"], "what runs is left alone"


def test_other_edits_and_restarts_cost_no_check(life: Life) -> None:
    life.create_job(workers={"replicas": 2})
    life.settle()
    life.edit_spec(lambda spec: spec["replicaSpecs"]["worker"].update(replicas=1))
    life.settle()
    life.restart()
    life.settle()
    assert checks(life) == 0


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (400, "admission webhook policy.example.com does not support dry run"),
        (403, "exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8"),
        (409, 'pods "job-worker-0-0" already exists'),
    ],
)
def test_what_may_pass_later_is_no_fault_of_the_template(life: Life, code: int, told: str) -> None:
    refuse_workers(life, code, told)
    life.create_job(optimize="Auto")
    life.settle()
    assert life.condition("Accepted") == ("True", "Accepted")
    assert checks(life) == 1
