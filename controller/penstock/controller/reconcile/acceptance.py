"""Acceptance: whether a job's spec can be carried out at all, with the field at fault if not."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.controller.reconcile import quota
from penstock.controller.reconcile.observed import Job, Refusal, Settings
from penstock.controller.reconcile.targets import Target
from penstock.crds.conditions import JobReason
from penstock.crds.elasticjob import ElasticJobSpec

_NOT_VALID = frozenset({400, 413, 422})
_CONFLICT = 409

Fault = tuple[JobReason, str]


def fault_of_spec(job: Job, settings: Settings) -> Fault | None:
    """What is wrong with a spec by itself; such a job is left as it is until its spec changes."""
    if job.spec is None:
        return JobReason.INVALID_SPEC, job.spec_error
    spec = job.spec
    if spec.strategy not in settings.supported_strategies:
        known = ", ".join(sorted(settings.supported_strategies))
        text = f"spec.strategy: {spec.strategy.value!r}: has no runtime yet; supported: {known}"
        return JobReason.UNSUPPORTED_STRATEGY, text
    fault = _fault_of_limits(spec)
    if fault is not None:
        return fault
    for role, declared in spec.replica_specs.by_role().items():
        try:
            quota.template_requests(declared.template)
        except ValueError as error:
            return JobReason.INVALID_SPEC, f"{template_path(role)}.spec.{error}"
    return None


def template_path(role: str) -> str:
    """The field of a job that holds the template of a role."""
    return f"spec.replicaSpecs.{role}.template"


def _fault_of_limits(spec: ElasticJobSpec) -> Fault | None:
    """A limit within which no pod can run, whether or not a template names what it requests."""
    for resource, text in (spec.resource_limits or {}).items():
        if resource in {quota.CPU, quota.MEMORY} and quota.parse(resource, text) <= 0:
            field = f"spec.resourceLimits[{resource}]"
            told = f"{field}: {text!r}: no worker can run within it; raise it or leave it out"
            return JobReason.OVER_QUOTA, told
    return None


def fault_of_target(spec: ElasticJobSpec, target: Target) -> Fault | None:
    """Whether the target asks for more than the job may have."""
    over = quota.excess(spec, target)
    return (JobReason.OVER_QUOTA, quota.describe(over)) if over else None


def fault_of_objects(refusals: Mapping[str, Refusal]) -> Fault | None:
    """What the API server would not create. It is tried again, so this clears itself."""
    for refusal in refusals.values():
        if refusal.code == _CONFLICT:
            text = f"{refusal.what} exists and does not belong to this job: {refusal.message}"
            return JobReason.NAME_TAKEN, text
        if refusal.code in _NOT_VALID:
            return JobReason.INVALID_TEMPLATE, f"{refusal.what}: {refusal.message}"
    return None
