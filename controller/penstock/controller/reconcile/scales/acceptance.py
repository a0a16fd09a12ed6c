"""Acceptance: whether a job's spec can be carried out at all, with the field at fault if not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Role
from penstock.controller.reconcile.desired import quota
from penstock.controller.reconcile.desired.accelerators import (
    NONE_DECLARED,
    NONE_DERIVED,
    accelerator_of,
    can_be_made,
)
from penstock.controller.reconcile.desired.targets import Target
from penstock.controller.reconcile.model.observed import Job, Refusal, Settings
from penstock.crds.conditions import JobReason
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.pod_shape import TemplateError, check_template

_NOT_VALID: Final = frozenset({400, 413, 422})
_CONFLICT: Final = 409

_TRAINER_TEMPLATE: Final = "spec.trainer.template"

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
    return None


def faults_of_templates(spec: ElasticJobSpec) -> dict[str, Fault]:
    """The templates of which no pod can be made, by role: the field, its value, the rule.

    Data workers that are not declared are made of the worker's template.
    """
    faults: dict[str, Fault] = {}
    declared = spec.replica_specs.by_role()
    for role, role_spec in declared.items():
        try:
            check_template(role_spec.template)
            quota.template_requests(role_spec.template)
            if role is Role.ACCELERATED_DATA_WORKER:
                _check_accelerator(role_spec.template)
        except TemplateError as error:
            faults[role] = JobReason.INVALID_TEMPLATE, f"{template_path(role)}.{error}"
        except ValueError as error:
            faults[role] = JobReason.INVALID_SPEC, f"{template_path(role)}.spec.{error}"
    for role in DATA_ROLES if Role.WORKER in faults else ():
        if role not in declared:
            faults[role] = faults[Role.WORKER]
    if spec.trainer is not None and spec.trainer.template is not None:
        try:
            check_template(spec.trainer.template, partial=True)
        except TemplateError as error:
            faults[TRAINER_ROLE] = JobReason.INVALID_TEMPLATE, f"{_TRAINER_TEMPLATE}.{error}"
    return faults


def _check_accelerator(template: Mapping[str, Any]) -> None:
    """Devices of a claim are taken for accelerators: what is behind it cannot be read here."""
    pod = template["spec"]
    if accelerator_of(template) is None and not pod.get("resourceClaims"):
        resources = [container.get("resources") for container in pod["containers"]]
        raise TemplateError("spec.containers[*].resources", resources, NONE_DECLARED)


def fault_of_derived(spec: ElasticJobSpec, target: Target) -> Fault | None:
    """What is wrong with accelerated data workers that the target has and the spec does not."""
    role = Role.ACCELERATED_DATA_WORKER
    if target.role(role).total and not can_be_made(spec, role):
        return JobReason.INVALID_TEMPLATE, f"{template_path(role)}: {NONE_DERIVED}"
    return None


def without_templates(spec: ElasticJobSpec, roles: Collection[str]) -> ElasticJobSpec:
    """The spec with nothing but the containers' names in the templates of some roles.

    A running job goes on by it, and ends by it, while no pod of these roles can be made.
    """
    replicas = spec.replica_specs
    bare = {
        role: declared.model_copy(update={"template": _bare(declared.template)})
        for role, declared in replicas.by_role().items()
        if role in roles
    }
    update: dict[str, Any] = {"replica_specs": replicas.with_roles(bare)}
    if TRAINER_ROLE in roles:
        update["trainer"] = None
    return spec.model_copy(update=update)


def _bare(template: Mapping[str, Any]) -> dict[str, Any]:
    names = [{"name": container["name"]} for container in template["spec"]["containers"]]
    return {"spec": {"containers": names}}


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
    """Whether the target asks for more than the job may have, or the limits allow nothing."""
    fault = _fault_of_limits(spec)
    if fault is not None:
        return fault
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
