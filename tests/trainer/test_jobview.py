"""What a job's spec says to the Brain, whatever its templates hold."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.crds.elasticjob import ElasticJob
from penstock.crds.enums import Role
from penstock.trainer.jobview import registration_of


def job(resources: dict[str, Any]) -> ElasticJob:
    container = {"name": "main", "image": "x", "resources": resources}
    worker = {"maxReplicas": 4, "template": {"spec": {"containers": [container]}}}
    return ElasticJob.model_validate(
        {
            "metadata": {"name": "j", "namespace": "default", "uid": "u"},
            "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": worker}},
        }
    )


@pytest.mark.parametrize("amount", ["0", 0, "-0", "0m", "-1", -1, None, "0" * 40 + "1", "lots", []])
@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_an_amount_that_says_nothing_is_none_stated(
    field: str, resource: str, amount: object
) -> None:
    said = registration_of(job({field: {resource: amount}}), 4, None).roles[Role.WORKER]
    assert (said.cpu, said.memory) == (None, None)


def test_requests_go_before_limits_and_numbers_are_amounts() -> None:
    resources = {"requests": {"cpu": 2}, "limits": {"cpu": "4", "memory": "1Gi"}}
    said = registration_of(job(resources), 4, None).roles[Role.WORKER]
    assert (said.cpu, said.memory) == ("2", "1Gi")
