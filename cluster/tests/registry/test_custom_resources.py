"""Custom resources in process: schema, rules, status, scale, and what a no-op is."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.tests.registry.running import CRDS, run, settle
from cluster.tests.registry.samples import WIDGETS, widget
from penstock_cluster.registry import Api, ApiError, Engine, thaw

WIDGET = "widgets.test.dev"


def test_defaults_come_and_unknown_fields_go() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        document = widget(bogus=1, free={"any": {"thing": [1, None]}})
        before = thaw(document)
        found = await api.create(WIDGET, document, "default")
        assert found["spec"] == {
            "size": 3,
            "replicas": 1,
            "mode": "Safe",
            "free": {"any": {"thing": [1, None]}},
        }
        assert document == before
        assert found["metadata"]["generation"] == 1

    run(scenario, widgets=True)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 0}, "spec.size"),
        ({"size": "3"}, "spec.size"),
        ({"mode": "Slow"}, "spec.mode"),
        ({"tags": ["a", "a"]}, "spec.tags[1]"),
        ({"tags": ["x" * 17]}, "spec.tags[0]"),
        ({"limits": {"cpu": True}}, "spec.limits.cpu"),
        ({"parts": [{"count": 1}]}, "spec.parts[0].name"),
        ({"size": 2, "replicas": 3}, "spec"),
    ],
)
def test_faults_name_their_field(spec: dict[str, Any], field: str) -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        with pytest.raises(ApiError) as refusal:
            await api.create(WIDGET, widget(**spec), "default")
        assert refusal.value.code == 422
        assert refusal.value.details is not None
        assert field in [cause["field"] for cause in refusal.value.details["causes"]]

    run(scenario, widgets=True)


def test_spec_and_status_are_written_by_paths_of_their_own() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(WIDGET, widget(), "default")
        status = {"status": {"phase": "Up"}, "spec": {"size": 9}}
        found = await api.patch(WIDGET, "one", status, "default", subresource="status")
        assert found["status"] == {"phase": "Up"}
        assert found["spec"]["size"] == 3
        assert found["metadata"]["generation"] == 1
        found = await api.patch(WIDGET, "one", {"spec": {"size": 4}, "status": None}, "default")
        assert found["status"] == {"phase": "Up"}
        assert found["metadata"]["generation"] == 2

    run(scenario, widgets=True)


def test_a_change_that_changes_nothing_is_not_written() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        found = await api.create(WIDGET, widget(), "default")
        number = engine.store.number
        again = await api.patch(WIDGET, "one", {"spec": {"size": 3}}, "default")
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
        assert engine.store.number == number

    run(scenario, widgets=True)


def test_a_stale_version_is_a_conflict() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        stale = thaw(await api.create(WIDGET, widget(), "default"))
        await api.patch(WIDGET, "one", {"spec": {"size": 5}}, "default")
        with pytest.raises(ApiError) as refusal:
            await api.update(WIDGET, stale)
        assert refusal.value.is_conflict

    run(scenario, widgets=True)


def test_a_changed_schema_shows_its_defaults_in_old_objects() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        before = await api.create(WIDGET, widget(), "default")
        crd = thaw(await api.get(CRDS, WIDGETS["metadata"]["name"]))
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["color"] = {"type": "string", "default": "red"}
        await api.update(CRDS, crd)
        after = await api.get(WIDGET, "one", "default")
        assert after["spec"]["color"] == "red"
        assert after["metadata"] == before["metadata"]

    run(scenario, widgets=True)


def test_deleting_the_crd_deletes_its_objects_and_the_kind() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create(WIDGET, widget(), "default")
        await api.delete(CRDS, WIDGETS["metadata"]["name"])
        await settle()
        with pytest.raises(ApiError) as refusal:
            await api.list(WIDGET)
        assert refusal.value.is_not_found
        assert (await api.list(CRDS)).items == []

    run(scenario, widgets=True)
