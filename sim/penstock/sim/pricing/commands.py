"""``penstock sim pricing``: options and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.sim.pricing.experiment import Row, Small
    from penstock.sim.report.goals import Goal


def pricing(
    jobs: Annotated[int, typer.Option(min=10, max=5000, help="How many jobs.")] = 100,
    small: Annotated[
        int, typer.Option(min=0, max=1000, help="Small cases held against the optimum.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    core_hour: Annotated[float, typer.Option(help="Price of a core for an hour.")] = 0.03,
    gib_hour: Annotated[float, typer.Option(help="Price of a GiB of memory for an hour.")] = 0.004,
    accelerator_hour: Annotated[
        float, typer.Option(help="Price of an accelerator for an hour.")
    ] = 2.4,
    processes: Annotated[int, typer.Option(min=1, max=64, help="That the jobs are made in.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """What the same work costs where jobs are planned together with a price, and each alone.

    Exits with 1 if a goal is missed.
    """
    import os

    from penstock.brain.errors import PricingError
    from penstock.brain.pricing.problem import Prices
    from penstock.sim.pricing.experiment import goals_of, jobs_of, rows_of, smalls_of

    load = round(os.getloadavg()[0], 1)
    try:
        prices = Prices(core_hour=core_hour, gib_hour=gib_hour, accelerator_hour=accelerator_hour)
    except PricingError as error:
        typer.echo(f"penstock sim: {error}", err=True)
        raise typer.Exit(2) from None
    drawn = jobs_of(jobs, seed, prices, processes)
    rows, smalls = rows_of(drawn, seed), smalls_of(drawn, small, seed)
    goals = goals_of(rows, smalls, jobs)
    if as_json:
        result: dict[str, Any] = {"command": "pricing", "seed": seed, "load": load}
        result |= {"prices": asdict(prices), "jobs": jobs}
        result |= {"rows": [asdict(row) for row in rows]}
        result |= {"small": [asdict(one) for one in smalls]}
        result["goals"] = [asdict(goal) for goal in goals]
        typer.echo(json.dumps(result))
    else:
        _show(rows, smalls, goals)
    if not all(goal.ok for goal in goals):
        raise typer.Exit(1)


def _show(rows: Sequence[Row], smalls: Sequence[Small], goals: Sequence[Goal]) -> None:
    from penstock.sim.report.tables import show

    tables: dict[str, Sequence[Any]] = {"clusters": rows, "small cases": smalls}
    for name, table in tables.items():
        if table:
            columns = [field.name for field in fields(table[0])]
            show(name, columns, [[_text(getattr(row, one)) for one in columns] for row in table])
    for goal in goals:
        missed = "" if goal.ok else "  MISSED"
        typer.echo(f"{goal.name}: {goal.got:g}, goal {goal.goal}{missed}")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
