"""``penstock sim offload``: options and output."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

GOALS: Final = {"p90": 0.03, "p99": 0.08}


def offload(
    cases: Annotated[int, typer.Option(min=1, max=1_000_000, help="Random jobs.")] = 10_000,
    noise: Annotated[
        float, typer.Option(min=0.0, max=0.3, help="Of every figure that we measure.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Of the jobs and the noise.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Default: one per core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the losses of every rule (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """How far offloading rules stay behind the best ratio, on jobs that wait for their data.

    Ours decides on figures with noise and corrects itself once; FastFlow's rule (PVLDB 16(5)), as
    printed and as its code has it, gets exact ones. Exits with 1 if ours misses its goals.
    """
    import os

    from penstock.sim.offload.experiment import OURS, losses, summary
    from penstock.sim.report.tables import show

    found = losses(cases, noise, seed, processes)
    rows = summary(found)
    own = next(row for row in rows if row.rule == OURS)
    goals = [
        {
            "name": f"{quantile} of the loss, corrected once",
            "goal": f"<= {goal}",
            "got": getattr(own, quantile),
            "ok": getattr(own, quantile) <= goal,
        }
        for quantile, goal in GOALS.items()
    ]
    if plot is not None:
        from penstock.sim.errors import SimulationError
        from penstock.sim.offload.picture import draw_losses

        try:
            draw_losses(found, plot)
        except SimulationError as error:
            typer.echo(f"penstock sim: {error}", err=True)
            raise typer.Exit(2) from None
    if as_json:
        result = {
            "seed": seed,
            "load": os.getloadavg()[0],
            "cases": cases,
            "noise": noise,
            "rules": [asdict(row) for row in rows],
            "goals": goals,
        }
        typer.echo(json.dumps(result))
    else:
        show(
            f"{cases} jobs that wait for data (seed {seed}): loss against the best ratio, in %",
            ("rule", "within 3 %", "median", "p90", "p99", "worst"),
            [
                (
                    row.rule,
                    f"{row.within_3_percent:.0%}",
                    *(f"{value:.1%}" for value in (row.median, row.p90, row.p99, row.worst)),
                )
                for row in rows
            ],
        )
        for goal in goals:
            typer.echo(f"{goal['name']}: {goal['got']:.3f}, goal {goal['goal']}")
    if not all(goal["ok"] for goal in goals):
        raise typer.Exit(1)
