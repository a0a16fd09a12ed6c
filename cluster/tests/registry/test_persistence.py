"""State in a file: it survives a restart and a full disk, versions never go back."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
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


def _fill_disk(engine: Engine) -> None:
    """SQLite's own answer to a full disk: the file may not grow any more."""
    connection = _connection(engine)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")


def _connection(engine: Engine) -> sqlite3.Connection:
    assert engine._journal is not None
    return engine._journal._connection


async def _create_more_than_fits(engine: Engine) -> None:
    for number in range(20):
        large = {**config_map(f"large-{number}"), "data": {"text": "x" * 20_000}}
        await engine.api().create("configmaps", large, "default")


async def _wait_for_line(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(30):
        while not any(text in record.getMessage() for record in caplog.records):  # noqa: ASYNC110  a log sets no event
            await asyncio.sleep(0.01)


def test_what_a_full_disk_kept_out_is_written_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = EngineOptions(database=tmp_path / "cluster.sqlite")
    caplog.set_level(logging.WARNING, "penstock_cluster")

    async def fill_and_clear() -> None:
        async with Engine(options) as engine:
            _fill_disk(engine)
            await _create_more_than_fits(engine)
            await _wait_for_line(caplog, "cannot be saved: database or disk is full")
            assert engine._journal is not None
            engine._journal.flush()  # said once, however often it is tried
            await engine.api().delete("configmaps", "large-3", "default")
            _connection(engine).execute("PRAGMA max_page_count=1000000")
            await _wait_for_line(caplog, "all changes are saved again")

    async def look() -> set[str]:
        async with Engine(options) as engine:
            found = await engine.api().list("configmaps", "default")
            return {item["metadata"]["name"] for item in found.items}

    asyncio.run(fill_and_clear())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("cannot be saved" in line for line in lines) == 1, lines
    assert str(tmp_path / "cluster.sqlite") in lines[0]
    expected = {f"large-{number}" for number in range(20)} - {"large-3"}
    assert asyncio.run(look()) >= expected


def test_what_is_lost_at_the_end_is_an_error(tmp_path: Path) -> None:
    options = EngineOptions(database=tmp_path / "cluster.sqlite")

    async def run() -> None:
        async with Engine(options) as engine:
            _fill_disk(engine)
            await _create_more_than_fits(engine)

    with pytest.raises(OSError, match=r"cluster\.sqlite: the last changes, .* are lost: .* full"):
        asyncio.run(run())


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear cluster,\n" * 1000)
    with pytest.raises(OSError, match=r"letter\.txt: file is not a database; choose another file"):
        Engine(EngineOptions(database=path))
    assert path.read_text() == "Dear cluster,\n" * 1000
