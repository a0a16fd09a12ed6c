"""``penstock partition``: what of a program's step could move to data workers, and what not."""

from __future__ import annotations

from typing import Annotated

import typer

partition = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@partition.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Say what of a PyTorch step could move, and move nothing: "
    "penstock partition -- python train.py",
)
def _partition(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="End the program when its first loader was looked at.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    import json
    import os

    from penstock.data.torchpartition.launching import run_looked_at
    from penstock.data.torchpartition.looking import text
    from penstock.data.variables import VariableError

    try:
        code, found = run_looked_at(command, os.environ, stop=stop, quiet=as_json)
    except VariableError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        typer.echo(
            f"penstock partition: {command[0]} cannot be started: {error.strerror}", err=True
        )
        raise typer.Exit(127) from None
    if as_json:
        typer.echo(json.dumps({"loaders": found}))
    elif not found:
        typer.echo(
            "penstock partition: no DataLoader gave enough batches: four are needed", err=True
        )
    for one in found if not as_json else ():
        typer.echo(text(one))
    raise typer.Exit(code or (0 if found else 1))
