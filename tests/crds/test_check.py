"""Checking an object without a server names the field, the rule and the value."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.crds.check import Fault, faults_in
from tests.crds.schemas import JOB, SCALE_OBJECT, TEMPLATE, job, scale


@pytest.mark.parametrize("document", [JOB, SCALE_OBJECT], ids=["job", "scale"])
def test_the_smallest_objects_have_no_faults(document: dict[str, Any]) -> None:
    assert faults_in(document) == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            job(spec__strategy="Allreduce"),
            "spec.strategy: should be 'AllReduce', 'ParameterServer' or 'Local', got 'Allreduce'",
        ),
        (job(spec__strategy=None), "spec.strategy: is required"),
        (
            job(spec__replicaSpecs__worker__replicas=4097),
            "spec.replicaSpecs.worker.replicas: should be less than or equal to 4096, got 4097",
        ),
        (
            job(spec__replicaSpecs__worker__replicas="3"),
            "spec.replicaSpecs.worker.replicas: should be a valid integer, got '3'",
        ),
        (
            job(spec__replicaSpecs__worker__maxreplicas=3),
            "spec.replicaSpecs.worker.maxreplicas: no such field",
        ),
        (
            job(spec__replicaSpecs__master={"template": TEMPLATE}),
            "spec.replicaSpecs.master: no such field",
        ),
        (
            job(spec__resourceLimits={"cpu": "-1"}),
            (
                "spec.resourceLimits.cpu: must be a quantity that is not negative, such as 500m, 4"
                " or 1.5Gi, got '-1'"
            ),
        ),
        (
            job(spec__replicaSpecs__worker__template={"spec": {"containers": []}}),
            (
                "spec.replicaSpecs.worker.template.spec.containers: should have at least 1 item;"
                " there are 0"
            ),
        ),
        (
            job(spec__replicaSpecs__worker__template__spec__containers=[{"name": "a"}] * 2),
            "spec.replicaSpecs.worker.template.spec.containers: item 1 repeats 'a'",
        ),
        (
            job(status={"startTime": 0}),
            "status.startTime: should be a time with its zone, such as 2026-01-31T12:00:00Z, got 0",
        ),
        (
            job(spec__objective="Deadline", spec__deadline="2027-01-01T00:00:00"),
            (
                "spec.deadline: should be a time with its zone, such as 2026-01-31T12:00:00Z,"
                " got '2027-01-01T00:00:00'"
            ),
        ),
        (
            job(spec__objective="Deadline", spec__deadline="tomorrow"),
            (
                "spec.deadline: should be a time with its zone, such as 2026-01-31T12:00:00Z,"
                " got 'tomorrow'"
            ),
        ),
        (
            scale(spec__roles__worker={}),
            (
                "spec.roles.worker: should have at least 1 of the fields replicas, spareReplicas,"
                " resources, ranks"
            ),
        ),
        (
            scale(spec__roles__ps={"ranks": {"01": {"cpu": "4"}}}),
            (
                "spec.roles.ps.ranks.01: each key must be a rank, a whole number from 0 to 4095"
                " without leading zeros, got '01'"
            ),
        ),
        (scale(spec__roles__master={"replicas": 1}), "spec.roles.master: no such field"),
        ({"kind": "Job"}, "kind: should be one of ElasticJob, Scale"),
        ({}, "kind: should be one of ElasticJob, Scale"),
        (
            {"kind": "Scale", "apiVersion": "penstock.dev/v1"},
            "apiVersion: should be penstock.dev/v1alpha1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_reads_as(document: dict[str, Any], expected: str) -> None:
    assert [str(fault) for fault in faults_in(document)] == [expected]


def test_every_fault_is_found_at_once() -> None:
    document = job(spec__suspend="yes", spec__optimize="auto", spec__signature={"model": ""})
    assert sorted(fault.field for fault in faults_in(document)) == [
        "spec.optimize",
        "spec.signature.model",
        "spec.suspend",
    ]


def test_a_long_value_is_cut() -> None:
    (fault,) = faults_in(job(spec__signature={"user": "u" * 100_000}))
    assert len(fault.message) < 200


def test_what_a_template_holds_is_not_looked_into() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": 7}], "future": {"x": None}}}
    assert faults_in(job(spec__replicaSpecs__worker__template=template)) == []


@pytest.mark.parametrize("odd", [None, [], "text", 7, {"worker": 3}])
def test_objects_of_the_wrong_shape_are_faults_not_errors(odd: Any) -> None:
    assert all(isinstance(fault, Fault) for fault in faults_in(job(spec__replicaSpecs=odd)))
    assert faults_in(job(spec__replicaSpecs=odd))
    assert faults_in(job(metadata=odd)) or odd in (None, {"worker": 3})
