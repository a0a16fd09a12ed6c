"""Where the processes of a replica group keep their parts of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.trainer.group.division import Division
from penstock.trainer.replica.layout import Layout


def layout(rank: int, size: int) -> Layout:
    return Layout(rank, size, Division(rank, size, speaks=True))


def test_checkpoints_of_another_world_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in range(2):
        layout(rank, 2).checkpoint_folder(tmp_path).mkdir()
    assert not caplog.messages, "none was there"
    for rank in range(4):
        assert layout(rank, 4).checkpoint_folder(tmp_path) == tmp_path / f"part-{rank}-of-4"
    [said] = caplog.messages
    assert said == (
        f"{tmp_path}: checkpoints of replica groups of 2 processes are there, and this one has 4:"
        " they are not taken up"
    )
    caplog.clear()
    assert layout(0, 2).checkpoint_folder(tmp_path) == tmp_path / "part-0-of-2"
    assert not caplog.messages, "its own are there"
