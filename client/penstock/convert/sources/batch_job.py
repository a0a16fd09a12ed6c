"""Job of Kubernetes (batch/v1): one program, or as many as it has completions."""

from __future__ import annotations

from typing import Final

from penstock.base.enums import Optimize, Strategy
from penstock.convert.assembly import (
    Conversion,
    bounded,
    carried,
    fixed,
    in_units,
    job,
    restarts,
    role,
)
from penstock.convert.program import Setting
from penstock.convert.source import Json, Source
from penstock.convert.template import RoleProgram, role_template

SPEC: Final = ("spec",)
DROPPED: Final = {
    "selector": "pods are found by the labels that Penstock puts on them",
    "manualSelector": "pods are found by the labels that Penstock puts on them",
    "podFailurePolicy": "every failure counts against spec.failurePolicy.maxRestarts, a lost or "
    "preempted pod against maxPreemptions",
    "successPolicy": "the job has succeeded when all workers have",
    "maxFailedIndexes": "spec.failurePolicy.maxRestarts is of each rank",
    "podReplacementPolicy": "a pod is replaced when it has ended",
    "managedBy": "no other controller is to run the job: spec.managedBy would name one",
}
VARIABLES: Final = {"JOB_COMPLETION_INDEX": "PENSTOCK_RANK"}
_DEFAULT_BACKOFF: Final = 6
_TEMPLATE_LABELS: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)


def convert(source: Source) -> Conversion:
    """An ElasticJob: Local for one pod, AllReduce for several.

    Raises:
        RefusedError: the job has no correspondence.
    """
    number = _workers(source)
    how = RoleProgram(Setting(), variables=VARIABLES, several=number > 1)
    template = role_template(source, (*SPEC, "template"), how)
    labels = (template.manifest.get("metadata") or {}).get("labels") or {}
    for name in _TEMPLATE_LABELS:
        source.drop(("spec", "template", "metadata", "labels", name), "the Job controller's")
        labels.pop(name, None)
    launched = template.program.launcher is not None
    fields: Json = carried(
        source,
        {
            "activeDeadlineSeconds": (*SPEC, "activeDeadlineSeconds"),
            "ttlSecondsAfterFinished": (*SPEC, "ttlSecondsAfterFinished"),
            "suspend": (*SPEC, "suspend"),
        },
    )
    if number > 1 and not launched:
        fields["independentWorkers"] = True
        source.change(
            (*SPEC, "parallelism"),
            "workers of a command without a launcher are programs of their own: "
            "spec.independentWorkers",
        )
    source.drop_all(SPEC, DROPPED)
    backoff = [
        (path, said)
        for path in ((*SPEC, "backoffLimit"), (*SPEC, "backoffLimitPerIndex"))
        if (said := source.integer(path)) is not None
    ]
    failures = restarts(source, backoff, template.program.max_restarts)
    fields |= failures or {"failurePolicy": {"maxRestarts": _DEFAULT_BACKOFF}}
    strategy = Strategy.ALL_REDUCE if number > 1 or launched else Strategy.LOCAL
    count = bounded(fixed(number), template.program.nodes)
    count = in_units(source, template.container, count, template.program)
    document = job(source, strategy, Optimize.MANUAL, fields, {"worker": role(count, template)})
    return Conversion(source.label, document, tuple(source.finish()))


def _workers(source: Source) -> int:
    """Pods that run at once.

    Raises:
        RefusedError: the job runs more pods, one after the other.
    """
    parallelism = source.integer((*SPEC, "parallelism"))
    completions = source.integer((*SPEC, "completions"))
    at_once = 1 if parallelism is None else parallelism
    if completions is not None and completions > at_once:
        raise source.refused(
            (*SPEC, "completions"),
            f"of which {at_once} run at once: a queue of runs is no training job, so keep the Job",
        )
    number = at_once if completions is None else completions
    if number == 0:
        raise source.refused((*SPEC, "parallelism"), "runs no pod: suspend: true says so")
    for field in ("parallelism", "completions"):
        source.change((*SPEC, field), f"spec.replicaSpecs.worker.replicas: {number}")
    source.change((*SPEC, "completionMode"), "each worker has a rank: PENSTOCK_RANK")
    return number
