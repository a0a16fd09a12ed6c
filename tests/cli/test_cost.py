"""``penstock cost``: the table has a sum, the sheet every figure and no formula."""

from __future__ import annotations

import csv
import io

from rich.console import Console

from penstock.cli.cost import By, bill, sheet
from penstock.wire import CostLine, CostReport


def line(job: str, hours: float, cost: float | None) -> CostLine:
    return CostLine(
        namespace="team" if job else "",
        job=job,
        user="ann" if job else "",
        pod_seconds=3600 * hours,
        core_seconds=7200 * hours,
        idle_core_seconds=3600 * hours,
        gib_seconds=3600 * hours,
        idle_gib_seconds=0,
        accelerator_seconds=0,
        idle_accelerator_seconds=0,
        cost=cost,
        idle_cost=None if cost is None else cost / 4,
    )


def report(cost: float | None) -> CostReport:
    return CostReport(
        start=0,
        end=86_400,
        currency=None if cost is None else "EUR",
        lines=[line("=SUM(A1)", 10, cost)],
        total=line("", 10, cost),
    )


def shown(cost: float | None, by: By) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as captured:
        console.print(bill(report(cost), by))
    return [row.split() for row in captured.get().splitlines()]


def test_the_table_ends_with_the_sum() -> None:
    heading, one, total = shown(1234.5, By.JOB)
    assert heading[:4] == ["NAMESPACE", "JOB", "USER", "CORE-H"]
    assert one == ["team", "=SUM(A1)", "ann", "20.0", "50%", "10.0", "0%", "0.0", "-", "1,234.50",
                   "25%"]  # fmt: skip  # one row of the table
    assert total[:5] == ["total", "-", "-", "20.0", "50%"]


def test_without_prices_no_column_is_about_money() -> None:
    heading, *_ = shown(None, By.USER)
    assert heading == ["USER", "CORE-H", "IDLE", "GIB-H", "IDLE", "GPU-H", "IDLE"]


def test_the_sheet_has_every_figure_and_no_formula() -> None:
    (row,) = csv.DictReader(io.StringIO(sheet(report(8.0))))
    assert row["job"] == "'=SUM(A1)"
    assert float(row["core_seconds"]) == 72_000
    assert float(row["idle_cost"]) == 2
