"""Files that follow from the code are written and compared in one way, by one command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.crds.generated import command, drift
from tests.docs.pages import ROOT

Said = pytest.CaptureFixture[str]


def test_what_is_written_is_up_to_date(tmp_path: Path, capsys: Said) -> None:
    files = {tmp_path / name: lambda name=name: f"this is {name}\n" for name in ("a", "b")}
    assert command(files, ["--check"]) == 1
    assert f"{tmp_path / 'a'}: No such file or directory\n" in capsys.readouterr().err
    assert command(files, []) == 0
    assert (tmp_path / "b").read_text() == "this is b\n"
    assert command(files, ["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_what_differs_is_shown_and_left_alone(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "a"
    path.write_text("old\nsame\n")
    assert drift(path, "new\nsame\n").endswith("-old\n+new\n same\n")
    assert command({path: lambda: "new\nsame\n"}, ["--check"]) == 1
    assert f"out of date: {path}: run 'make generated'" in capsys.readouterr().err
    assert path.read_text() == "old\nsame\n"


def test_what_cannot_be_written_is_named(tmp_path: Path, capsys: Said) -> None:
    path = tmp_path / "nowhere" / "a"
    assert command({path: lambda: "text"}, []) == 1
    assert capsys.readouterr().err == f"{path}: No such file or directory\n"


def test_a_wrong_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        command({tmp_path / "a": str}, ["--chek"])


def test_make_checks_every_generator() -> None:
    users = {
        str(path.relative_to(ROOT))
        for room in ("api", "charts", "client", "docs", "scheduler")
        for path in (ROOT / room).glob("**/*.py")
        if re.search(
            r"from penstock\.crds(\.generated)? import (generated|command)\b", path.read_text()
        )
    }
    makefile = (ROOT / "Makefile").read_text()
    for path in users:
        module = path.split("/", 1)[1].removesuffix(".py").removesuffix("/__main__")
        assert path in makefile or module.replace("/", ".") in makefile, path
    assert len(users) == 7
