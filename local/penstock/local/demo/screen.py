"""What a person sees during the demo and at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.local.demo.feeding import FeedView
from penstock.local.demo.observation.report import (
    FeedReport,
    FeedStep,
    PlanEntry,
    Report,
    Throughput,
)
from penstock.local.demo.scenario import PodLine, View

_BARS: Final = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 60

Show = Callable[[View | FeedView], None]


@contextmanager
def live_screen(console: Console) -> Iterator[Show]:
    """Draw every view in place on a terminal; elsewhere print a line for whatever is new."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield lambda view: live.update(draw(view))
    else:
        yield Lines(console).show


class Lines:
    """Progress as plain lines, for logs: one for each change worth knowing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: set[str] = set()

    def show(self, view: View | FeedView) -> None:
        """Print what this view tells for the first time: what was done, then what came of it."""
        for line in _told(view):
            if line not in self._said:
                self._said.add(line)
                self._console.print(f"{view.seconds:6.1f} s  {line}", soft_wrap=True, markup=False)


def _told(view: View | FeedView) -> Iterator[str]:
    yield from view.notes
    if isinstance(view, View):
        for plan in view.plans:
            yield f"plan: {plan.workers} workers, {plan.reason}: {plan.message}"
    else:
        for step in view.steps:
            yield f"{asked_for(step)}; {step.reason}: {step.message}"
    for pod in view.pods:
        if pod.phase != "Pending":
            yield f"pod {pod.name} {pod.phase} on {pod.node}"
    workers = f", workers {view.workers}" if isinstance(view, View) else ""
    yield f"job {view.state}{workers}"


def draw(view: View | FeedView) -> Panel:
    """One frame: state, pods, what was decided and the speed so far."""
    style = "bold green" if view.state == "Running" else "bold"
    if isinstance(view, View):
        title, unit, digits = "penstock demo", "samples/s", 0
        counts = f"   workers {view.workers}   step {view.step}"
        decided = plan_table(view.plans) if view.plans else None
    else:
        title, unit, digits = "penstock demo: data workers", "batches/s", 1
        counts = ""
        decided = feed_table(view.steps) if view.steps else None
    head = Text.assemble((view.state, style), f"{counts}   {view.seconds:.0f} s")
    parts: list[Text | Table] = [head, pod_table(view.pods)]
    if decided is not None:
        parts.append(decided)
    if view.speeds:
        latest = _speed(view.speeds[-1].samples_per_second, digits)
        parts.append(Text(f"{spark(view.speeds)}  {latest} {unit}"))
    parts.extend(Text(note, "magenta") for note in view.notes)
    return Panel(Group(*parts), title=title, border_style="blue")


def pod_table(lines: tuple[PodLine, ...]) -> Table:
    """The job's pods."""
    pods = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("POD", "STATUS", "NODE"):
        pods.add_column(title)
    for pod in lines:
        style = "green" if pod.ready else "red" if pod.phase == "Failed" else "yellow"
        pods.add_row(pod.name, Text(pod.phase, style), pod.node)
    return pods


def asked_for(step: FeedStep) -> str:
    """What the scheduler asked for, in words."""
    workers = "1 data worker" if step.data_workers == 1 else f"{step.data_workers} data workers"
    training = f", training on {_cores(step.training_cores)}" if step.training_cores else ""
    return f"{workers}{_size(step)}{training}"


def _size(step: FeedStep) -> str:
    given = step.data_workers and step.data_worker_cores
    return f" of {_cores(step.data_worker_cores)}" if given else ""


def _cores(number: str) -> str:
    return f"{number} core" if number == "1" else f"{number} cores"


def feed_table(steps: tuple[FeedStep, ...]) -> Table:
    """The tuning as it went: size and number of data workers, size of the training worker."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("TIME", "DATA WORKERS", "TRAINING", "REASON", "BEFORE", "AFTER"):
        table.add_column(title, justify="right" if title in {"TIME", "BEFORE", "AFTER"} else "left")
    for step in steps:
        table.add_row(
            f"{step.time_seconds:.0f} s",
            f"{step.data_workers}{_size(step)}",
            _cores(step.training_cores) if step.training_cores else "as given",
            step.reason,
            _speed(step.batches_per_second_before, 1),
            _speed(step.batches_per_second_after, 1),
        )
    return table


def spark(speeds: tuple[Throughput, ...]) -> str:
    """The last speeds as a line of bars."""
    values = [speed.samples_per_second for speed in speeds[-_SPARK_WIDTH:]]
    top = max(values, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(v / top * (len(_BARS) - 1)))] for v in values)


def plan_table(plans: tuple[PlanEntry, ...]) -> Table:
    """The timeline of plans, with the speed before and after each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("TIME", "STAGE", "WORKERS", "REASON", "BEFORE", "AFTER"):
        right = title in {"TIME", "WORKERS", "BEFORE", "AFTER"}
        table.add_column(title, justify="right" if right else "left")
    for plan in plans:
        table.add_row(
            f"{plan.time_seconds:.0f} s",
            plan.stage or plan.source,
            str(plan.workers),
            f"{plan.reason} ({plan.algorithm})" if plan.algorithm else plan.reason,
            _speed(plan.samples_per_second_before),
            _speed(plan.samples_per_second_after),
        )
    return table


def print_report(report: Report, console: Console) -> None:
    """The end of the demo, for a person."""
    console.print()
    console.print(plan_table(report.plans))
    console.print("[dim]speeds are medians in samples per second[/dim]\n")
    for plan in report.plans:
        console.print(f"  {plan.time_seconds:.0f} s  {plan.message}", markup=False)
    console.print()
    if report.audit is not None:
        audit = report.audit
        console.print(
            f"samples seen {audit.samples_seen}, lost {audit.samples_lost}, "
            f"repeated {audit.samples_repeated}; accuracy {audit.accuracy:.3f}"
        )
    console.print(f"workers killed and replaced: {report.worker_restarts}")
    _print_end(report.job.state, report.seconds, console)
    if report.images is not None:
        _print_feed(report.images, console)


def _print_feed(report: FeedReport, console: Console) -> None:
    console.print(f"\n[bold]{report.name}[/bold]: a job that waits for its data\n")
    console.print(feed_table(report.steps))
    console.print("[dim]speeds are medians in batches per second, once a change has effect[/dim]\n")
    for step in report.steps:
        console.print(f"  {step.time_seconds:.0f} s  {step.message}", markup=False)
    console.print()
    if report.images_per_second_before is not None:
        console.print(
            f"first epoch {report.images_per_second_before} images/s, waiting for data "
            f"{report.waited_before:.0%} of the time; fastest epoch "
            f"{report.images_per_second_after} images/s, {report.waited_after:.0%}; "
            f"accuracy {report.accuracy:.3f}"
        )
    if report.gpu_pod_seconds is not None:
        console.print(f"the GPU pod started after {report.gpu_pod_seconds:.1f} s")
    console.print(f"data workers that left with batches in hand: {report.data_workers_lost}")
    _print_end(report.state, report.seconds, console)


def _print_end(state: str, seconds: float, console: Console) -> None:
    colour = "green" if state == "Succeeded" else "red"
    console.print(f"job [{colour}]{state}[/{colour}] after {seconds:.0f} s")


def console_for(json_output: bool) -> Console:
    """Standard output; standard error when standard output is for the JSON object."""
    return Console(file=sys.stderr if json_output else sys.stdout, highlight=False)


def _speed(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
