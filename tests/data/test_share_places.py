"""Where programs of a group meet, whoever starts them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.data import share_places
from penstock.data.share_places import group_folder


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(share_places, "TEMPORARY", tmp_path / "t")
    monkeypatch.setattr(share_places, "LOGINS", tmp_path / "logins")
    monkeypatch.setattr(share_places, "MAX_PATH_BYTES", 4096)


def test_programs_with_and_without_a_login_meet(tmp_path: Path) -> None:
    login = tmp_path / "logins" / str(os.getuid())
    login.mkdir(parents=True, mode=0o700)
    by_hand = group_folder("search", {"XDG_RUNTIME_DIR": str(login)})
    assert group_folder("search", {}) == by_hand == login / "penstock" / "share" / "search"


def test_a_folder_of_a_login_that_others_may_read_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "logins" / str(os.getuid())).mkdir(parents=True, mode=0o755)
    folder = tmp_path / "t" / f"penstock-{os.getuid()}" / "share" / "search"
    assert group_folder("search", {}) == folder


def test_programs_with_other_temporary_folders_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        monkeypatch.setattr("tempfile.tempdir", None)
        found.append(group_folder("search", {}))
    assert found[0] == found[1]
