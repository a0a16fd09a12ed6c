"""``penstock convert``: manifests of other systems as jobs of Penstock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import Exit, UsageError
from penstock.cli.output import Format, plain, streamed
from penstock.cli.session import tell


def convert_(
    file: Annotated[
        list[Path],
        typer.Option(
            "--filename", "-f", help="Manifest, or a folder of them; - reads standard input; ..."
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write to; else standard output."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Turn PyTorchJobs, TrainJobs, Jobs and DLRover's ElasticJobs into jobs. Needs no cluster.

    The jobs go to standard output. Every field that has no place in them, or another meaning, is
    named on standard error, one a line: what it was, and what it means here.
    """
    try:
        refused = _convert(file, into)
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        raise typer.Exit(tell(error)) from None
    if refused:
        raise typer.Exit(Exit.USAGE)


def _convert(paths: list[Path], into: Path | None) -> int:
    """Convert all that can be; how many manifests were refused."""
    from penstock.cli.manifests import in_words, read
    from penstock.convert.convert import convert_all
    from penstock.convert.source import RefusedError

    documents = read(paths)
    if not documents:
        raise UsageError(f"{', '.join(map(in_words, paths))}: no manifest is there")
    texts: list[str] = []
    refused = 0
    for place, found in convert_all([one.content for one in documents]):
        if isinstance(found, RefusedError):
            refused += 1
            say(f"{documents[place].where}: {found}")
            continue
        if found.result == documents[place].content:
            say(f"{found.source}: is Penstock's own, and stays as it is")
        for note in found.notes:
            say(str(note))
        texts.append(streamed(found.result, Format.YAML))
    if texts and into is not None:
        into.write_text("".join(texts), encoding="utf-8")
    elif texts:
        sys.stdout.write("".join(texts))
        sys.stdout.flush()  # a full disk is told of here, not when Python ends
    return refused


def say(text: str) -> None:
    """One line on standard error."""
    typer.echo(f"penstock: {plain(' '.join(text.split()))}", err=True)
