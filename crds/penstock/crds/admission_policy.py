"""Validating admission policies on our resources, each with the binding that puts it in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.crds.group import GROUP

_VERSION: Final = "admissionregistration.k8s.io/v1"

Expressions = Sequence[Mapping[str, str]]


def policy_and_binding(
    name: str,
    operations: Sequence[str],
    resource: str,
    *,
    conditions: Expressions,
    variables: Expressions = (),
    validations: Expressions,
) -> list[dict[str, Any]]:
    """A policy and its binding, both of one name; what breaks a validation is forbidden.

    Args:
        name: of both.
        operations: ``CREATE`` and the like.
        resource: the plural, with a subresource after a slash.
        conditions: the policy is about a request that meets all of them.
        variables: what the validations have a name for.
        validations: what must hold.
    """
    matched = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": list(operations),
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
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "matchConditions": [dict(one) for one in conditions],
        "variables": [dict(one) for one in variables],
        "validations": [{**validation, "reason": "Forbidden"} for validation in validations],
    }
    if not variables:
        del spec["variables"]
    policy = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    binding = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]
