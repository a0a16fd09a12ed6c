"""``penstock sim sharing``: options and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from penstock.sim.report.goals import Goal
    from penstock.sim.report.plot import Panel

FIGURES: Final = (9, 10, 11)
MOST_JOBS: Final = 256

_Tables = dict[str, Sequence[Any]]
_Part = tuple["_Tables", "list[Goal]", "list[Panel]"]


def sharing(
    jobs: Annotated[str, typer.Option(help="Numbers of jobs, divided by commas.")] = "8,16,32",
    figure: Annotated[
        str | None,
        typer.Option(help="Figures of tf.data service instead: of 9, 10, 11, divided by commas."),
    ] = None,
    coordl: Annotated[bool, typer.Option("--coordl", help="CoorDL's tables instead.")] = False,
    demand: Annotated[
        bool, typer.Option("--demand", help="Data workers that a group asks for instead.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the rules, or the figures (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """How often data are made for jobs that share them, by rule, beside the least that can be.

    Ours is the data plane's own code. Exits with 1 if a goal is missed.
    """
    import os

    from penstock.sim.errors import SimulationError
    from penstock.sim.report.plot import draw

    if sum((figure is not None, coordl, demand)) > 1:
        raise typer.BadParameter("give one of --figure, --coordl and --demand")
    try:
        if figure is not None:
            tables, goals, panels = _figures(_numbers(figure, "--figure", FIGURES), seed)
        elif coordl:
            tables, goals, panels = _coordl(seed)
        elif demand:
            tables, goals, panels = _demand()
        else:
            counts = _numbers(jobs, "--jobs", range(2, MOST_JOBS + 1))
            tables, goals, panels = _rules(counts, seed)
        if plot is not None:
            if not panels:
                raise typer.BadParameter("--plot draws the rules, or --figure")
            draw(panels, plot)
    except SimulationError as error:
        typer.echo(f"penstock sim: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        result: dict[str, Any] = {"command": "sharing", "seed": seed, "load": os.getloadavg()[0]}
        result |= {name: [asdict(row) for row in rows] for name, rows in tables.items()}
        result["goals"] = [asdict(goal) for goal in goals]
        typer.echo(json.dumps(result))
    else:
        _show(tables, goals)
    if not all(goal.ok for goal in goals):
        raise typer.Exit(1)


def _numbers(text: str, option: str, among: Sequence[int]) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or any(number not in among for number in found):
        known = ", ".join(map(str, among)) if len(among) < 10 else f"{among[0]} to {among[-1]}"
        raise typer.BadParameter(f"{option}: {text!r}; numbers of {known}, divided by commas")
    return sorted(set(found))


def _rules(jobs: Sequence[int], seed: int) -> _Part:
    from penstock.sim.sharing.experiment import goals_of, rows_of
    from penstock.sim.sharing.picture import rules_panels

    rows = rows_of(jobs, seed)
    return {"rows": rows}, goals_of(rows), rules_panels(rows)


def _figures(numbers: Sequence[int], seed: int) -> _Part:
    from penstock.sim.sharing import picture, steps, tfdata

    tables: _Tables = {}
    goals: list[Goal] = []
    panels: list[Panel] = []
    if 9 in numbers:
        rates = tfdata.figure_9()
        tables |= {"figure_9": rates, "dollars": tfdata.dollars()}
        goals += tfdata.goals_9()
        panels.append(picture.figure_9_panel(rates))
    if 10 in numbers:
        costs = tfdata.figure_10(seed)
        tables["figure_10"] = costs
        goals += tfdata.goals_10(costs)
        panels.append(picture.figure_10_panel(costs))
    if 11 in numbers:
        speedups = steps.figure_11(seed)
        tables["figure_11"] = speedups
        goals += steps.goals_11(speedups)
        panels.append(picture.figure_11_panel(speedups))
    return tables, goals, panels


def _coordl(seed: int) -> _Part:
    from penstock.sim.sharing import coordl

    missing, read, gained = coordl.misses(), coordl.reads(seed), coordl.gains()
    tables: _Tables = {"misses": missing, "read": read, "gains": gained}
    return tables, coordl.goals(missing, read, gained), []


def _demand() -> _Part:
    from penstock.sim.sharing import demand

    rows = demand.demands()
    return {"demand": rows}, demand.goals(rows), []


def _show(tables: _Tables, goals: Sequence[Goal]) -> None:
    from penstock.sim.report.tables import show

    for name, rows in tables.items():
        columns = [field.name for field in fields(rows[0])]
        show(name, columns, [[_text(getattr(row, one)) for one in columns] for row in rows])
    for goal in goals:
        missed = "" if goal.ok else "  MISSED"
        typer.echo(f"{goal.name}: {goal.got:g}, goal {goal.goal}{missed}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
