"""``penstock sim week``: options and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.sim.report.plot import Panel
    from penstock.sim.week.summary import Comparison
    from penstock.sim.week.world.assumptions import Assumptions


def week(
    jobs: Annotated[
        int, typer.Option(min=10, max=20_000, help="Jobs of the week; the paper's had 5,306.")
    ] = 500,
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="How many weeks, of seeds 0, 1, ..")
    ] = 1,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Also with each assumption changed, one at a time."),
    ] = False,
    assume: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE: another value of an assumption.")
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(help="Figures of DLRover instead: of 1, 3, 6, divided by commas."),
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(help="Folder with Alibaba's trace: its services preempt.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Default: one per core.")
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="A line on stderr for each simulated day. Default: where that is a terminal.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the week, or the figures (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """A week of a cluster twice: static requests, and the Brain, controller and placement of ours.

    Same jobs, arrivals, services and faults in both. Prints JCT, completion, utilisation and cost
    beside DLRover's section 6.4, and every assumption with its source.
    """
    import os
    import sys
    import time

    from penstock.sim.errors import SimulationError
    from penstock.sim.report.plot import check, draw

    begin = time.monotonic()
    told = sys.stderr.isatty() if progress is None else progress

    if figure is not None and sensitivity:
        raise typer.BadParameter("give either --figure or --sensitivity")
    try:
        if plot is not None:
            check(plot)
        assumed = _assumed(assume or [])
        header = {"command": "week", "seeds": list(range(seeds)), "load": os.getloadavg()[0]}
        if figure is not None:
            result, panels = _figures(figure, jobs, seeds, assumed, traces, quiet=as_json)
        else:
            result, panels = _weeks(
                jobs,
                seeds,
                assumed,
                traces,
                processes,
                sensitivity=sensitivity,
                quiet=as_json,
                told=told,
            )
        if plot is not None:
            draw(panels, plot)
    except SimulationError as error:
        typer.echo(f"penstock sim: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        used = {"clock_seconds": time.monotonic() - begin, "cpu_seconds": sum(os.times()[:4])}
        typer.echo(json.dumps({**header, **used, **result}))
    if any(not goal["ok"] for goal in result.get("goals", ())):
        raise typer.Exit(1)


def _assumed(words: list[str]) -> Assumptions:
    from penstock.sim.week.world.assumptions import Assumptions, varied

    assumed = Assumptions()
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise typer.BadParameter(f"--assume: {word!r}; NAME=VALUE, such as load=0.5")
        before = getattr(assumed, name, 0.0)
        value: Any
        if isinstance(before, bool):
            if text not in ("true", "false"):
                raise typer.BadParameter(f"--assume: {word!r}; {name} is true or false")
            value = text == "true"
        else:
            try:
                value = float(text)
            except ValueError:
                value = float("nan")
            if not 0 <= value < float("inf"):
                raise typer.BadParameter(f"--assume: {word!r}; {name} is a number from 0")
        assumed = varied(assumed, name, value)
    return assumed


def _weeks(
    jobs: int,
    seeds: int,
    assumed: Assumptions,
    traces: Path | None,
    processes: int | None,
    *,
    sensitivity: bool,
    quiet: bool,
    told: bool,
) -> tuple[dict[str, Any], list[Panel]]:
    from penstock.sim.week import experiment, show

    others = experiment.sensitivity(assumed) if sensitivity else []
    names = ["", *(f"{name}={value}, " for name, value, _ in others)]
    worlds = [assumed, *(world for _, _, world in others)]
    if not quiet:
        show.assumptions(assumed)
    # The days of some forty worlds are too many lines for anyone to read.
    made = experiment.weeks(
        jobs, range(seeds), worlds, traces, processes, told=told and not sensitivity
    )
    found: list[list[Comparison]] = [[] for _ in worlds]
    for number, one in enumerate(made):
        world = number // seeds
        found[world].append(one)
        if not quiet or told:
            typer.echo(names[world] + show.seed_line(one), err=quiet)
    result = show.as_object(jobs, assumed, found[0])
    if not quiet:
        show.tables(jobs, found[0])
    if sensitivity:
        lines = show.sensitivity_object(
            found[0],
            [(name, value, made) for (name, value, _), made in zip(others, found[1:], strict=True)],
        )
        result["sensitivity"] = lines
        if not quiet:
            show.sensitivity_table(lines)
    return result, show.panels(found[0])


def _figures(
    text: str, jobs: int, seeds: int, assumed: Assumptions, traces: Path | None, *, quiet: bool
) -> tuple[dict[str, Any], list[Panel]]:
    from dataclasses import asdict

    from penstock.sim.report.tables import show
    from penstock.sim.week import figures

    if any(word not in {"1", "3", "6"} for word in text.split(",")):
        raise typer.BadParameter(f"--figure: {text!r}; numbers of 1, 3, 6, divided by commas")
    result: dict[str, Any] = {}
    panels: list[Panel] = []
    shown: list[tuple[str, list[Any]]] = []
    for number in sorted(set(text.split(","))):
        rows: list[Any]
        if number == "1":
            rows = points = figures.figure_1()
            panels += figures.panels_1(points)
        elif number == "3":
            rows, correlation = figures.figure_3(jobs, range(seeds), assumed, traces)
            result["figure_3_rank_correlation"] = correlation
            panels += figures.panels_3(rows)
        else:
            rows = bars = figures.figure_6()
            panels += figures.panels_6(bars)
        result[f"figure_{number}"] = [asdict(row) for row in rows]
        shown.append((f"Figure {number} of DLRover", rows))
    if not quiet:
        for title, rows in shown:
            columns = list(asdict(rows[0])) if rows else []
            show(title, columns, [[_cell(v) for v in asdict(row).values()] for row in rows])
        if "figure_3_rank_correlation" in result:
            typer.echo(f"rank correlation: {result['figure_3_rank_correlation']:.2f}")
    return result, panels


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
