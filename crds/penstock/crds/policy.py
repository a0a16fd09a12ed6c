"""What a job's trainer may do in the Kubernetes API: one role and three admission policies.

RBAC says which verbs on which resources; it cannot say on which objects, nor with what content.
That is what the policies add: a trainer writes plans for its own job and in the Brain's name
alone, of a Scale's status it sets the one condition that is its to set, and of its job's status it
writes the one field that is its own.

Whoever is called ``system:serviceaccount:NAMESPACE:JOB-trainer`` is taken for the trainer of JOB
in NAMESPACE, so service accounts with names ending in ``-trainer`` are reserved.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.enums import Policy, Source
from penstock.crds.conditions import ScaleCondition
from penstock.crds.group import ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL
from penstock.crds.job_status import ElasticJobStatus

TRAINER_ROLE_NAME: Final = "penstock-trainer"
"""The ClusterRole that the controller binds each trainer's service account to."""

SERVICE_ACCOUNT_SUFFIX: Final = "-trainer"
"""What follows the job's name in the name of its trainer's service account."""

TRAINER_FIELD: Final = "problems"
"""The field of a job's status that is its trainer's."""

_IS_TRAINER: Final = {
    "name": "is-trainer",
    "expression": "request.userInfo.username.matches("
    f"'^system:serviceaccount:[^:]+:[^:]+{SERVICE_ACCOUNT_SUFFIX}$')",
}
# "system", "serviceaccount", the namespace, the account: `namespace` itself is a reserved word.
_OWN_NAMESPACE: Final = {
    "name": "ownNamespace",
    "expression": "request.userInfo.username.split(':')[2]",
}
_OWN_JOB: Final = {
    "name": "ownJob",
    "expression": "request.userInfo.username.split(':')[3].substring("
    f"0, size(request.userInfo.username.split(':')[3]) - {len(SERVICE_ACCOUNT_SUFFIX)})",
}


def trainer_policy() -> list[dict[str, Any]]:
    """The ClusterRole, and the policies with the bindings that put them in force."""
    return [
        _cluster_role(),
        *_policy("penstock-trainer-scales", "CREATE", SCALE_PLURAL, [], _on_create()),
        *_policy(
            "penstock-trainer-scale-status",
            "UPDATE",
            f"{SCALE_PLURAL}/status",
            [_other_conditions("others", "object"), _other_conditions("oldOthers", "oldObject")],
            _on_status(),
        ),
        *_policy(
            "penstock-trainer-job-status",
            "UPDATE",
            f"{ELASTICJOB_PLURAL}/status",
            [],
            _on_job_status(),
        ),
    ]


def _cluster_role() -> dict[str, Any]:
    def rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
        return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}

    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": TRAINER_ROLE_NAME},
        "rules": [
            rule(GROUP, ELASTICJOB_PLURAL, "get", "list", "watch"),
            rule(GROUP, f"{ELASTICJOB_PLURAL}/status", "patch"),
            rule(GROUP, SCALE_PLURAL, "create", "get", "list", "watch"),
            rule(GROUP, f"{SCALE_PLURAL}/status", "patch"),
            rule("", "pods", "list", "watch"),
        ],
    }


def _policy(
    name: str,
    operation: str,
    resource: str,
    variables: list[dict[str, str]],
    validations: list[dict[str, str]],
) -> list[dict[str, Any]]:
    """A policy on what trainers do with one resource, and its binding."""
    matched = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
        "scope": "*",
    }
    # With what the API server would add: to whoever applies it next, that would be a conflict.
    constraints = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [matched],
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "matchConditions": [_IS_TRAINER],
            "variables": [_OWN_NAMESPACE, _OWN_JOB, *variables],
            "validations": [{**validation, "reason": "Forbidden"} for validation in validations],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _on_create() -> list[dict[str, str]]:
    return [
        {
            "expression": "request.namespace == variables.ownNamespace",
            "messageExpression": "'a trainer creates Scales in its own namespace only, which is '"
            " + variables.ownNamespace",
        },
        {
            "expression": "object.spec.jobRef.name == variables.ownJob",
            "messageExpression": "'a trainer creates Scales for its own job only: spec.jobRef.name"
            " must be ' + variables.ownJob",
        },
        {
            "expression": f"object.spec.source == '{Source.BRAIN}'",
            "message": f"a trainer's Scale must have spec.source {Source.BRAIN}",
        },
        {
            "expression": f"object.spec.policy == '{Policy.APPLY}'",
            "message": f"a trainer's Scale must have spec.policy {Policy.APPLY}",
        },
    ]


def _on_status() -> list[dict[str, str]]:
    return [
        {
            "expression": "request.namespace == variables.ownNamespace && "
            "object.spec.jobRef.name == variables.ownJob",
            "message": "a trainer writes the status of its own job's Scales only",
        },
        {
            "expression": "variables.others == variables.oldOthers",
            "message": f"a trainer sets no condition but {ScaleCondition.PREPARED}",
        },
        *(
            {
                "expression": _unchanged(field),
                "message": f"a trainer does not change status.{field}",
            }
            for field in ("preview", "number")
        ),
    ]


def _on_job_status() -> list[dict[str, str]]:
    """Every field is named, since CEL has no way to say "all but one"."""
    return [
        {
            "expression": "request.namespace == variables.ownNamespace && "
            "object.metadata.name == variables.ownJob",
            "message": "a trainer writes the status of its own job only",
        },
        *(
            {
                "expression": _unchanged(str(field.alias)),
                "message": f"a trainer does not change status.{field.alias}",
            }
            for name, field in ElasticJobStatus.model_fields.items()
            if name != TRAINER_FIELD
        ),
    ]


def _unchanged(field: str) -> str:
    """Whether a write leaves one field of a status as it is."""

    def has(which: str) -> str:
        return f"(has({which}.status) && has({which}.status.{field}))"

    return (
        f"{has('object')} == {has('oldObject')} && "
        f"(!{has('object')} || object.status.{field} == oldObject.status.{field})"
    )


def _other_conditions(name: str, which: str) -> dict[str, str]:
    """The conditions that are not the trainer's to set, before or after the write."""
    return {
        "name": name,
        "expression": f"has({which}.status) && has({which}.status.conditions) ? "
        f"{which}.status.conditions.filter(c, c.type != '{ScaleCondition.PREPARED}') : []",
    }
