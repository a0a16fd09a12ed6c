"""``penstock cost``: what jobs, users and namespaces cost, and how much of it was wasted.

Idle is what was requested and not used, repeated what was used for steps that had been trained
before. With ``--nodes`` it says where all that the nodes had went. The Brain has the figures and
the prices; without prices it tells seconds, which are shown as hours.
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
from penstock.cli.session import Session, UsageError, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import CostLine, CostReport, NodesLine, NodesReport

HOUR: Final = 3600.0
MOST_HOURS: Final = 92 * 24
ALL_KNOWN: Final = 0.99
"""Of the time of a bill of nodes: less is said."""


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
    of_nodes: Annotated[
        bool, typer.Option("--nodes", help="Where all that the nodes had went, instead of jobs.")
    ] = False,
) -> None:
    """Show what jobs, users or namespaces cost, or nodes, and how much of it was wasted."""
    from penstock.wire import CostsBy

    now = time.time()
    if of_nodes:
        if by is not By.JOB:
            raise UsageError("--by: is of bills of jobs; --nodes has one of all nodes")
        _nodes(session, now - hours * HOUR, as_csv=as_csv)
        return
    namespace = None if all_namespaces else session.namespace
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


def _nodes(session: Session, start: float, *, as_csv: bool) -> None:
    report = session.brain.nodes_costs(start=start)
    if as_csv:
        sys.stdout.write(nodes_sheet(report))
        return
    session.show(report.model_dump(mode="json", exclude_none=True), lambda: nodes_bill(report))
    if session.output is output.Format.TABLE:
        for line in nodes_notes(report):
            session.note(line)


def nodes_bill(report: NodesReport) -> RenderableType:
    """The parts of what the nodes had, with their sum as the last line."""
    columns: list[output.Column] = [
        ("PART", "whole"),
        ("CORE-H", "right"),
        ("SHARE", "right"),
        ("GIB-H", "right"),
        ("SHARE", "right"),
        ("GPU-H", "right"),
        ("SHARE", "right"),
    ]
    if report.currency is not None:
        columns += [(report.currency, "right"), ("SHARE", "right")]
    total = report.total
    rows = [[part.value.lower(), *_shares(line, total)] for part, line in report.parts.items()]
    return output.table(columns, [*rows, ["nodes had", *_shares(total, total)]])


def nodes_notes(report: NodesReport) -> list[str]:
    """What is to be known beside the figures."""
    said = []
    known = report.covered_seconds / (report.end - report.start)
    if known < ALL_KNOWN:
        said.append(
            f"the scheduler has shown the nodes for {known:.0%} of this time, and jobs count for "
            "all of it: others are too few by what the nodes had meanwhile"
        )
    if any(line.core_seconds < 0 for line in report.parts.values()):
        said.append("others are below zero: pods of jobs were given more than they request")
    if report.currency is None:
        said.append("the Brain has no prices: set `prices` in its configuration")
    return said


def nodes_sheet(report: NodesReport) -> str:
    """Every part, and the sum, as comma-separated values."""
    text = io.StringIO()
    names = ["part", *type(report.total).model_fields]
    writer = csv.DictWriter(text, fieldnames=names)
    writer.writeheader()
    for part, line in report.parts.items():
        writer.writerow({"part": part.value, **line.model_dump(mode="json")})
    writer.writerow({"part": "Total", **report.total.model_dump(mode="json")})
    return text.getvalue()


def _shares(line: NodesLine, whole: NodesLine) -> list[str]:
    cells = []
    for name in ("core_seconds", "gib_seconds", "accelerator_seconds"):
        seconds, all_seconds = getattr(line, name), getattr(whole, name)
        cells += [f"{seconds / HOUR:,.1f}", _share(seconds, all_seconds)]
    if line.cost is not None and whole.cost is not None:
        cells += [f"{line.cost:,.2f}", _share(line.cost, whole.cost)]
    return cells


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
    columns.append(("REPEATED", "right"))
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
        return [*figures, _share(line.repeated_cost or 0.0, line.cost)]
    return [*figures, _share(line.repeated_core_seconds, line.core_seconds)]


def _hours(seconds: float, idle: float) -> list[str]:
    return [f"{seconds / HOUR:,.1f}", _share(idle, seconds)]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "-"
