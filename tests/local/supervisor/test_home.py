"""What `penstock down --purge` may remove, and folders that cannot be a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.local.control_plane.home import ControlPlaneState, Home, HomeError
from penstock.local.lifecycle import stop


def said(home: Home, *, purge: bool) -> list[str]:
    lines: list[str] = []
    stop(home, purge, lines.append)
    return lines


def used_home(folder: Path) -> Home:
    """A folder as a control plane leaves it."""
    home = Home(folder)
    home.create()
    home.pods.mkdir()
    with home.lock():
        home.write_state(ControlPlaneState(supervisor_pid=1, ready=True))
    for name in ("brain.sqlite", "brain.sqlite-wal", "cluster.sqlite", "kubeconfig", "logs/x.log"):
        (folder / name).write_text("")
    return home


def test_down_touches_nothing_in_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "thesis.log").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    assert said(Home(tmp_path), purge=False) == [f"no control plane is up in {tmp_path}"]
    with pytest.raises(HomeError, match=r"nothing was removed: .* or remove it by hand"):
        stop(Home(tmp_path), True, lambda line: None)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["", "[]", '{"version": 4}', '{"components": {"a": 1}}'])
def test_another_programs_state_is_no_sign_of_a_control_plane(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(HomeError, match=r"state\.json is not the state of a control plane"):
        stop(Home(tmp_path), True, lambda line: None)
    assert (tmp_path / "state.json").read_text() == text


def test_purge_removes_the_whole_folder_of_a_control_plane(tmp_path: Path) -> None:
    home = used_home(tmp_path / "home")
    assert said(home, purge=True)[-1] == f"removed {home.folder}"
    assert not home.folder.exists()
    assert said(home, purge=True) == [f"no control plane is up in {home.folder}"]


def test_purge_keeps_what_is_not_its_own_and_says_so(tmp_path: Path) -> None:
    home = used_home(tmp_path / "home")
    (home.folder / "thesis.tex").write_text("years of work")
    assert said(home, purge=True)[-1].endswith("this control plane's: thesis.tex")
    assert [path.name for path in home.folder.iterdir()] == ["thesis.tex"]


def test_a_file_cannot_be_a_home(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(HomeError, match=r"cannot be used: .*--home"):
        Home(file).create()
    assert said(Home(file), purge=False) == [f"no control plane is up in {file}"]
