"""State in a file: it survives a restart, versions never go back, one process at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.tests.registry.running import CRDS, settle
from cluster.tests.registry.samples import WIDGETS, config_map, widget
from penstock_cluster.registry import Engine, EngineOptions, thaw


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    options = EngineOptions(database=tmp_path / "state" / "cluster.sqlite")

    async def first() -> tuple[dict[str, object], str, int]:
        async with Engine(options) as engine:
            api = engine.api(manager="first")
            await api.create(CRDS, WIDGETS)
            await settle()
            await api.create("widgets.test.dev", widget(size=5), "default")
            await api.create("configmaps", config_map("gone"), "default")
            await api.delete("configmaps", "gone", "default")
            found = thaw(await api.get("widgets.test.dev", "one", "default"))
            return found, engine.tokens.admin, engine.store.number

    async def second() -> tuple[dict[str, object], str, int, list[str], list[str]]:
        async with Engine(options) as engine:
            api = engine.api()
            await settle()
            found = thaw(await api.get("widgets.test.dev", "one", "default"))
            names = [item["metadata"]["name"] for item in (await api.list("configmaps")).items]
            version = engine.store.table("widgets.test.dev").items["default", "one"]
            managers = [entry.manager for entry in version.managed]
            return found, engine.tokens.admin, engine.store.number, names, managers

    before, token, number = asyncio.run(first())
    after, same_token, later, names, managers = asyncio.run(second())
    assert after == before
    assert same_token == token
    assert later > number
    assert "gone" not in names
    assert managers == ["first"]
    assert (tmp_path / "state" / "cluster.sqlite").stat().st_mode & 0o077 == 0


def test_what_was_written_is_there_without_a_clean_stop(tmp_path: Path) -> None:
    options = EngineOptions(database=tmp_path / "cluster.sqlite")

    async def crash() -> None:
        engine = Engine(options)
        await engine.start()
        await engine.api().create("configmaps", config_map("kept"), "default")
        await asyncio.sleep(0.2)
        # No stop: the connection is closed as a dying process would close it.
        engine._journal._connection.close()  # type: ignore[union-attr]
        engine._journal = None
        await engine.stop()

    async def look() -> None:
        async with Engine(options) as engine:
            await engine.api().get("configmaps", "kept", "default")

    asyncio.run(crash())
    asyncio.run(look())


def test_a_second_cluster_on_the_same_file_is_refused(tmp_path: Path) -> None:
    options = EngineOptions(database=tmp_path / "cluster.sqlite")

    async def both() -> None:
        async with Engine(options):
            with pytest.raises(OSError, match="is another cluster running on it"):
                Engine(options)

    asyncio.run(both())
