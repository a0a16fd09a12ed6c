"""Validating admission policies: where they apply, what they see, what they say."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run
from cluster.tests.registry.samples import config_map
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions
from penstock_cluster.registry.admission import cel_authorizer
from penstock_cluster.registry.admission.cel import AUTHORIZER_FUNCTIONS
from penstock_cluster.registry.admission.request import AdmissionRequest

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
SCRAPE = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


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


CONFIG_MAP = "authorizer.group('').resource('configmaps').name('a').namespace('default')"
MAY_MAKE_PODS = "authorizer.group('').resource('pods').namespace(request.namespace)"


def bound_to_create(*resources: str) -> list[dict[str, Any]]:
    """A role and its binding in the namespace default, for ada."""
    rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["create"]}
    return [
        {"metadata": {"name": "makers"}, "rules": [rule]},
        {
            "metadata": {"name": "makers"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "makers"},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "ada"}],
        },
    ]


async def bind(api: Api, *resources: str) -> None:
    role, bound = bound_to_create(*resources)
    await api.create(f"roles.{RBAC}", role, "default")
    await api.create(f"rolebindings.{RBAC}", bound, "default")


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize("where", ["validation", "condition", "variable"])
def test_a_policy_asks_what_else_the_caller_may_do(where: str, granted: bool) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        asks = f"{MAY_MAKE_PODS}.check('create').allowed()"
        validation = {"expression": asks, "message": "no pods"}
        more: dict[str, Any] = {}
        if where == "condition":
            validation = {"expression": "false", "message": "no pods"}
            more["matchConditions"] = [{"name": "no-pods", "expression": f"!{asks}"}]
        if where == "variable":
            validation = {"expression": "variables.may", "message": "no pods"}
            more["variables"] = [{"name": "may", "expression": asks}]
        await api.create(POLICIES, policy(validation, **more))
        await api.create(BINDINGS, binding())
        await bind(api, "configmaps", *(["pods"] if granted else []))
        ada = engine.api("ada", groups=("system:authenticated",))
        if granted:
            await ada.create("configmaps", with_data("a", 1), "default")
        else:
            assert (await refusal_of(ada, with_data("a", 1))).endswith("denied request: no pods")
        await api.create("configmaps", with_data("b", 1), "default")

    run(scenario, EngineOptions(rbac=True))


def test_without_roles_everybody_may_do_what_a_policy_asks_for() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        asks = {"expression": f"{MAY_MAKE_PODS}.check('create').allowed()"}
        await api.create(POLICIES, policy(asks))
        await api.create(BINDINGS, binding())
        ada = engine.api("ada", groups=("system:authenticated",))
        await ada.create("configmaps", with_data("a", 1), "default")

    run(scenario)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("authorizer.requestResource.check('create').allowed()", True),
        ("authorizer.requestResource.check('delete').allowed()", False),
        ("authorizer.serviceAccount('default', 'x').path('/metrics').check('get').allowed()", True),
        ("authorizer.path('/metrics').check('get').allowed()", False),
        ("!authorizer.path('/metrics').check('get').errored()", True),
        ("authorizer.group('').resource('pods').check('get').error() == ''", True),
        (f"{CONFIG_MAP}.check('create').allowed()", True),
        (f"{CONFIG_MAP}.subresource('status').check('create').allowed()", False),
        (f"{CONFIG_MAP}.check('create').reason() == ''", True),
    ],
)
def test_what_can_be_asked_of_an_authorizer(expression: str, holds: bool) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(POLICIES, policy({"expression": expression}))
        await api.create(BINDINGS, binding())
        await bind(api, "configmaps")
        path = {"metadata": {"name": "scrapers"}, "rules": [SCRAPE]}
        await api.create(f"clusterroles.{RBAC}", path)
        account = {"kind": "ServiceAccount", "namespace": "default", "name": "x"}
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "scrapers"}
        bound = {"metadata": {"name": "scrapers"}, "roleRef": reference, "subjects": [account]}
        await api.create(f"clusterrolebindings.{RBAC}", bound)
        ada = engine.api("ada", groups=("system:authenticated",))
        if holds:
            await ada.create("configmaps", with_data("a", 1), "default")
        else:
            assert "failed expression" in await refusal_of(ada, with_data("a", 1))

    run(scenario, EngineOptions(rbac=True))


def test_the_functions_of_an_authorizer_are_those_that_compile() -> None:
    seen: list[frozenset[str]] = []

    async def scenario(engine: Engine, api: Api) -> None:
        def look(request: AdmissionRequest) -> None:
            seen.append(frozenset(cel_authorizer.functions(request, engine.authorizer)))

        engine.operations.admission.append(look)
        await api.create("configmaps", with_data("a", 1), "default")

    run(scenario)
    assert seen == [AUTHORIZER_FUNCTIONS]
