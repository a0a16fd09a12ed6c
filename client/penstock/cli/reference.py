"""Writes the reference part of docs/cli.md: ``python -m penstock.cli.reference [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from penstock.cli.exits import INTERRUPTED, Exit
from penstock.cli.main import OWN, app
from penstock.cli.session import SHARED
from penstock.crds import generated

PAGE: Final = Path("docs/cli.md")
MARK: Final = "<!-- What follows is made by `python -m penstock.cli.reference`; do not edit. -->"


def reference() -> str:
    """Exit codes, shared options, and every command for people, as Markdown."""
    group: Any = get_command(app)
    lines = [MARK, "", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {code.meaning} |" for code in Exit]
    lines += [f"| {INTERRUPTED} | ended by Ctrl-C |", "", "## Options of every command", ""]
    commands = [group.get_command(None, name) for name in OWN]
    lines += _options(each for each in commands[0].params if each.name in SHARED)
    for command in commands:
        own = [each for each in command.params if each.name not in SHARED]
        arguments = [each for each in own if each.param_type_name == "argument"]
        usage = " ".join(["penstock", command.name, "[OPTIONS]", *map(_usage, arguments)])
        said = " ".join(str(command.help).split("\n\n")[0].split())
        lines += ["", f"## penstock {command.name}", "", said, "", f"`{usage}`", ""]
        lines += _options(each for each in own if each.param_type_name == "option")
    return "\n".join(lines).rstrip() + "\n"


def _usage(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _options(options: Iterator[Any]) -> list[str]:
    rows = [
        f"| {', '.join(f'`{name}`' for name in [*option.opts, *option.secondary_opts])} "
        f"| {option.help}{_default(option)} |"
        for option in options
        if option.name != "help"
    ]
    return ["| option | meaning |", "|---|---|", *rows] if rows else []


def _default(option: Any) -> str:
    value = option.default
    if value in (None, "", False, ()) or callable(value):
        return ""
    return f" Default: `{getattr(value, 'value', value)}`."


def page() -> str:
    """The page with its reference made anew; what stands before the mark is kept."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + reference()


if __name__ == "__main__":
    sys.exit(generated.command({PAGE: page}))
