"""Validating admission policies: where they apply, what they see, what they say."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run
from cluster.tests.registry.samples import config_map
from penstock_cluster.registry import Api, ApiError, Engine

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "small"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": list(validations),
            **spec,
        },
    }


def binding(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "small"},
        "spec": {"policyName": "small", "validationActions": ["Deny"], **spec},
    }


SMALL = {"expression": "size(object.data) <= 1", "message": "one entry is enough"}


def with_data(name: str, count: int) -> dict[str, Any]:
    return {**config_map(name), "data": {f"key{index}": "" for index in range(count)}}


async def refusal_of(api: Api, document: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        await api.create("configmaps", document, "default")
    return refused.value.message


def test_a_policy_without_binding_does_nothing() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(POLICIES, policy(SMALL))
        await api.create("configmaps", with_data("two", 2), "default")

    run(scenario)


def test_a_bound_policy_refuses_and_says_which() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(POLICIES, policy(SMALL))
        await api.create(BINDINGS, binding())
        await api.create("configmaps", with_data("one", 1), "default")
        assert await refusal_of(api, with_data("two", 2)) == (
            "configmaps \"two\" is forbidden: ValidatingAdmissionPolicy 'small' with binding "
            "'small' denied request: one entry is enough"
        )
        with pytest.raises(ApiError):
            await api.patch("configmaps", "one", {"data": {"more": ""}}, "default")
        await api.delete(BINDINGS, "small")
        await api.create("configmaps", with_data("two", 2), "default")

    run(scenario)


def test_a_deletion_shows_the_old_object_only() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        keep = {"expression": "object != null || oldObject.metadata.name != 'kept'"}
        await api.create(POLICIES, policy(keep))
        await api.create(BINDINGS, binding())
        for name in ("kept", "loose"):
            await api.create("configmaps", with_data(name, 1), "default")
        await api.delete("configmaps", "loose", "default")
        with pytest.raises(ApiError, match="failed expression"):
            await api.delete("configmaps", "kept", "default")

    run(scenario)


def test_variables_conditions_and_composed_messages() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        composed = {
            "expression": "variables.count <= 1",
            "messageExpression": "'too many: ' + string(variables.count)",
            "reason": "Forbidden",
        }
        await api.create(
            POLICIES,
            policy(
                composed,
                variables=[{"name": "count", "expression": "size(object.data)"}],
                matchConditions=[
                    {"name": "named", "expression": "object.metadata.name.startsWith('two')"}
                ],
            ),
        )
        await api.create(BINDINGS, binding())
        await api.create("configmaps", with_data("other", 2), "default")
        assert (await refusal_of(api, with_data("two", 2))).endswith("too many: 2")

    run(scenario)


def test_namespaces_and_labels_choose_what_a_binding_covers() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(POLICIES, policy(SMALL))
        chosen = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
        }
        await api.create(BINDINGS, binding(matchResources=chosen))
        await api.create("configmaps", with_data("two", 2), "kube-system")
        free = with_data("free", 2)
        free["metadata"] = {**free["metadata"], "labels": {"free": "yes"}}
        await api.create("configmaps", free, "default")
        await refusal_of(api, with_data("two", 2))

    run(scenario)


@pytest.mark.parametrize(("fails", "refused"), [("Fail", True), ("Ignore", False)])
def test_an_expression_without_a_value(fails: str, refused: bool) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        broken = {"expression": "object.data.absent == 'x'"}
        await api.create(POLICIES, policy(broken, failurePolicy=fails))
        await api.create(BINDINGS, binding())
        if refused:
            text = await refusal_of(api, with_data("one", 1))
            assert "expression 'object.data.absent == 'x'' resulted in error: no such key" in text
        else:
            await api.create("configmaps", with_data("one", 1), "default")

    run(scenario)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("size(object.data) <=", "Syntax error"),
        ("size(objct.data) == 1", "undeclared reference to 'objct'"),
        ("self == 1", "undeclared reference to 'self'"),
    ],
)
def test_a_policy_that_does_not_compile_is_refused(expression: str, complaint: str) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        with pytest.raises(ApiError) as refused:
            await api.create(POLICIES, policy({"expression": expression}))
        assert refused.value.code == 422
        assert refused.value.details is not None
        (cause,) = refused.value.details["causes"]
        assert cause["field"] == "spec.validations[0].expression"
        assert complaint in cause["message"]

    run(scenario)
