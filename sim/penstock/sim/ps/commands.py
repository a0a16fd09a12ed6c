"""``penstock sim ps``: training with parameter servers under the Brain's algorithms and others'."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class PaperModel(StrEnum):
    """The models of DLRover's evaluation."""

    WIDE_DEEP = "wide-deep"
    XDEEPFM = "xdeepfm"


class SlowPod(StrEnum):
    """Which pod is slow."""

    WORKER = "worker"
    PS = "ps"


def ps(
    model: Annotated[
        PaperModel | None, typer.Option(help="One of the paper's models, under every planner.")
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="So many random jobs instead.")
    ] = None,
    straggler: Annotated[
        SlowPod | None,
        typer.Option(help="With --model: one pod has 25 % of its CPU; start well tuned."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise, and of the random jobs.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="With --random; default: one per core.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="With --random: one more installed algorithm, after the sampling."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="With --model: draw speed over time (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Simulate training with parameter servers: plans, speed over time, completion time.

    Either --model, for DLRover's Tables 1 and 2 and Figures 8 and 9, or --random, for how close
    each algorithm comes to an exhaustive oracle on jobs it has never seen.
    """
    from penstock.sim.errors import SimulationError
    from penstock.sim.ps import report

    if (model is None) == (random is None):
        raise typer.BadParameter("give either --model or --random")
    if random is not None and (straggler is not None or plot is not None):
        raise typer.BadParameter("--straggler and --plot go with --model")
    if model is not None and algorithm is not None:
        raise typer.BadParameter("--algorithm goes with --random")
    try:
        if random is not None:
            report.random_jobs(random, seed, processes, algorithm, as_json)
        elif model is not None:
            slow = straggler.value if straggler is not None else None
            report.paper_model(model.value, slow, seed, as_json, plot)
    except SimulationError as error:
        raise SystemExit(str(error)) from None


def create(
    past: Annotated[
        int, typer.Option(min=1, max=20_000, help="Finished jobs to learn from.")
    ] = 2000,
    new: Annotated[int, typer.Option(min=1, max=20_000, help="Jobs to plan.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the jobs.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """First plans from history, against what users ask for: how far too much or too little."""
    from penstock.sim.ps import report

    report.create_stage(past, new, seed, as_json)
