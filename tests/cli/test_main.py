"""The command line finds the rooms' commands and fails in one line, never with a traceback."""

from __future__ import annotations

import subprocess
import sys


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def test_help_lists_the_commands_of_every_room() -> None:
    done = penstock("--help")
    assert done.returncode == 0
    assert "Kubernetes" in done.stdout
    for command in ("brain", "controller", "crds", "demo", "run", "trainer", "up"):
        assert command in done.stdout


def test_version_is_the_one_of_the_distribution() -> None:
    done = penstock("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("penstock ")


def test_a_wrong_option_is_one_message_and_exit_code_2() -> None:
    done = penstock("crds", "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_refused() -> None:
    done = penstock("frobnicate")
    assert done.returncode == 2
    assert "frobnicate" in done.stderr


def test_an_error_of_a_command_is_one_line_and_exit_code_1() -> None:
    done = penstock("demo", "--job=/nowhere/job.yaml")
    assert done.returncode == 1
    assert "no job at /nowhere/job.yaml" in done.stderr
    assert "Traceback" not in done.stderr
