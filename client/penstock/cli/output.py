"""What commands print: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPED_COLUMNS: Final = 160
"""Width where no terminal says one: a table that is piped must not lose its last columns."""
FEWEST_COLUMNS: Final = 60
"""A narrower terminal breaks the lines itself: tables squeezed further can no longer be read."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]{0,32}m)")
_PLAIN_AGAIN: Final = "\x1b[0m"

Column = str | tuple[str, str]
"""A heading; with ``right`` or ``whole``: to the right, or never broken."""


class Format(StrEnum):
    """What ``-o`` may say."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console() -> Console:
    """A console for standard output; colours only on a terminal and without NO_COLOR."""
    from rich.console import Console

    width: int | None = PIPED_COLUMNS
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        width = None  # rich asks the terminal, again when it changes its size
    made = Console(file=sys.stdout, width=width, highlight=False, emoji=False)
    if made.width < FEWEST_COLUMNS:
        made.width = FEWEST_COLUMNS
    return made


def written(document: Any, form: Format) -> str:
    """A document as JSON or YAML, the keys in the order in which they are."""
    if form is Format.JSON:
        return json.dumps(document, indent=2, ensure_ascii=not _unicode()) + "\n"
    import yaml

    plain = json.loads(json.dumps(document))  # what YAML's safe form does not know: enums, tuples
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=_unicode())
    return text


def streamed(document: Any, form: Format) -> str:
    """One document of many, as they come: JSON one a line, YAML each after ``---``."""
    if form is Format.JSON:
        return json.dumps(document, ensure_ascii=not _unicode()) + "\n"
    return "---\n" + written(document, form)


def _unicode() -> bool:
    """Whether standard output can say everything; else programs are given escapes."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


def plain(text: str) -> str:
    """Somebody else's text, without what would move the cursor or change colours."""
    return _CONTROLS.sub("�", text)


def log_line(text: str) -> str:
    """A line that a program in a pod wrote, as a terminal may be given it.

    Colours stay, for this line; all else that speaks to the terminal (titles, clipboards, cursors)
    is shown as a mark. Of what a progress bar wrote over itself the last is left.
    """
    last = text.rstrip("\r").rpartition("\r")[2]
    parts = _COLOUR.split(last)
    if len(parts) == 1:
        return plain(last)
    coloured = (part if index % 2 else plain(part) for index, part in enumerate(parts))
    return "".join(coloured) + _PLAIN_AGAIN


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
    return Text("-" if value is None or value == "" else plain(str(value)))


STATES: Final = {
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
