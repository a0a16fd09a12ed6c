"""Garbage collection: dependents follow their owners, as the policy says."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import CRDS, run, settle
from cluster.tests.registry.samples import WIDGETS, config_map, widget
from penstock_cluster.registry import Api, ApiError, Engine

WIDGET = "widgets.test.dev"


async def owned(
    api: Api, owner: dict[str, Any], name: str, *, blocks: bool = True, **meta: Any
) -> None:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }
    document = config_map(name)
    document["metadata"].update(meta, ownerReferences=[reference])
    await api.create("configmaps", document, "default")


async def is_there(api: Api, resource: str, name: str) -> bool:
    listed = await api.list(resource, "default", field_selector=f"metadata.name={name}")
    return bool(listed.items)


def test_background_takes_the_dependents_after_the_owner() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = await api.create(WIDGET, widget(), "default")
        await owned(api, owner, "child")
        await api.delete(WIDGET, "one", "default")
        assert not await is_there(api, WIDGET, "one")
        await settle()
        assert not await is_there(api, "configmaps", "child")

    run(scenario, widgets=True)


def test_a_chain_of_owners_goes_down_to_its_end() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = await api.create(WIDGET, widget(), "default")
        for index in range(5):
            await owned(api, owner, f"c{index}")
            owner = await api.get("configmaps", f"c{index}", "default")
        await api.delete(WIDGET, "one", "default")
        await settle(30)
        for index in range(5):
            assert not await is_there(api, "configmaps", f"c{index}")

    run(scenario, widgets=True)


def test_foreground_waits_for_dependents_that_block() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = await api.create(WIDGET, widget(), "default")
        await owned(api, owner, "blocks", finalizers=["test.dev/hold"])
        await owned(api, owner, "loose", blocks=False, finalizers=["test.dev/hold"])
        marked = await api.delete(WIDGET, "one", "default", propagation="Foreground")
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        await settle()
        for name in ("blocks", "loose"):
            child = await api.get("configmaps", name, "default")
            assert "deletionTimestamp" in child["metadata"]
        assert await is_there(api, WIDGET, "one")
        await api.patch("configmaps", "blocks", {"metadata": {"finalizers": None}}, "default")
        await settle()
        assert not await is_there(api, WIDGET, "one")
        assert await is_there(api, "configmaps", "loose")

    run(scenario, widgets=True)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_circle_of_owners_goes_in_the_foreground(size: int, at_once: bool) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        names = [f"c{index}" for index in range(size)]
        made = [await api.create("configmaps", config_map(name), "default") for name in names]
        for name, owner in zip(names, made[1:] + made[:1], strict=True):
            reference = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
            patch = {"metadata": {"ownerReferences": [reference]}}
            await api.patch("configmaps", name, patch, "default")
        for name in names if at_once else names[:1]:
            await api.delete("configmaps", name, "default", propagation="Foreground")
        await settle(60)
        for name in names:
            assert not await is_there(api, "configmaps", name)

    run(scenario)


def test_orphan_keeps_the_dependents_without_their_reference() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = await api.create(WIDGET, widget(), "default")
        await owned(api, owner, "child")
        await api.delete(WIDGET, "one", "default", propagation="Orphan")
        await settle()
        assert not await is_there(api, WIDGET, "one")
        child = await api.get("configmaps", "child", "default")
        assert "ownerReferences" not in child["metadata"]

    run(scenario, widgets=True)


def test_an_owner_that_does_not_exist_is_no_owner() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = widget("never")
        owner["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001"
        await owned(api, owner, "stray")
        await settle()
        assert not await is_there(api, "configmaps", "stray")

    run(scenario, widgets=True)


def test_an_owner_whose_kind_is_not_served_may_be_there() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = widget("never")
        owner["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001"
        present = await api.create("configmaps", config_map("present"), "default")
        await owned(api, owner, "undecided")
        await owned(api, owner, "half")
        references = (await api.get("configmaps", "half", "default"))["metadata"]["ownerReferences"]
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "present"}
        other["uid"] = present["metadata"]["uid"]
        patch = {"metadata": {"ownerReferences": [*references, other]}}
        await api.patch("configmaps", "half", patch, "default")
        await settle(30)
        for name in ("undecided", "half"):
            kept = await api.get("configmaps", name, "default")
            assert "deletionTimestamp" not in kept["metadata"]
        await api.create(CRDS, WIDGETS)
        await settle(30)
        assert not await is_there(api, "configmaps", "undecided")
        half = await api.get("configmaps", "half", "default")
        assert half["metadata"]["ownerReferences"] == [other]

    run(scenario)


def test_dependents_go_with_the_kind_of_their_owner() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        owner = await api.create(WIDGET, widget(), "default")
        await owned(api, owner, "child")
        await api.delete(CRDS, WIDGET)
        await settle(60)
        assert engine.registry.of_kind("test.dev/v1", "Widget") is None
        assert not await is_there(api, "configmaps", "child")

    run(scenario, widgets=True)


def test_a_namespace_is_emptied_and_goes() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("namespaces", {"metadata": {"name": "short"}})
        await settle()
        await api.create("configmaps", config_map(), "short")
        await api.create(
            "pods",
            {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "short",
        )
        await api.delete("namespaces", "short")
        with pytest.raises(ApiError, match="because it is being terminated"):
            await api.create("configmaps", config_map("late"), "short")
        await settle(30)
        assert not [
            item
            for item in (await api.list("namespaces")).items
            if item["metadata"]["name"] == "short"
        ]
        assert (await api.list("configmaps", "short")).items == []

    run(scenario)
