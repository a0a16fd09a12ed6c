"""Sealed files: what writers that were killed leave behind does not pile up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.job import atomic_file
from penstock.job.atomic_file import FolderError, Series
from tests.trainer.small_disk import small_disk

PLACE = "slots-000000000010.penstock"


def test_what_a_killed_writer_left_goes_in_time_and_nothing_else(tmp_path: Path) -> None:
    old = tmp_path / f".{PLACE}.0123.tmp"
    young = tmp_path / ".slots-000000000020.penstock.4567.tmp"
    others = [tmp_path / ".mine.tmp", tmp_path / "slots-000000000005.penstock"]
    for path in (old, young, *others):
        path.write_text("x")
    for path in (old, *others):
        os.utime(path, (1, 1))
    atomic_file.write(tmp_path / PLACE, [b"content"])
    atomic_file.verify(tmp_path / PLACE)
    assert sorted(tmp_path.iterdir()) == sorted([young, *others, tmp_path / PLACE])


def test_two_writers_of_one_place_do_not_meet(tmp_path: Path) -> None:
    place = tmp_path / PLACE

    def parts() -> list[bytes]:
        atomic_file.write(place, [b"the other one's"])  # another machine, at the same time
        return [b"mine"]

    atomic_file.write(place, (part for _ in range(1) for part in parts()))
    atomic_file.verify(place)
    assert place.read_bytes()[:4] == b"mine"
    assert list(tmp_path.iterdir()) == [place]


def test_a_file_system_that_is_read_only_is_called_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=64) as disk:
        (disk / "there").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for folder in (disk / "there", disk / "new"):
            with pytest.raises(FolderError, match="Read-only file system; it must be a folder"):
                Series(folder, "step", 1).check_folder()


def test_a_folder_that_may_not_be_written_to_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever tests may be root
    with pytest.raises(FolderError, match="Permission denied; it must be a folder"):
        Series(tmp_path, "step", 1).check_folder()
