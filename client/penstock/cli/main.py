"""The ``penstock`` command: finds every room's commands by entry point and imports none before use.

A room registers a command in entry-point group ``penstock.commands``. A command whose extra is not
installed stays in the list and says what is missing when it is called. The commands of this room
are for people at a terminal, and come first. ``kubectl ej`` is the same program.
"""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock.cli import terminal
from penstock.cli.exits import in_words

COMMAND_GROUP: Final = "penstock.commands"
ROOMS_PANEL: Final = "Parts of Penstock, and tools"

_JOBS, _CLUSTER = "Jobs", "The cluster"
OWN: Final = {
    "submit": ("submit", _JOBS),
    "forecast": ("forecast", _JOBS),
    "convert": ("convert", _JOBS),
    "list": ("listing", _JOBS),
    "get": ("listing", _JOBS),
    "describe": ("describe", _JOBS),
    "logs": ("logs", _JOBS),
    "plans": ("plans", _JOBS),
    "propose": ("plans", _JOBS),
    "scale": ("scale", _JOBS),
    "pin": ("scale", _JOBS),
    "release": ("scale", _JOBS),
    "suspend": ("suspend", _JOBS),
    "resume": ("suspend", _JOBS),
    "top": ("top", _CLUSTER),
    "fragmentation": ("fragmentation", _CLUSTER),
    "nodes": ("nodes", _CLUSTER),
    "cost": ("cost", _CLUSTER),
    "capacity": ("capacity", _CLUSTER),
    "doctor": ("doctor.command", _CLUSTER),
    "uninstall": ("uninstall", _CLUSTER),
}
"""Command: the module of this room that holds it, and where it stands in the help."""


@functools.cache
def _of_rooms() -> dict[str, EntryPoint]:
    points = {point.name: point for point in entry_points(group=COMMAND_GROUP)}
    return dict(sorted(points.items()))


class LazyCommands(TyperGroup):
    """A group whose commands are loaded by name, each on its first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*OWN, *(name for name in _of_rooms() if name not in OWN)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        panel = ROOMS_PANEL
        if cmd_name in OWN:
            module, panel = OWN[cmd_name]
            loaded = getattr(import_module(f"penstock.cli.{module}"), f"{cmd_name}_")
        else:
            point = _of_rooms().get(cmd_name)
            if point is None:
                return None
            try:
                loaded = point.load()
            except ModuleNotFoundError as error:
                loaded = _missing(cmd_name, error.name or "")
        if not isinstance(loaded, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name=cmd_name)(loaded)
            loaded = app
        command: Any = get_command(loaded)
        command.name = cmd_name
        command.rich_help_panel = panel
        return command


def _missing(command: str, package: str) -> Any:
    def refuse() -> None:
        message = f"penstock {command} needs the Python package {package!r}: not installed"
        typer.echo(message, err=True)
        raise typer.Exit(1)

    refuse.__doc__ = f"(not available: the Python package {package!r} is not installed)"
    return refuse


app = typer.Typer(
    cls=LazyCommands,
    name="penstock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="An elastic control plane for deep-learning training on Kubernetes.",
    epilog=f"Exit codes: {in_words()}.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of ``penstock`` itself."""


def main() -> None:
    """Entry point of the scripts ``penstock`` and ``kubectl-ej``."""
    terminal.prepare()
    as_plugin = Path(sys.argv[0]).name.startswith("kubectl-ej")
    app(prog_name="kubectl ej" if as_plugin else "penstock")
