"""``penstock cost``: what jobs, users and namespaces cost, and how much of it was idle.

Idle is what was requested and not used. The Brain has the figures and the prices; without prices it
tells seconds, which are shown as hours.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.listing import AllNamespaces
from penstock.cli.session import Session, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import CostLine, CostReport

HOUR: Final = 3600.0
MOST_HOURS: Final = 92 * 24


class By(StrEnum):
    """What ``--by`` may say."""

    JOB = "job"
    USER = "user"
    NAMESPACE = "namespace"


@connected
def cost_(
    session: Session,
    by: Annotated[By, typer.Option("--by", help="What a line is about.")] = By.JOB,
    hours: Annotated[
        int, typer.Option("--hours", min=1, max=MOST_HOURS, help="How far back to look.")
    ] = 24,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=5000, help="Most lines, the dearest first.")
    ] = 50,
    all_namespaces: AllNamespaces = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated, for a sheet.")] = False,
) -> None:
    """Show what jobs, users or namespaces cost, and how much of it was idle."""
    from penstock.wire import CostsBy

    namespace = None if all_namespaces else session.namespace
    now = time.time()
    report = session.brain.costs(
        by=CostsBy(by.value), namespace=namespace, start=now - hours * HOUR, end=now, limit=limit
    )
    if as_csv:
        sys.stdout.write(sheet(report))
        return
    if not report.lines and session.output is output.Format.TABLE:
        where = "" if all_namespaces else f" in namespace {namespace}"
        session.note(f"nothing was spent in the last {hours} hours{where}")
        return
    session.show(report.model_dump(mode="json", exclude_none=True), lambda: bill(report, by))
    if session.output is output.Format.TABLE:
        if report.currency is None:
            session.note("the Brain has no prices: set `prices` in its configuration")
        if report.left_out:
            session.note(f"{report.left_out} more lines are in the total: --limit shows them")


def bill(report: CostReport, by: By) -> RenderableType:
    """The table, with the sum as its last line."""
    columns: list[output.Column] = [
        *((("NAMESPACE", "whole"), ("JOB", "whole"), "USER") if by is By.JOB else (by.upper(),)),
        ("CORE-H", "right"),
        ("IDLE", "right"),
        ("GIB-H", "right"),
        ("IDLE", "right"),
        ("GPU-H", "right"),
        ("IDLE", "right"),
    ]
    if report.currency is not None:
        columns += [(report.currency, "right"), ("IDLE", "right")]
    rows = [[*_names(line, by), *_figures(line)] for line in report.lines]
    names = ["total", *[""] * (2 if by is By.JOB else 0)]
    return output.table(columns, [*rows, [*names, *_figures(report.total)]])


def sheet(report: CostReport) -> str:
    """All figures of all lines as comma-separated values; the sum is left to the sheet."""
    text = io.StringIO()
    lines = [line.model_dump(mode="json") for line in report.lines]
    writer = csv.DictWriter(text, fieldnames=list(type(report.total).model_fields))
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


def _cell(value: object) -> object:
    # A sheet takes text that begins so for a formula; names are somebody else's.
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky else value


def _names(line: CostLine, by: By) -> list[str]:
    match by:
        case By.JOB:
            return [line.namespace, line.job, line.user]
        case By.USER:
            return [line.user or "(no user)"]
        case By.NAMESPACE:
            return [line.namespace]


def _figures(line: CostLine) -> list[str]:
    figures = [
        *_hours(line.core_seconds, line.idle_core_seconds),
        *_hours(line.gib_seconds, line.idle_gib_seconds),
        *_hours(line.accelerator_seconds, line.idle_accelerator_seconds),
    ]
    if line.cost is not None:
        figures += [f"{line.cost:,.2f}", _share(line.idle_cost or 0.0, line.cost)]
    return figures


def _hours(seconds: float, idle: float) -> list[str]:
    return [f"{seconds / HOUR:,.1f}", _share(idle, seconds)]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "-"
