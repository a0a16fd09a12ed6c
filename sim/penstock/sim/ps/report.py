"""What the experiments say, for people (tables) and for programs (JSON)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock.base.enums import Role
from penstock.sim.ps.create import compare
from penstock.sim.ps.experiments import (
    as_json,
    linear,
    paper_runs,
    random_summary,
    straggler_runs,
)
from penstock.sim.ps.jobs.paper import PAPER_JOBS
from penstock.sim.ps.run import RunOutcome
from penstock.sim.report.plot import Curve, Panel, draw


def paper_model(
    name: str, straggler: str | None, seed: int, json_wanted: bool, plot: Path | None
) -> None:
    """Run one of the paper's models and print what came out."""
    job = PAPER_JOBS[name]
    role = None if straggler is None else Role(straggler)
    runs = paper_runs(name, seed) if role is None else straggler_runs(name, role, seed)
    if plot is not None:
        _plot(name, runs, plot)
    if json_wanted:
        shown = {
            "model": name,
            "straggler": straggler,
            "seed": seed,
            "runs": {label: as_json(outcome, job) for label, outcome in runs.items()},
        }
        _dump(shown)
        return
    console = _console()
    console.print(_runs_table(name, straggler, runs))
    for label in ("optimize_ps", "fitted_ps"):
        console.print(_plans_table(label, runs[label]))
    if role is None:
        console.print(
            f"published: {job.published['optimize']:g} steps/s after Optimize, "
            f"{job.published['adjust']:g} after Adjust, with DLRover's rule; "
            "adjusted within 720 s (Wide & Deep)"
        )


def random_jobs(
    count: int, seed: int, processes: int | None, also: str | None, json_wanted: bool
) -> None:
    """Run the random jobs and print how near each planner came to the oracle."""
    summary = random_summary(count, seed, processes, also)
    if json_wanted:
        rows = {name: asdict(row) for name, row in summary.items()}
        _dump({"jobs": count, "seed": seed, "algorithms": rows})
        return
    table = Table(title=f"{count} random jobs (seed {seed}), speed against the exhaustive oracle")
    table.add_column("planner")
    for heading in ("median", "worst", "worst to static", "changes of servers", "adjusted (s)"):
        table.add_column(heading, justify="right")
    for name, row in summary.items():
        table.add_row(
            name,
            f"{row.median_ratio:.3f}",
            f"{row.worst_ratio:.3f}",
            f"{row.worst_to_static:.3f}",
            f"at most {row.max_ps_changes}",
            f"{row.median_adjustment_seconds:.0f}",
        )
    _console().print(table)


def create_stage(past: int, new: int, seed: int, json_wanted: bool) -> None:
    """Plan new jobs from generated history and print how the plans fit."""
    summaries, by = compare(past, new, seed)
    if json_wanted:
        rows = {name: asdict(row) for name, row in summaries.items()}
        _dump({"past": past, "new": new, "seed": seed, "planned_by": by, "sizes": rows})
        return
    table = Table(title=f"first sizes of {new} jobs, from {past} finished ones (seed {seed})")
    table.add_column("sizes by")
    headings = (
        "jobs",
        "CPU over",
        "memory over",
        "use below half",
        "short of CPU",
        "out of memory",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, row in summaries.items():
        table.add_row(
            name,
            str(row.jobs),
            f"{row.median_cpu_over:+.0%}",
            f"{row.median_memory_over:+.0%}",
            f"{row.below_half:.0%}",
            f"{row.short_of_cpu:.1%}",
            f"{row.oom_rate:.1%}",
        )
    _console().print(table)


def _runs_table(name: str, straggler: str | None, runs: Mapping[str, RunOutcome]) -> Table:
    job = PAPER_JOBS[name]
    slow = "" if straggler is None else f", one {straggler} at 25 % of its CPU"
    table = Table(title=f"{name}, {job.case.cores} cores{slow}")
    table.add_column("planner")
    headings = ("steps/s", "of linear", "workers", "servers", "cores", "adjusted (s)", "JCT (s)")
    for heading in (*headings, "to static"):
        table.add_column(heading, justify="right")
    static = runs["static"].jct_seconds
    for label, outcome in runs.items():
        config = outcome.config
        servers = sorted(config.servers)
        sizes = (
            f"{servers[0]:g}" if servers[0] == servers[-1] else f"{servers[0]:g}-{servers[-1]:g}"
        )
        table.add_row(
            label,
            f"{outcome.final_steps_per_second:.1f}",
            f"{outcome.final_steps_per_second / linear(outcome, job):.2f}",
            f"{len(config.workers)} x {config.workers[0]:g}",
            f"{len(servers)} x {sizes}",
            f"{config.cores:g}",
            f"{outcome.adjustment_seconds:.0f}",
            f"{outcome.jct_seconds:.0f}",
            f"{outcome.jct_seconds / static - 1:+.0%}",
        )
    return table


def _plans_table(label: str, outcome: RunOutcome) -> Table:
    table = Table(title=f"plans of {label}")
    table.add_column("time (s)", justify="right")
    for heading in ("stage", "reason", "why"):
        table.add_column(heading)
    for planned in outcome.plans:
        plan = planned.plan
        table.add_row(
            f"{planned.time_seconds:.0f}", str(plan.stage), str(plan.reason), plan.message
        )
    return table


def _plot(name: str, runs: Mapping[str, RunOutcome], path: Path) -> None:
    end = 1.15 * max(outcome.speeds[-1][0] for outcome in runs.values()) + 300
    curves = []
    for label, outcome in runs.items():
        ends = [at for at, _ in outcome.speeds[1:]] + [end]
        minutes = [
            at / 60
            for (begin, _), stop in zip(outcome.speeds, ends, strict=True)
            for at in (begin, stop)
        ]
        curves.append(
            Curve(label, minutes, [value for _, value in outcome.speeds for _ in range(2)])
        )
    title = f"{name}, {PAPER_JOBS[name].case.cores} cores"
    draw([Panel(title, "minutes since the job was submitted", "steps per second", curves)], path)
    print(f"wrote {path}", file=sys.stderr)  # noqa: T201  a message, beside the report on stdout


def _console() -> Console:
    # A pipe has no width of its own; without one, rich would cut the columns to 80 characters.
    return Console(width=None if sys.stdout.isatty() else 140)


def _dump(value: object) -> None:
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
