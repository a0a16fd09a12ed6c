"""In-process watches: complete, ordered, translated by selectors, cut off when too far behind."""

from __future__ import annotations

import asyncio

import pytest

from cluster.tests.registry.running import CRDS, Clock, run, settle
from cluster.tests.registry.samples import WIDGETS, config_map, pod, widget
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions, Watch
from penstock_cluster.registry.objects import watch as watching


async def take(watch: Watch, count: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(5):
        async for event in watch:
            found.append((event.type, event.object["metadata"]["name"]))
            if len(found) == count:
                return found
    raise AssertionError(f"the watch ended after {found}")


def test_first_the_present_objects_then_every_change_in_order() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("configmaps", config_map("a"), "default")
        async with api.watch("configmaps", "default") as events:
            await api.create("configmaps", config_map("b"), "default")
            await api.patch("configmaps", "a", {"data": {"x": "1"}}, "default")
            await api.patch("configmaps", "a", {"data": {"x": "1"}}, "default")
            await api.delete("configmaps", "b", "default")
            assert await take(events, 5) == [
                ("ADDED", "a"),
                ("ADDED", "kube-root-ca.crt"),
                ("ADDED", "b"),
                ("MODIFIED", "a"),
                ("DELETED", "b"),
            ]

    run(scenario)


def test_from_a_lists_version_nothing_is_missed_or_repeated() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("configmaps", config_map("a"), "default")
        listed = await api.list("configmaps", "default")
        await api.create("configmaps", config_map("b"), "default")
        version = listed.resource_version
        async with api.watch("configmaps", "default", resource_version=version) as events:
            await api.create("configmaps", config_map("c"), "default")
            assert await take(events, 2) == [("ADDED", "b"), ("ADDED", "c")]

    run(scenario)


def test_a_selector_turns_changes_into_arrivals_and_departures() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("pods", pod("p"), "default")
        async with api.watch("pods", field_selector="spec.nodeName=n1") as events:
            binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
            await api.create("pods", binding, "default", name="p", subresource="binding")
            await api.patch("pods", "p", {"metadata": {"labels": {"x": "y"}}}, "default")
            await api.delete("pods", "p", "default", grace_period_seconds=0)
            kinds = [kind for kind, _ in await take(events, 4)]
            assert kinds == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]

    run(scenario)


def test_a_compacted_version_ends_with_an_error_event() -> None:
    clock = Clock()

    async def scenario(engine: Engine, api: Api) -> None:
        version = (await api.list("configmaps")).resource_version
        await api.create("configmaps", config_map("a"), "default")
        clock.advance(301)
        engine.store.compact()
        async with api.watch("configmaps", resource_version=version) as events:
            async for event in events:
                assert event.type == "ERROR"
                assert event.object["code"] == 410
                assert event.object["reason"] == "Expired"

    run(scenario, EngineOptions(clock=clock))


def test_history_is_bounded_by_number_too() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        version = engine.store.number
        for index in range(20):
            await api.create("configmaps", config_map(f"c{index}"), "default")
        table = engine.store.table("configmaps")
        assert len(table.changes) <= 10
        with pytest.raises(ApiError, match="too old resource version"):
            list(table.since(version))

    run(scenario, EngineOptions(history_changes=10))


def test_a_consumer_that_falls_behind_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BACKLOG_LIMIT", 3)

    async def scenario(engine: Engine, api: Api) -> None:
        async with api.watch("secrets", "default") as events:
            for index in range(5):
                await api.create("secrets", {"metadata": {"name": f"s{index}"}}, "default")
            kinds = [event.type async for event in events]
            assert kinds == ["ADDED", "ADDED", "ADDED", "ERROR"]

    run(scenario)


def test_the_watch_of_a_kind_that_goes_away_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_cluster.registry.controllers.crds._LINGER_SECONDS", 0.01)

    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("widgets.test.dev", widget(), "default")
        async with api.watch("widgets.test.dev") as events:
            await api.delete(CRDS, WIDGETS["metadata"]["name"])
            await settle()
            async with asyncio.timeout(5):
                assert [event.type async for event in events] == ["ADDED", "DELETED"]

    run(scenario, widgets=True)
