"""``penstock cost``: the table has a sum, the sheet every figure and no formula."""

from __future__ import annotations

import csv
import io

from rich.console import Console

from penstock.cli.cost import By, bill, nodes_bill, nodes_notes, nodes_sheet, sheet
from penstock.wire import CostLine, CostReport, NodesReport


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
                   "25%", "0%"]  # fmt: skip  # one row of the table
    assert total[:5] == ["total", "-", "-", "20.0", "50%"]


def test_without_prices_no_column_is_about_money() -> None:
    heading, *_ = shown(None, By.USER)
    assert heading == ["USER", "CORE-H", "IDLE", "GIB-H", "IDLE", "GPU-H", "IDLE", "REPEATED"]


def test_the_sheet_has_every_figure_and_no_formula() -> None:
    (row,) = csv.DictReader(io.StringIO(sheet(report(8.0))))
    assert row["job"] == "'=SUM(A1)"
    assert float(row["core_seconds"]) == 72_000
    assert float(row["idle_cost"]) == 2


def nodes(cost: float | None, covered: float = 86_400) -> NodesReport:
    hours = {"Used": 6.0, "Repeated": 1, "Idle": 2, "Others": -1, "Stranded": 0, "Free": 2}

    def line_of(share: float) -> dict[str, float | None]:
        return {
            "core_seconds": 3600 * share,
            "gib_seconds": 7200 * share,
            "accelerator_seconds": 0,
            "cost": None if cost is None else cost * share / 10,
        }

    return NodesReport.model_validate(
        {
            "start": 0,
            "end": 86_400,
            "covered_seconds": covered,
            "node_seconds": 86_400,
            "currency": None if cost is None else "EUR",
            "parts": {name: line_of(share) for name, share in hours.items()},
            "total": line_of(10),
        }
    )


def test_repeated_work_has_a_column() -> None:
    one = line("a", 10, 8).model_copy(update={"repeated_cost": 2.0})
    about = report(8).model_copy(update={"lines": [one]})
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as captured:
        console.print(bill(about, By.JOB))
    heading, first, *_ = (row.split() for row in captured.get().splitlines())
    assert (heading[-1], first[-1]) == ("REPEATED", "25%")


def test_the_parts_of_the_nodes_end_with_what_they_had() -> None:
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as captured:
        console.print(nodes_bill(nodes(100)))
    rows = [row.split() for row in captured.get().splitlines()]
    assert rows[1] == ["used", "6.0", "60%", "12.0", "60%", "0.0", "-", "60.00", "60%"]
    assert rows[-1] == ["nodes", "had", "10.0", "100%", "20.0", "100%", "0.0", "-", "100.00",
                        "100%"]  # fmt: skip  # one row of the table


def test_gaps_and_pods_that_burst_are_told() -> None:
    known, burst, prices = nodes_notes(nodes(None, covered=43_200))
    assert "for 50% of this time" in known
    assert "given more than they request" in burst
    assert "no prices" in prices


def test_the_sheet_of_the_nodes_has_every_part_and_the_sum() -> None:
    rows = list(csv.DictReader(io.StringIO(nodes_sheet(nodes(100)))))
    assert [row["part"] for row in rows][-2:] == ["Free", "Total"]
    parts, total = rows[:-1], rows[-1]
    assert sum(float(row["core_seconds"]) for row in parts) == float(total["core_seconds"])
