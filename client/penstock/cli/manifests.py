"""Manifests as commands are given them: files, folders, standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.cli.exits import UsageError

_ENDINGS: Final = (".yaml", ".yml", ".json")
_MOST_FILES: Final = 10_000


@dataclass(frozen=True)
class Document:
    """One object, and where it stood."""

    where: str
    content: Any


def read(paths: Iterable[Path]) -> list[Document]:
    """Every object of some files; of a folder, of all manifests below it; ``-``: standard input.

    Raises:
        UsageError: a text is no YAML, or a folder has no manifest.
        OSError: the system refuses.
    """
    return [one for path in paths for file in _files(path) for one in _documents(file)]


def in_words(file: Path) -> str:
    """A file as messages name it."""
    return "standard input" if str(file) == "-" else str(file)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    if not files:
        raise UsageError(f"{path}: a folder without a manifest ({', '.join(_ENDINGS)})")
    if len(files) > _MOST_FILES:
        raise UsageError(f"{path}: {len(files)} manifests; at most {_MOST_FILES} are read at once")
    return files


def _documents(file: Path) -> list[Document]:
    from penstock.base import yaml_text

    where = in_words(file)
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = yaml_text.documents(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not text in UTF-8, at byte {error.start}") from error
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    return [Document(where, one) for one in found if one is not None]
