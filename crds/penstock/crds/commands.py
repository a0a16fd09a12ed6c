"""``penstock crds``: print the custom resources, and keep the committed files up to date."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer


class Kind(StrEnum):
    """The generated files, by the names of `penstock.crds.manifests`."""

    ELASTICJOB = "elasticjob"
    SCALE = "scale"
    POLICY = "policy"
    JOB_POLICY = "job-policy"


def crds(
    kind: Annotated[
        Kind | None,
        typer.Option(help="Only this one; without it, all of them, but the optional job-policy."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print nothing; fail if a committed file differs.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the files instead of printing them.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the committed files; without it, that of this checkout."),
    ] = None,
) -> None:
    """Print the CRDs and the trainer's policies, ready for kubectl apply -f -."""
    from penstock.crds.generated import drift
    from penstock.crds.manifests import MANIFESTS, OPTIONAL_MANIFESTS, SOURCE_FOLDER

    printed = not check and not write
    files = MANIFESTS if printed and kind is None else (*MANIFESTS, *OPTIONAL_MANIFESTS)
    chosen = [manifest for manifest in files if kind is None or manifest.name == kind]
    place = folder or SOURCE_FOLDER
    if check and write:
        _fail("--check and --write exclude each other", status=2)
    if printed:
        sys.stdout.write("---\n".join(manifest.render() for manifest in chosen))
        return
    outdated = []
    for manifest in chosen:
        path = place / manifest.file_name
        try:
            if write:
                if path.parent != place:
                    path.parent.mkdir(exist_ok=True)
                path.write_text(manifest.render(), encoding="utf-8")
            elif said := drift(path, manifest.render()):
                sys.stderr.write(said)
                outdated.append(str(path))
        except OSError as error:
            _fail(f"{path}: {error.strerror}; --folder names where the committed files are")
    if outdated:
        _fail(f"out of date: {', '.join(outdated)}; run 'penstock crds --write'")


def _fail(message: str, status: int = 1) -> NoReturn:
    sys.stderr.write(f"penstock crds: {message}\n")
    raise SystemExit(status)
