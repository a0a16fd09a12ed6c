"""Nobody hands on what they do not have."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import run
from cluster.tests.registry.samples import config_map
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions
from penstock_cluster.registry.admission.escalation import parts

RBAC = "rbac.authorization.k8s.io"
CREATE = [
    {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
]
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


async def as_holder_of(engine: Engine, *rules: dict[str, Any]) -> Api:
    """Somebody with these rules who may create, and a role ``readers`` that reads pods."""
    admin = engine.api()
    await admin.create(
        f"clusterroles.{RBAC}", {"metadata": {"name": "own"}, "rules": [*CREATE, *rules]}
    )
    await admin.create(
        f"clusterrolebindings.{RBAC}",
        {
            "metadata": {"name": "own"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "own"},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "ann"}],
        },
    )
    await admin.create(
        f"clusterroles.{RBAC}", {"metadata": {"name": "readers"}, "rules": [READ_PODS]}
    )
    return engine.api("ann", groups=("system:authenticated",))


def binding() -> dict[str, Any]:
    return {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "readers"},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "bob"}],
    }


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (READ_PODS, True),
        ({**READ_PODS, "verbs": ["*"]}, True),
        ({**READ_PODS, "verbs": ["get"]}, False),
        ({**READ_PODS, "resourceNames": ["one"]}, False),
        ({"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]}, True),
        (
            {
                "apiGroups": [RBAC],
                "resources": ["clusterroles"],
                "verbs": ["bind"],
                "resourceNames": ["readers"],
            },
            True,
        ),
        (
            {
                "apiGroups": [RBAC],
                "resources": ["clusterroles"],
                "verbs": ["bind"],
                "resourceNames": ["others"],
            },
            False,
        ),
    ],
)
def test_a_binding_hands_on_what_one_has_or_may_bind(rule: dict[str, Any], allowed: bool) -> None:
    async def story(engine: Engine, _: Api) -> None:
        ann = await as_holder_of(engine, rule)
        if allowed:
            await ann.create(f"rolebindings.{RBAC}", binding(), "default")
            return
        with pytest.raises(ApiError) as refused:
            await ann.create(f"rolebindings.{RBAC}", binding(), "default")
        assert refused.value.code == 403
        assert "attempting to grant RBAC permissions not currently held" in str(refused.value)

    run(story, EngineOptions(rbac=True))


def test_a_role_comes_before_its_binding() -> None:
    """Nobody can say what a binding to a role that is not there would hand on."""

    async def story(engine: Engine, admin: Api) -> None:
        ann = await as_holder_of(engine, READ_PODS)
        later = {**binding(), "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "later"}}
        with pytest.raises(ApiError, match=r'roles\.rbac.* "later" not found') as refused:
            await ann.create(f"rolebindings.{RBAC}", later, "default")
        assert refused.value.code == 404
        role = {"metadata": {"name": "later"}, "rules": [READ_PODS]}
        await ann.create(f"roles.{RBAC}", role, "default")
        await ann.create(f"rolebindings.{RBAC}", later, "default")

    run(story, EngineOptions(rbac=True))


def test_a_role_holds_what_its_author_has() -> None:
    async def story(engine: Engine, _: Api) -> None:
        ann = await as_holder_of(engine, READ_PODS)
        await ann.create(
            f"roles.{RBAC}", {"metadata": {"name": "a"}, "rules": [READ_PODS]}, "default"
        )
        wider = {**READ_PODS, "verbs": ["get", "delete"]}
        with pytest.raises(ApiError, match=r'Resources:\["pods"\], Verbs:\["delete"\]'):
            await ann.create(
                f"roles.{RBAC}", {"metadata": {"name": "b"}, "rules": [wider]}, "default"
            )

    run(story, EngineOptions(rbac=True))


def owned(owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    document = config_map("owned")
    document["metadata"]["ownerReferences"] = [reference]
    return document


@pytest.mark.parametrize("allowed", [True, False])
def test_to_block_an_owner_needs_its_finalizers(allowed: bool) -> None:
    async def story(engine: Engine, _: Api) -> None:
        owner = await engine.api().create("configmaps", config_map("owner"), "default")
        rules = [{"apiGroups": [""], "resources": ["configmaps/finalizers"], "verbs": ["update"]}]
        ann = await as_holder_of(engine, *(rules if allowed else []))
        if allowed:
            await ann.create("configmaps", owned(owner), "default")
            return
        with pytest.raises(ApiError, match="can't set finalizers on"):
            await ann.create("configmaps", owned(owner), "default")

    run(story, EngineOptions(rbac=True))


def test_without_enforcement_everybody_may() -> None:
    async def story(engine: Engine, _: Api) -> None:
        ann = await as_holder_of(engine)
        await ann.create(f"rolebindings.{RBAC}", binding(), "default")

    run(story)


def test_a_rule_falls_into_single_rights() -> None:
    rule = {
        "apiGroups": ["", "apps"],
        "resources": ["a", "b/c"],
        "verbs": ["get"],
        "resourceNames": ["x"],
    }
    assert len(list(parts(rule))) == 4
    assert list(parts({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})) == [
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    ]
