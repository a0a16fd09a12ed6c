"""What commands print: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPED_COLUMNS = 160
"""Width where no terminal says one: a table that is piped must not lose its last columns."""


Column = str | tuple[str, str]
"""A heading; with ``right`` or ``whole``: to the right, or never broken."""


class Format(StrEnum):
    """What ``-o`` may say."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(*, stderr: bool = False) -> Console:
    """A console for standard output; colours only on a terminal and without NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    narrow = stream.isatty() or os.environ.get("COLUMNS")
    return Console(
        file=stream, width=None if narrow else PIPED_COLUMNS, highlight=False, emoji=False
    )


def written(document: Any, form: Format) -> str:
    """A document as JSON or YAML, the keys in the order in which they are."""
    if form is Format.JSON:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def table(columns: Iterable[Column], rows: Iterable[Sequence[Any]]) -> Table:
    """A table without lines, as kubectl prints them."""
    from rich.table import Table

    drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        name, justify = column if isinstance(column, tuple) else (column, "left")
        drawn.add_column(
            name,
            justify="right" if justify == "right" else "left",
            overflow="fold",
            no_wrap=justify in ("right", "whole"),
        )
    for row in rows:
        drawn.add_row(*map(cell, row))
    return drawn


def cell(value: Any) -> RenderableType:
    """A value in a table: nothing is a dash, and square brackets are no markup."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    return Text("-" if value is None or value == "" else str(value))


STATES = {
    "Running": "green",
    "Scaling": "cyan",
    "Succeeded": "blue",
    "Failed": "bold red",
    "Suspended": "magenta",
    "Pending": "bold",
    "Planning": "bold",
}
"""Colours that can be read on light and on dark; the word stands there in any case."""


def state(word: str | None) -> RenderableType:
    """A job's state in its colour."""
    from rich.text import Text

    return Text(word or "-", style=STATES.get(word or "", ""))
