"""CSV traces, row by row, with errors that name the file and the line.

A reader takes one `TraceRow` at a time and asks it for typed columns; whatever is missing or is not
what the column should hold is refused there, with the file, the line, the column and the value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.sim.errors import BrokenTraceError, MissingTraceError


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a trace."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str, default: str = "") -> str:
        """A cell as text; `default` where the file has no such column."""
        return self.cells.get(column, default).strip()

    def integer(self, column: str, *, default: int | None = None, at_least: int = 0) -> int:
        """A cell as a whole number; `default`, where given, stands for an empty cell."""
        value = self.number(column, default=default, at_least=at_least)
        if value != int(value):
            raise self.error(column, "must be a whole number")
        return int(value)

    def number(self, column: str, *, default: float | None = None, at_least: float = 0.0) -> float:
        """A cell as a finite number."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, "must be a number") from None
        if not math.isfinite(value):
            raise self.error(column, "must be a finite number")
        if value < at_least:
            raise self.error(column, f"must be at least {at_least:g}")
        return value

    def error(self, column: str, rule: str) -> BrokenTraceError:
        """An error about one cell."""
        return self.broken(f"{column}={self.text(column)!r}: {rule}")

    def broken(self, problem: str) -> BrokenTraceError:
        """An error about the whole line."""
        return BrokenTraceError(self.path, self.line, problem)


def read_rows(path: Path, required: Sequence[str], source: str) -> Iterator[TraceRow]:
    """The lines of a CSV file whose header has at least the required columns.

    Raises:
        MissingTraceError: there is no such file; the message says what to fetch (`source`).
        BrokenTraceError: a column is missing, or a line has more or fewer cells than the header.
    """
    if not path.is_file():
        raise MissingTraceError(path, source)
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in required if name not in header]
            if missing:
                problem = f"no column {', '.join(missing)}; the header is {','.join(header)!r}"
                raise BrokenTraceError(path, 1, problem)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    problem = f"{len(cells)} cells, but the header has {len(header)}"
                    raise BrokenTraceError(path, reader.line_num, problem)
                yield TraceRow(path, reader.line_num, dict(zip(header, cells, strict=True)))
        except csv.Error as error:
            raise BrokenTraceError(path, reader.line_num, str(error)) from None
