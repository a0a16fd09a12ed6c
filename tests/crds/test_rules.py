"""Every CEL rule: what it refuses, at which field, in which words; and that it parses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.crds import cel
from tests.crds.admission import Verdict
from tests.crds.schemas import (
    TEMPLATE,
    create,
    job,
    scale,
    schema_of,
    update,
    update_status,
)

AT = "2026-01-01T00:00:00Z"
RANK_KEYS = "each key must be a rank, a whole number from 0 to 4095 without leading zeros"
POSITIVE = "must be a quantity above zero, such as 500m, 4 or 1.5Gi"
ONLY_WORKERS_SPARE = "only the role worker can have spareReplicas"
SPARES = (
    "spareReplicas and maxReplicas (replicas where there is none) must not add up to more than 4096"
)
WITHIN = (
    "replicas must be 0, which leaves the number to the plan, or from minReplicas to maxReplicas"
)
IN_UNITS = "minReplicas, replicas, maxReplicas and spareReplicas must be multiples of nodeUnit"
ONE_WORKER = (
    "with strategy Local there is one worker: its replicas, minReplicas and maxReplicas must not"
    " be greater than 1, and it has no spareReplicas"
)
JOB_NAME = (
    "metadata.name must be an RFC 1035 label: at most 63 lower-case letters, digits and hyphens,"
    " the first a letter, the last a letter or a digit"
)
SERVERS_FIXED = (
    "with framework TensorFlow the number of parameter servers is fixed: replicas must be greater"
    " than 0"
)
COUNTS_FIXED = (
    "with framework TensorFlow the numbers of workers and of parameter servers are immutable:"
    " create a new job to change them"
)
STATE_VOLUME = "stateVolume must be the name of a volume in trainer.template.spec.volumes"
ADMITTED_ONCE = (
    "a Scale is admitted or refused once: condition Admitted can be neither changed nor removed"
)
WITH_VOLUME = {"template": {"spec": {"volumes": [{"name": "state"}, {"name": "other"}]}}}


def immutable(field: str) -> str:
    return f"{field} is immutable: after creation it can be neither set, changed nor removed"


def ps_job(**changes: Any) -> dict[str, Any]:
    servers = {"spec__strategy": "ParameterServer", "spec__replicaSpecs__ps__template": TEMPLATE}
    return job(**servers, **changes)


def tensorflow_job(**changes: Any) -> dict[str, Any]:
    return job(spec__framework="TensorFlow", spec__replicaSpecs__worker__replicas=2, **changes)


def worker(**fields: Any) -> Callable[[], Verdict]:
    changes = {f"spec__replicaSpecs__worker__{name}": value for name, value in fields.items()}
    return lambda: create(job(**changes))


def local_worker(**fields: Any) -> Callable[[], Verdict]:
    changes = {f"spec__replicaSpecs__worker__{name}": value for name, value in fields.items()}
    return lambda: create(job(spec__strategy="Local", **changes))


def admitted(status: str) -> dict[str, Any]:
    condition = {"type": "Admitted", "status": status, "reason": "Admitted", "message": ""}
    return {"conditions": [{**condition, "lastTransitionTime": AT}]}


def role(name: str, **fields: Any) -> Callable[[], Verdict]:
    return lambda: create(
        ps_job(**{f"spec__replicaSpecs__{name}": {"template": TEMPLATE, **fields}})
    )


REFUSED: list[tuple[str, str, Callable[[], Verdict]]] = [
    ("metadata.name", JOB_NAME, lambda: create(job(metadata__name="9lives"))),
    ("metadata.name", JOB_NAME, lambda: create(job(metadata__name="j" * 64))),
    (
        "spec.strategy",
        "strategy is immutable: create a new job to change it",
        lambda: update(job(), {"spec": {"strategy": "Local"}}),
    ),
    (
        "spec.managedBy",
        immutable("managedBy"),
        lambda: update(job(), {"spec": {"managedBy": "example.org/queue"}}),
    ),
    (
        "spec.managedBy",
        immutable("managedBy"),
        lambda: update(job(spec__managedBy="example.org/queue"), {"spec": {"managedBy": None}}),
    ),
    (
        "spec.stateVolume",
        immutable("stateVolume"),
        lambda: update(job(spec__trainer=WITH_VOLUME), {"spec": {"stateVolume": "state"}}),
    ),
    (
        "spec.stateVolume",
        immutable("stateVolume"),
        lambda: update(
            job(spec__trainer=WITH_VOLUME, spec__stateVolume="state"),
            {"spec": {"stateVolume": "other"}},
        ),
    ),
    (
        "spec.framework",
        immutable("framework"),
        lambda: update(job(), {"spec": {"framework": "PyTorch"}}),
    ),
    (
        "spec.snapshots",
        "snapshots are the workers', which hold no model with strategy ParameterServer",
        lambda: create(ps_job(spec__snapshots={"stateSize": "1Gi"})),
    ),
    (
        "spec.snapshots.stateSize",
        POSITIVE,
        lambda: create(job(spec__snapshots={"stateSize": 0})),
    ),
    (
        "spec.deadline",
        "with objective Deadline, deadline is required",
        lambda: create(job(spec__objective="Deadline")),
    ),
    (
        "spec.deadline",
        "deadline needs objective Deadline",
        lambda: create(job(spec__objective="Cheapest", spec__deadline="2030-01-31T12:00:00Z")),
    ),
    (
        "spec.deadline",
        "deadline needs objective Deadline",
        lambda: create(job(spec__deadline="2030-01-31T12:00:00Z")),
    ),
    (
        "spec.budget",
        "must be a quantity above zero, such as 500m, 4 or 1.5Gi",
        lambda: create(job(spec__budget="-5")),
    ),
    (
        "spec.budget",
        "must be a quantity above zero, such as 500m, 4 or 1.5Gi",
        lambda: create(job(spec__budget=0)),
    ),
    (
        "spec.replicaSpecs.worker.replicas",
        "with framework TensorFlow the number of workers is fixed: replicas must be greater than 0",
        lambda: create(job(spec__framework="TensorFlow")),
    ),
    (
        "spec.replicaSpecs.worker.spareReplicas",
        "with framework TensorFlow the number of workers is fixed: there are no spareReplicas",
        lambda: create(tensorflow_job(spec__replicaSpecs__worker__spareReplicas=1)),
    ),
    (
        "spec.replicaSpecs.ps",
        SERVERS_FIXED,
        lambda: create(
            ps_job(spec__framework="TensorFlow", spec__replicaSpecs__worker__replicas=2)
        ),
    ),
    (
        "spec.replicaSpecs",
        COUNTS_FIXED,
        lambda: update(tensorflow_job(), {"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}),
    ),
    (
        "spec.input.guarantee",
        "input.guarantee is immutable: create a new job to change it",
        lambda: update(job(), {"spec": {"input": {"guarantee": "AtMostOnce"}}}),
    ),
    (
        "spec.input.guarantee",
        "input.guarantee is immutable: create a new job to change it",
        lambda: update(job(spec__input__guarantee="AtMostOnce"), {"spec": {"input": None}}),
    ),
    (
        "spec.input.buckets",
        immutable("buckets"),
        lambda: update(job(), {"spec": {"input": {"buckets": {"boundaries": [64]}}}}),
    ),
    (
        "spec.input.share",
        immutable("share"),
        lambda: update(job(spec__input__share__group="a"), {"spec": {"input": {"share": None}}}),
    ),
    (
        "spec.input.share",
        "with guarantee Unsharded nothing can be shared: leave out input.share",
        lambda: create(job(spec__input={"guarantee": "Unsharded", "share": {"group": "a"}})),
    ),
    (
        "spec.input.share.window",
        "must be a quantity above zero, such as 500m, 4 or 1.5Gi",
        lambda: create(job(spec__input__share={"group": "a", "window": "0"})),
    ),
    (
        "spec.input.cache.memory",
        "must be a quantity above zero, such as 500m, 4 or 1.5Gi",
        lambda: create(job(spec__input__cache={"memory": "0", "paths": ["/data"]})),
    ),
    (
        "spec.replicaSpecs",
        "with strategy ParameterServer, replicaSpecs.ps is required",
        lambda: create(job(spec__strategy="ParameterServer")),
    ),
    (
        "spec.replicaSpecs.ps",
        "replicaSpecs.ps needs strategy ParameterServer",
        lambda: create(job(spec__replicaSpecs__ps__template=TEMPLATE)),
    ),
    ("spec.replicaSpecs.worker", ONE_WORKER, local_worker(replicas=2)),
    ("spec.replicaSpecs.worker", ONE_WORKER, local_worker(minReplicas=2)),
    ("spec.replicaSpecs.worker", ONE_WORKER, local_worker(maxReplicas=2)),
    ("spec.replicaSpecs.worker", ONE_WORKER, local_worker(spareReplicas=1)),
    ("spec.stateVolume", STATE_VOLUME, lambda: create(job(spec__stateVolume="state"))),
    (
        "spec.stateVolume",
        STATE_VOLUME,
        lambda: create(job(spec__trainer=WITH_VOLUME, spec__stateVolume="third")),
    ),
    (
        "spec.resourceLimits",
        "each key must be the name of a resource, such as cpu, memory or nvidia.com/gpu",
        lambda: create(job(spec__resourceLimits={"two words": 1})),
    ),
    (
        "spec.resourceLimits[cpu]",
        "must be a quantity that is not negative, such as 500m, 4 or 1.5Gi",
        lambda: create(job(spec__resourceLimits={"cpu": "-1"})),
    ),
    (
        "spec.replicaSpecs.worker.minReplicas",
        "minReplicas must not be greater than maxReplicas",
        worker(minReplicas=3, maxReplicas=2),
    ),
    ("spec.replicaSpecs.worker.replicas", WITHIN, worker(replicas=1, minReplicas=2)),
    ("spec.replicaSpecs.worker.nodeUnit", IN_UNITS, worker(nodeUnit=2)),
    ("spec.replicaSpecs.worker.nodeUnit", IN_UNITS, worker(nodeUnit=2, minReplicas=2, replicas=3)),
    (
        "spec.replicaSpecs.worker.nodeUnit",
        IN_UNITS,
        worker(nodeUnit=2, minReplicas=2, maxReplicas=5),
    ),
    (
        "spec.replicaSpecs.worker.nodeUnit",
        IN_UNITS,
        worker(nodeUnit=2, minReplicas=2, maxReplicas=4, spareReplicas=1),
    ),
    ("spec.gang", immutable("gang"), lambda: update(job(), {"spec": {"gang": {}}})),
    ("spec.replicaSpecs.worker.replicas", WITHIN, worker(replicas=5, maxReplicas=4)),
    ("spec.replicaSpecs.worker.spareReplicas", SPARES, worker(maxReplicas=4000, spareReplicas=97)),
    ("spec.replicaSpecs.worker.spareReplicas", SPARES, worker(replicas=4000, spareReplicas=97)),
    *[
        (f"spec.replicaSpecs.{name}.{field}", message, role(name, **fields))
        for name in ("ps", "dataWorker", "acceleratedDataWorker", "evaluator")
        for field, message, fields in (
            (
                "minReplicas",
                "minReplicas must not be greater than maxReplicas",
                {"minReplicas": 3, "maxReplicas": 2},
            ),
            ("replicas", WITHIN, {"replicas": 5, "maxReplicas": 4}),
            ("spareReplicas", ONLY_WORKERS_SPARE, {"spareReplicas": 1}),
        )
    ],
    *[
        (
            f"status.ranks.{name}",
            RANK_KEYS,
            lambda name=name: update_status(job(), {"ranks": {name: {"4096": {"restarts": 1}}}}),
        )
        for name in ("worker", "ps", "dataWorker", "acceleratedDataWorker", "evaluator")
    ],
    (
        "spec",
        "a Scale is immutable: create another one instead",
        lambda: update(scale(), {"spec": {"roles": {"worker": {"replicas": 5}}}}),
    ),
    *[
        (f"spec.roles.{name}{field}", message, lambda t=target, n=name: create(spec_of(n, t)))
        for name in ("worker", "ps", "dataWorker", "acceleratedDataWorker", "evaluator")
        for field, message, target in (
            (".ranks", RANK_KEYS, {"ranks": {"01": {"minIncarnation": 1}}}),
            (".resources.cpu", POSITIVE, {"resources": {"cpu": 0}}),
            (".resources.memory", POSITIVE, {"resources": {"memory": "0Gi"}}),
            (".ranks[7].cpu", POSITIVE, {"ranks": {"7": {"cpu": "0"}}}),
            (".ranks[7].memory", POSITIVE, {"ranks": {"7": {"memory": "-1Gi"}}}),
            (".spareReplicas", ONLY_WORKERS_SPARE, {"spareReplicas": 1}),
        )
        if (name, field) != ("worker", ".spareReplicas")
    ],
    (
        "status",
        "status, once written, cannot be removed",
        lambda: update_status(scale(), admitted("True"), None),
    ),
    (
        "status.conditions",
        "conditions, once written, cannot be removed as a whole",
        lambda: update_status(scale(), admitted("True"), {"conditions": None}),
    ),
    (
        "status.conditions",
        ADMITTED_ONCE,
        lambda: update_status(scale(), admitted("True"), admitted("False")),
    ),
    (
        "status.conditions",
        ADMITTED_ONCE,
        lambda: update_status(scale(), admitted("True"), {"conditions": []}),
    ),
    (
        "status.number",
        "a Scale has one number: it cannot be changed",
        lambda: update_status(scale(), {"number": 3}, {"number": 4}),
    ),
    (
        "status.number",
        "number, once written, cannot be removed",
        lambda: update_status(scale(), {"number": 3}, {"number": None}),
    ),
]


def spec_of(name: str, target: dict[str, Any]) -> dict[str, Any]:
    return scale(**{f"spec__roles__{name}": target})


@pytest.mark.parametrize(
    ("field", "message", "request_"),
    REFUSED,
    ids=[f"{field}-{index}" for index, (field, _, _) in enumerate(REFUSED)],
)
def test_a_rule_refuses_with_field_and_message(
    field: str, message: str, request_: Callable[[], Verdict]
) -> None:
    assert request_().faults == [(field, message)]


@pytest.mark.parametrize(
    "request_",
    [
        lambda: create(job(metadata__name="j" * 63)),
        lambda: create(ps_job()),
        lambda: create(tensorflow_job()),
        worker(nodeUnit=2, minReplicas=2, maxReplicas=6, replicas=4),
        lambda: update(tensorflow_job(), {"spec": {"suspend": True}}),
        worker(replicas=0, minReplicas=2, maxReplicas=4),
        worker(maxReplicas=4000, spareReplicas=96),
        local_worker(replicas=1, minReplicas=1, maxReplicas=1),
        local_worker(),
        lambda: create(job(spec__trainer=WITH_VOLUME, spec__stateVolume="state")),
        lambda: create(job(spec__resourceLimits={"nvidia.com/gpu": 0, "memory": "1.5Gi"})),
        lambda: update(job(), {"spec": {"strategy": "AllReduce", "suspend": True}}),
        lambda: update(job(spec__input__skipBad=True), {"spec": {"input": None}}),
        lambda: update_status(scale(), admitted("Unknown"), admitted("True"), admitted("True")),
        lambda: update_status(scale(), {"preview": {"created": ["worker-0"]}}, {"preview": None}),
        lambda: create(spec_of("ps", {"spareReplicas": 0, "replicas": 1})),
    ],
)
def test_a_rule_lets_pass_what_it_is_not_about(request_: Callable[[], Verdict]) -> None:
    assert request_().faults == []


def rules_of(kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every rule of a resource, with a path that tells the roles apart."""
    pending = [("", schema_of(kind))]
    while pending:
        path, schema = pending.pop()
        for rule in schema.get("x-kubernetes-validations", []):
            yield f"{path}{rule.get('fieldPath', '')}".lstrip("."), rule
        inside = schema.get("items") or schema.get("additionalProperties")
        pending += [(f"{path}[]", inside)] if inside else []
        pending += [
            (f"{path}.{name}", child) for name, child in schema.get("properties", {}).items()
        ]


ALL_RULES = [(path, rule) for kind in ("ElasticJob", "Scale") for path, rule in rules_of(kind)]


def test_no_rule_lacks_an_example_above() -> None:
    shown = {(field.partition("[")[0], message) for field, message, _ in REFUSED}
    missing = [
        (path, rule["message"])
        for path, rule in ALL_RULES
        if (path.partition("[")[0], rule["message"]) not in shown
    ]
    assert missing == []


@pytest.mark.parametrize(
    "expression", sorted({rule["rule"] for _, rule in ALL_RULES}), ids=lambda text: text[:50]
)
def test_a_rule_is_cel_of_bounded_length_with_fixed_words(expression: str) -> None:
    assert cel.parses(expression)
    assert len(expression) < 500


def test_rules_have_fixed_messages() -> None:
    # A message that is computed costs more than the server allows in a map by rank.
    assert {key for _, rule in ALL_RULES for key in rule} == {"rule", "message", "fieldPath"}
