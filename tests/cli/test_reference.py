"""docs/cli.md says what the commands say, and the commands are all in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.exits import Exit
from penstock.cli.main import OWN
from penstock.cli.reference import PAGE, page

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    present = PAGE.read_text(encoding="utf-8")
    assert page() == present, "run make generated"
    assert all(f"## penstock {name}\n" in present for name in OWN)


def test_help_names_every_exit_code_and_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "--help"], capture_output=True, text=True, timeout=50
    )
    said = " ".join(done.stdout.split())
    assert all(f"{code.value} {code.meaning}"[:20] in said for code in Exit)
    assert all(f" {name} " in said for name in OWN)


def test_help_loads_neither_the_client_nor_a_framework() -> None:
    program = (
        "import sys, contextlib, io\n"
        "from penstock.cli.main import main\n"
        "sys.argv = ['penstock', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        "heavy = ('httpx', 'pydantic', 'kubernetes', 'kopf', 'fastapi', 'numpy', 'torch')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50
    )
    assert done.stdout.strip() == "[]", done.stderr
