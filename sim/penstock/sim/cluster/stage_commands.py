"""``penstock sim table4`` and ``fragments``, and ``tuning --stages``: options and output.

What they do is in the modules that they import when they run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.sim.cluster.commands import (
    JsonOption,
    PlotOption,
    TracesOption,
    errors_in_words,
    named,
    number,
)
from penstock.sim.cluster.commands import tuning as tuning_of_one_stage

if TYPE_CHECKING:
    from penstock.sim.report.goals import Goal


def table4(as_json: JsonOption = False, plot: PlotOption = None) -> None:
    """GoldMiner's Table 4: a model whose input needs CPUs and a GPU, in one stage and in two."""
    from penstock.sim.cluster.experiments import table4 as experiment
    from penstock.sim.cluster.show_stages import show_table4, table4_panels

    rows, goals = experiment.rows(), experiment.goals()
    intervals = list(experiment.choices())
    with errors_in_words():
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(table4_panels(rows), plot)
    if as_json:
        chosen, speed = experiment.chosen()
        result = {
            "results": [row.as_json() for row in rows],
            "chosen": {"added_gpus": chosen, "speed": round(speed, 4)},
        }
        _print_with_goals(result, 0, goals)
    else:
        show_table4(rows, intervals)
    _end(goals)


def tuning(
    stages: Annotated[int, typer.Option(min=1, max=8, help="Stages of each job's input.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Random jobs; with --stages. [500]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the jobs; with --stages.")] = 1,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """The tuning of one job, as in GoldMiner's Fig. 13; with --stages, of random jobs by stages."""
    from penstock.sim.cluster.experiments import stages as experiment
    from penstock.sim.cluster.show_stages import show_stages, stages_panels

    if stages == 1 and jobs is None and plot is None:
        tuning_of_one_stage(as_json)
        return
    count = jobs or 500
    exact = experiment.simulate(stages, count, seed, 0.0)
    noisy = experiment.simulate(stages, count, seed)
    goals = experiment.goals(exact, noisy)
    with errors_in_words():
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(stages_panels(exact, noisy), plot)
    if as_json:
        result = {
            "stages": stages,
            "jobs": count,
            "results": [
                {
                    "noise": noise,
                    "reached": [run.reached for run in runs],
                    "off": [run.off for run in runs],
                }
                for noise, runs in ((0.0, exact), (experiment.NOISE, noisy))
            ],
        }
        _print_with_goals(result, seed, goals)
    else:
        show_stages(stages, goals)
    _end(goals)


def fragments(
    traces: TracesOption = None,
    workloads: Annotated[str, typer.Option(help="Pod lists, by name; 'generated' needs none.")] = (
        "default"
    ),
    policies: Annotated[str, typer.Option(help="Placement policies.")] = "bestfit,fgd,stranding",
    load: Annotated[str, typer.Option(help="As of table5; of the queueing jobs.")] = "0.5,1",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 42,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """GoldMiner's Fig. 3 and 4: machines that lack one resource, and what jobs queue for."""
    from penstock.sim.cluster.experiments import fragments as experiment
    from penstock.sim.cluster.experiments import table5
    from penstock.sim.cluster.experiments.fgd import load_workload
    from penstock.sim.cluster.show_stages import fragments_panels, show_fragments
    from penstock.sim.traces.openb import GPU_NODES

    with errors_in_words():
        chosen = range(first_seed, first_seed + seeds)
        rows = []
        for name in named("workloads", workloads):
            workload = load_workload(traces, name, GPU_NODES)
            for policy in named("policies", policies):
                rows.append(experiment.machines(workload, policy, chosen))
                typer.echo(f"{name} {policy}: {rows[-1].no_cpu:.1%} without CPU", err=True)
        trace = table5.load_trace(traces)
        queues = []
        for one in (number("load", text) for text in named("load", load)):
            queues += experiment.queueing(trace, one, chosen)
            typer.echo(f"load {one:g}: done", err=True)
        goals = experiment.goals(rows, queues)
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(fragments_panels(rows, queues), plot)
    if as_json:
        result = {
            "machines": [row.as_json() for row in rows],
            "queueing": [row.as_json() for row in queues],
        }
        _print_with_goals(result, first_seed, goals)
    else:
        show_fragments(rows, queues)
    _end(goals)


def _print_with_goals(result: Mapping[str, object], seed: int, goals: Sequence[Goal]) -> None:
    found = {"seed": seed, "load": os.getloadavg()[0], **result}
    typer.echo(json.dumps({**found, "goals": [asdict(goal) for goal in goals]}))


def _end(goals: Sequence[Goal]) -> None:
    missed = [goal for goal in goals if not goal.ok]
    for goal in missed:
        typer.echo(f"missed: {goal.name}: {goal.got}, goal {goal.goal}", err=True)
    if missed:
        raise typer.Exit(1)
