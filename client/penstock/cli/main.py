"""The ``penstock`` command: finds every room's commands by entry point and imports none before use.

A room registers a command in entry-point group ``penstock.commands``. A command whose extra is not
installed stays in the list and says what is missing when it is called.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMAND_GROUP = "penstock.commands"


class LazyCommands(TyperGroup):
    """A group whose commands are loaded from entry points, each on its first use."""

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=COMMAND_GROUP)}

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self._entry_points())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        point = self._entry_points().get(cmd_name)
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
        command = get_command(loaded)
        command.name = cmd_name
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
    """Entry point of the ``penstock`` script."""
    app()
