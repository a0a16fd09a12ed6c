"""``penstock sim fgd``, ``detach``, ``table5`` and ``tuning``: options and output.

What they do is in the modules that they import when they run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

TracesOption = Annotated[Path | None, typer.Option("--traces", help="Folder with the trace files.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Also draw the result to this file.")
]
FGD_WORKLOADS: Final = "default,multigpu20,multigpu50,gpushare100,cpu050,cpu100"


def fgd(
    traces: TracesOption = None,
    workloads: Annotated[
        str,
        typer.Option(
            help="Pod lists to run, by name; 'generated' needs no files, 'dlrm' is 2025's."
        ),
    ] = FGD_WORKLOADS,
    policies: Annotated[str, typer.Option(help="Placement policies.")] = (
        "random,bestfit,fgd,stranding,spread,most"
    ),
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 42,
    nodes: Annotated[str, typer.Option(help="Node list in the folder.")] = (
        "openb_node_list_gpu_node.csv"
    ),
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """How full placement policies get a cluster, beside the published results of FGD."""
    from penstock.sim.cluster.experiments import fgd as experiment
    from penstock.sim.cluster.show import fgd_panels, show_fgd
    from penstock.sim.traces import openb

    with errors_in_words():
        loaded = [
            experiment.load_workload(traces, name, nodes) for name in named("workloads", workloads)
        ]
        chosen = range(first_seed, first_seed + seeds)
        results = []
        for run, filling in experiment.simulate(loaded, named("policies", policies), chosen):
            results.append((run, filling))
            _progress(f"{run.workload} {run.policy} seed {run.seed}: {run.allocated_at_130:.2f} %")
        runs = [run for run, _ in results]
        known = {}
        if traces is not None and nodes == openb.GPU_NODES and (traces / openb.PUBLISHED).is_file():
            known = openb.read_published(traces / openb.PUBLISHED)
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(fgd_panels(results, known), plot)
        if as_json:
            _print_json({"results": [run.as_json() for run in runs]})
            return
        show_fgd(experiment.summarise(runs, known))


def detach(
    traces: TracesOption = None,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Part of each GPU pod's CPU to detach.")
    ] = 0.5,
    workload: Annotated[str, typer.Option(help="Pod list to run, by name.")] = "default",
    policy: Annotated[str, typer.Option(help="Placement policy of both runs.")] = "fgd",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 42,
    nodes: Annotated[str, typer.Option(help="Node list in the folder.")] = (
        "openb_node_list_all_node.csv"
    ),
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """What detaching a part of the jobs' CPU does to GPUs that are idle for lack of CPU."""
    from penstock.sim.cluster.experiments import detach as experiment
    from penstock.sim.cluster.experiments.fgd import load_workload
    from penstock.sim.cluster.show import detach_panels, show_detach

    with errors_in_words():
        loaded = load_workload(traces, workload, nodes)
        before, after = [], []
        for seed in range(first_seed, first_seed + seeds):
            before.append(experiment.run(loaded, 0.0, policy, seed))
            after.append(experiment.run(loaded, share, policy, seed))
            _progress(
                f"seed {seed}: {before[-1].cpu_idle_gpus:.1f} -> {after[-1].cpu_idle_gpus:.1f}"
            )
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(detach_panels(before, after), plot)
        if as_json:
            idle_before = statistics.fmean(run.cpu_idle_gpus for run in before)
            idle_after = statistics.fmean(run.cpu_idle_gpus for run in after)
            allocated = statistics.fmean(run.allocated for run in after)
            _print_json(
                {
                    "baseline_cpu_idle_gpus": round(idle_before, 3),
                    "cpu_idle_gpus": round(idle_after, 3),
                    "allocated": round(allocated, 3),
                }
            )
            return
        show_detach(workload, policy, before, after)


def table5(
    traces: TracesOption = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Windows of the trace.")] = 20,
    load: Annotated[
        str, typer.Option(help="GPU-seconds asked for, over those that there are in the window.")
    ] = "0.5,1,1.5,2",
    generated: Annotated[
        bool, typer.Option("--generated", help="Draw jobs at random; needs no files.")
    ] = False,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Each policy with a model of every job, too.")
    ] = False,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """GoldMiner's Table 5: job completion time with and without elastic data workers."""
    from penstock.sim.cluster.experiments import table5 as experiment
    from penstock.sim.cluster.show import show_table5, table5_panels
    from penstock.sim.errors import UnnamedTracesError

    with errors_in_words():
        loads = [number("load", text) for text in named("load", load)]
        if traces is None and not generated:
            raise UnnamedTracesError("--generated")
        trace = experiment.load_trace(None if generated else traces)
        rows = []
        windows = range(first_seed, first_seed + seeds)
        for row in experiment.simulate(trace, loads, windows, predicted=predicted):
            rows.append(row)
            _progress(f"load {row.load:g} {row.policy}: JCT {row.jct_minutes:.0f} min")
        if plot is not None:
            from penstock.sim.report.plot import draw

            draw(table5_panels(rows), plot)
    goals = experiment.predicted_goals(rows)
    if as_json:
        result: dict[str, object] = {"results": [row.as_json() for row in rows]}
        _print_json({**result, "goals": [asdict(one) for one in goals]} if predicted else result)
    else:
        show_table5(rows)
        for goal in goals:
            typer.echo(f"{goal.name}: {goal.got:g}, goal {goal.goal}")
    if not all(goal.ok for goal in goals):
        raise typer.Exit(1)


def tuning(as_json: JsonOption = False) -> None:
    """The three-step tuning of one job's data workers, as in GoldMiner's Fig. 13."""
    from penstock.sim.cluster.experiments.tuning import trace
    from penstock.sim.cluster.show import show_tuning

    lines = list(trace())
    if as_json:
        _print_json({"results": [line.as_json() for line in lines]})
    else:
        show_tuning(lines)


def named(option: str, text: str) -> list[str]:
    """The names that an option gives, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter(f"--{option} {text!r}: name at least one, separated by commas")
    return list(dict.fromkeys(names))


def number(option: str, text: str) -> float:
    """The number that an option gives."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.0 < value <= 10.0:
        raise typer.BadParameter(f"--{option} {text!r}: must be numbers above 0 and up to 10")
    return value


def _progress(text: str) -> None:
    typer.echo(text, err=True)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value))


@contextmanager
def errors_in_words() -> Iterator[None]:
    """End with a message and status 2 instead of a traceback where the input is to blame."""
    from penstock.scheduler.errors import SchedulerError
    from penstock.sim.errors import SimulationError

    try:
        yield
    except (SimulationError, SchedulerError) as error:
        typer.echo(f"penstock sim: {error}", err=True)
        raise typer.Exit(2) from None
