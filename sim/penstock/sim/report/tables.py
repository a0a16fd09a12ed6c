"""Tables for the terminal: columns of text, the published value beside ours."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to the standard output; the first two columns are names, the rest numbers."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # A pipe has no width of its own; without one, rich would cut the columns to 80 characters.
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(table)


def beside(value: float, published: float | None, digits: int = 2) -> str:
    """A number and, in brackets, what was published for it."""
    text = f"{value:.{digits}f}"
    return text if published is None else f"{text} ({published:.{digits}f})"
