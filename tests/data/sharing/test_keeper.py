"""The keeper of a group that takes over from one that was killed: with what that had."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.crds import environment as names
from penstock.data.protocol import InputOptions, ShareOptions
from penstock.data.share_keeper import Keeper
from penstock.data.share_places import STATE

ASKED = InputOptions(share=ShareOptions(group="search")).model_dump(mode="json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(names.WEIGHTS_DIR, raising=False)
    (tmp_path / "group").mkdir()
    yield tmp_path / "group"
    assert not list(tmp_path.glob("penstock-weights-*")), "nothing is left"


async def joined(keeper: Keeper) -> dict[str, Any]:
    answer = await keeper._join(0, ASKED)
    found: dict[str, Any] = answer["environ"]
    return found


def test_the_folder_of_weights_is_gone_on_with_and_removed_at_last(folder: Path) -> None:
    async def lives() -> None:
        killed = Keeper(folder)
        before = await joined(killed)
        assert killed._plane is not None
        state = (folder / STATE).read_text()
        weights = Path(before[names.WEIGHTS_DIR])
        (weights / "tensors").write_bytes(b"1")
        # What is left of one that is killed: its file, and its folder of weights.
        killed._plane._weights_dir = ""
        await killed._end()
        (folder / STATE).write_text(state)
        following = Keeper(folder)
        after = await joined(following)
        assert after == before
        assert (weights / "tensors").read_bytes() == b"1"
        await following._end()

    asyncio.run(lives())


@pytest.mark.parametrize("left", ["/nowhere", "", "others", "file", "mine"])
def test_a_folder_of_weights_that_is_none_is_not_taken_over(folder: Path, left: str) -> None:
    (folder / "others").mkdir(mode=0o755)
    (folder / "mine").mkdir(mode=0o700)
    (folder / "file").touch(0o600)
    said = {"token": "t", "port": 0, "weights_dir": str(folder / left) if left else ""}
    (folder / STATE).write_text(json.dumps(said))

    async def lives() -> None:
        keeper = Keeper(folder)
        told = await joined(keeper)
        assert Path(told[names.WEIGHTS_DIR]).parent == folder.parent
        await keeper._end()

    asyncio.run(lives())
    assert {"others", "mine", "file"} <= {one.name for one in folder.iterdir()}
