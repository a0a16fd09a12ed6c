"""Roles and bindings, switched on: exactly what is granted is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run
from cluster.tests.registry.samples import config_map
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions
from penstock_cluster.registry.admission.rbac import Attributes, allows

RBAC = "rbac.authorization.k8s.io"


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            Attributes("get", "", "pods"),
            True,
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            Attributes("list", "", "pods"),
            False,
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            Attributes("get", "", "pods", "log"),
            False,
        ),
        (
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            Attributes("patch", "x.dev", "things", "status"),
            True,
        ),
        (
            {"verbs": ["get"], "apiGroups": ["x.dev"], "resources": ["*/status"]},
            Attributes("get", "x.dev", "things", "status"),
            True,
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
            Attributes("get", "", "pods", name="a"),
            True,
        ),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
            Attributes("get", "", "pods", name="b"),
            False,
        ),
        (
            {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]},
            Attributes("get", path="/logs/x"),
            True,
        ),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, Attributes("get", path="/x"), False),
        (
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            Attributes("get", path="/pods"),
            False,
        ),
    ],
)
def test_rules(rule: dict[str, Any], wanted: Attributes, allowed: bool) -> None:
    assert allows(rule, wanted) is allowed


def test_a_binding_grants_in_its_namespace_only() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
        role = {"metadata": {"name": "reader"}, "rules": [rule]}
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"kind": "Role", "name": "reader"},
            "subjects": [{"kind": "User", "name": "ada"}],
        }
        await api.create(f"roles.{RBAC}", role, "default")
        await api.create("configmaps", config_map("a"), "default")
        ada = engine.api("ada", groups=("system:authenticated",))
        with pytest.raises(ApiError) as refusal:
            await ada.get("configmaps", "a", "default")
        assert refusal.value.code == 403
        await api.create(f"rolebindings.{RBAC}", binding, "default")
        assert (await ada.get("configmaps", "a", "default"))["metadata"]["name"] == "a"
        for attempt in (
            ada.list("configmaps"),
            ada.get("configmaps", "kube-root-ca.crt", "kube-system"),
            ada.create("configmaps", config_map("b"), "default"),
            ada.delete("configmaps", "a", "default"),
        ):
            with pytest.raises(ApiError, match="is forbidden"):
                await attempt

    run(scenario, EngineOptions(rbac=True))


def test_switched_off_everybody_may_do_everything() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        ada = engine.api("ada", groups=("system:authenticated",))
        await ada.create("configmaps", config_map("a"), "default")

    run(scenario)


def test_a_role_that_names_an_object_allows_lists_of_that_one_alone() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        rule = {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["list", "watch"],
            "resourceNames": ["a"],
        }
        await api.create(f"roles.{RBAC}", {"metadata": {"name": "one"}, "rules": [rule]}, "default")
        binding = {
            "metadata": {"name": "one"},
            "roleRef": {"kind": "Role", "name": "one"},
            "subjects": [{"kind": "User", "name": "ada"}],
        }
        await api.create(f"rolebindings.{RBAC}", binding, "default")
        for name in "ab":
            await api.create("configmaps", config_map(name), "default")
        ada = engine.api("ada", groups=("system:authenticated",))
        own = await ada.list("configmaps", "default", field_selector="metadata.name=a")
        assert [item["metadata"]["name"] for item in own.items] == ["a"]
        async with ada.watch("configmaps", "default", field_selector="metadata.name==a"):
            pass
        for selector in ("", "metadata.name=b", "metadata.name!=a", "metadata.namespace=default"):
            with pytest.raises(ApiError, match="is forbidden"):
                await ada.list("configmaps", "default", field_selector=selector)
            with pytest.raises(ApiError, match="is forbidden"):
                ada.watch("configmaps", "default", field_selector=selector)

    run(scenario, EngineOptions(rbac=True))
