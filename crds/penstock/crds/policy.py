"""What a job's trainer may do in the Kubernetes API: a role and three admission policies.

The role is one of its job's own, which the controller makes: it names the job, so that no trainer
reads another's. What RBAC cannot say is on which objects one creates and lists, and with what
content. For writes the policies add that: a trainer writes plans for its own job and in the Brain's
name alone, of a Scale's status it sets the one condition that is its to set, and of its job's
status it writes the three fields that are its own. Reads know no policy, so the pods of its whole
namespace stay open to a trainer, and with parameter servers the Scales.

Whoever is called ``system:serviceaccount:NAMESPACE:JOB-trainer`` is taken for the trainer of JOB
in NAMESPACE, so service accounts with names ending in ``-trainer`` are reserved.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.enums import Policy, Source
from penstock.crds.admission_policy import policy_and_binding
from penstock.crds.conditions import ScaleCondition
from penstock.crds.group import ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL
from penstock.crds.job_status import ElasticJobStatus

TRAINER_ROLE_NAME: Final = "penstock-trainer"
"""The ClusterRole that earlier releases bound trainers to, for those of their jobs that still run.

It reads all jobs of a namespace. To be removed with the next release.
"""

SERVICE_ACCOUNT_SUFFIX: Final = "-trainer"
"""What follows the job's name in the name of its trainer's service account."""

PROBLEMS_FIELD: Final = "problems"
INPUT_FIELD: Final = "input"
ESTIMATE_FIELD: Final = "estimatedCompletionTime"
TRAINER_FIELDS: Final = (PROBLEMS_FIELD, INPUT_FIELD, ESTIMATE_FIELD)
"""The fields of a job's status that are its trainer's."""

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


def trainer_rules(job: str, *, has_servers: bool) -> list[dict[str, Any]]:
    """The rules of the role of one job's trainer.

    A list or a watch is of one name where its field selector says so.

    Args:
        job: the job's name.
        has_servers: whether the job has parameter servers, about which Scales ask its trainer.
    """
    own = {"resourceNames": [job]}
    rules = [
        {**_rule(GROUP, ELASTICJOB_PLURAL, "get", "list", "watch"), **own},
        {**_rule(GROUP, f"{ELASTICJOB_PLURAL}/status", "patch"), **own},
        _rule(GROUP, SCALE_PLURAL, "create"),
        _rule("", "pods", "list", "watch"),
    ]
    if has_servers:
        rules += [
            _rule(GROUP, SCALE_PLURAL, "list", "watch"),
            _rule(GROUP, f"{SCALE_PLURAL}/status", "patch"),
        ]
    return rules


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


def _rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _cluster_role() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": TRAINER_ROLE_NAME},
        "rules": [
            _rule(GROUP, ELASTICJOB_PLURAL, "get", "list", "watch"),
            _rule(GROUP, f"{ELASTICJOB_PLURAL}/status", "patch"),
            _rule(GROUP, SCALE_PLURAL, "create", "get", "list", "watch"),
            _rule(GROUP, f"{SCALE_PLURAL}/status", "patch"),
            _rule("", "pods", "list", "watch"),
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
    return policy_and_binding(
        name,
        [operation],
        resource,
        conditions=[_IS_TRAINER],
        variables=[_OWN_NAMESPACE, _OWN_JOB, *variables],
        validations=validations,
    )


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
    """Every field is named, since CEL has no way to say "all but three"."""
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
            for field in ElasticJobStatus.model_fields.values()
            if field.alias not in TRAINER_FIELDS
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
