"""The generated schemas, and the smallest objects that they accept."""

from __future__ import annotations

import copy
import functools
from typing import Any

from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.scale import SCALE
from penstock.crds.schema import structural_schema
from tests.crds import admission
from tests.crds.admission import Verdict

TEMPLATE: dict[str, Any] = {
    "spec": {"containers": [{"name": "main", "image": "example.org/train:1"}]}
}
JOB: dict[str, Any] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "mnist"},
    "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": {"template": TEMPLATE}}},
}
SCALE_OBJECT: dict[str, Any] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "Scale",
    "metadata": {"name": "mnist-1"},
    "spec": {
        "jobRef": {"name": "mnist", "uid": "11111111-2222-3333-4444-555555555555"},
        "source": "Brain",
        "roles": {"worker": {"replicas": 4}},
    },
}
WORKER = "spec.replicaSpecs.worker"


@functools.cache
def schema_of(kind: str) -> dict[str, Any]:
    """The structural schema of a kind."""
    return structural_schema({"ElasticJob": ELASTICJOB, "Scale": SCALE}[kind])


def job(**changes: Any) -> dict[str, Any]:
    """The smallest ElasticJob with fields set by path; ``__`` in a keyword is a dot."""
    return with_fields(JOB, _paths(changes))


def scale(**changes: Any) -> dict[str, Any]:
    """The smallest Scale with fields set by path; ``__`` in a keyword is a dot."""
    return with_fields(SCALE_OBJECT, _paths(changes))


def with_fields(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of the object with the values at those dotted paths."""
    changed = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = changed
        for step in parents:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        at[last] = value
    return changed


def create(document: dict[str, Any]) -> Verdict:
    """What comes of creating the object."""
    return admission.create(schema_of(document["kind"]), document)


def update(before: dict[str, Any], patch: dict[str, Any]) -> Verdict:
    """What comes of creating an object and then changing it."""
    created = create(before)
    assert created.faults == []
    return admission.update(schema_of(before["kind"]), created.document, patch)


def update_status(before: dict[str, Any], *statuses: Any) -> Verdict:
    """What comes of writing one status after another to a new object."""
    verdict = create(before)
    for status in statuses:
        assert verdict.faults == []
        verdict = admission.update_status(
            schema_of(before["kind"]), verdict.document, {"status": status}
        )
    return verdict


def _paths(changes: dict[str, Any]) -> dict[str, Any]:
    return {path.replace("__", "."): value for path, value in changes.items()}
