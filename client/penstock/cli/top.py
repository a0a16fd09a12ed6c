"""``penstock top``: what the running jobs use and how fast they are, live."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output, wording
from penstock.cli.listing import AllNamespaces
from penstock.cli.session import Session, connected

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.wire import SampleView

Json = dict[str, Any]
LOOK_BACK_SECONDS: Final = 150.0
MOST_JOBS: Final = 50
SPARK: Final = 12
WITH_SPEEDS: Final = 100
"""Columns that a terminal needs for GPUs and the line of speeds."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one job does and uses, from its newest samples; None: not reported."""

    namespace: str
    name: str
    state: str
    workers: str
    parameter_servers: str
    data_workers: str
    step: int | None = None
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    """Peak of the largest pod."""
    gpu_utilization: float | None = None
    """Mean over the job's GPUs, 0 to 1."""
    gpu_memory_bytes: int | None = None
    """On all of the job's GPUs together."""
    wait_share: float | None = None
    """Part of their time that the workers waited for input."""
    age_seconds: float | None = None
    """Of the newest sample."""
    speeds: list[float] = field(default_factory=list)


def usage(job: Json, samples: list[SampleView], now: float) -> Usage:
    """A job's line, from the job and its samples, oldest first."""
    metadata, status = job["metadata"], job.get("status") or {}
    common: dict[str, Any] = {
        "namespace": str(metadata["namespace"]),
        "name": str(metadata["name"]),
        "state": str(status.get("state") or ""),
        "workers": str(status.get("workers") or ""),
        "parameter_servers": str(status.get("ps") or ""),
        "data_workers": str(status.get("dataWorkers") or ""),
    }
    if not samples:
        return Usage(**common)
    newest = samples[-1]
    roles = newest.roles.values()
    busy = [
        (use.gpu_utilization, use.gpus or 0) for use in roles if use.gpu_utilization is not None
    ]
    gpus = sum(count for _, count in busy)
    held = [use.gpu_memory_bytes for use in roles if use.gpu_memory_bytes is not None]
    waits = [use.wait_share for use in roles if use.wait_share is not None]
    return Usage(
        **common,
        step=newest.step,
        steps_per_second=newest.steps_per_second,
        samples_per_second=newest.samples_per_second,
        cpu_cores=sum(use.cpu_cores for use in roles),
        memory_bytes=max((use.peak_memory_bytes for use in roles), default=None),
        gpu_utilization=sum(each * count for each, count in busy) / gpus if gpus else None,
        gpu_memory_bytes=sum(held) if held else None,
        wait_share=max(waits, default=None),
        age_seconds=max(0.0, now - newest.received_seconds),
        speeds=[sample.steps_per_second for sample in samples],
    )


@connected
def top_(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Only this job.")] = "",
    all_namespaces: AllNamespaces = False,
    once: Annotated[bool, typer.Option("--once", help="Print once, even on a terminal.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=1, max=600, help="Seconds between two looks.")
    ] = 3.0,
) -> None:
    """Show live what jobs use and how fast they train; once with -o json or in a pipe."""
    if once or session.output is not output.Format.TABLE or not sys.stdout.isatty():
        found, left_out = look(session, job, all_namespaces)
        if left_out:
            session.note(_left_out(left_out))
        if not found and session.output is output.Format.TABLE:
            session.note("no job runs")
            return
        session.show(
            [asdict(each) for each in found],
            lambda: top_table(found, all_namespaces, session.console.width),
        )
        return
    _live(session, job, all_namespaces, interval)


def _live(session: Session, job: str, everywhere: bool, interval: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from penstock.client import errors

    shown: RenderableType = Text("looking ...")
    with Live(shown, console=session.console, auto_refresh=False, screen=True) as live:
        while True:
            try:
                found, left_out = look(session, job, everywhere)
                shown = top_table(found, everywhere, session.console.width)
                trouble = f"\n{_left_out(left_out)}" if left_out else ""
            except (errors.ClusterUnreachableError, errors.BrainUnavailableError) as error:
                trouble = f"\nas it was; {error}"
            clock = time.strftime("%H:%M:%S")
            foot = Text(f"\n{clock}, every {interval:g} s; Ctrl-C ends{trouble}", style="dim")
            live.update(Group(shown, foot), refresh=True)
            time.sleep(interval)


def _left_out(jobs: int) -> str:
    return f"{jobs} jobs more are not shown: name one, or choose a namespace"


def look(session: Session, name: str, everywhere: bool) -> tuple[list[Usage], int]:
    """The jobs that have not ended, busiest first, and how many were too many to ask for.

    Each is a call to the Brain, so there is a bound; those that run come before those that wait.
    """
    from penstock.client import errors, job_calls
    from penstock.client.kubernetes import resources

    if name:
        jobs = [session.job(name)]
    else:
        listed = session.cluster.list(resources.JOBS, None if everywhere else session.namespace)
        jobs = [job for job in listed if not any(job_calls.holds(job, e) for e in job_calls.ENDED)]
        jobs.sort(key=lambda job: not job_calls.holds(job, "Running"))
    now = time.time()
    found = []
    for job in jobs[:MOST_JOBS]:
        try:
            samples = list(
                session.brain.samples(job["metadata"]["uid"], start=now - LOOK_BACK_SECONDS)
            )
        except errors.NotFoundError:  # its trainer has not registered it yet
            samples = []
        found.append(usage(job, samples, now))
    found.sort(key=lambda each: -(each.cpu_cores or 0.0))
    return found, max(0, len(jobs) - MOST_JOBS)


def top_table(found: list[Usage], namespaces: bool, width: int = 80) -> RenderableType:
    """One line per job, in 80 columns.

    GPUs have columns where some job reports any; the line of speeds makes room for them where less
    than `WITH_SPEEDS` is left.
    """
    rows = []
    servers = any(each.parameter_servers for each in found)
    gpus = any(
        each.gpu_utilization is not None or each.gpu_memory_bytes is not None for each in found
    )
    speeds = not gpus or width >= WITH_SPEEDS
    for each in found:
        stale = (each.age_seconds or 0.0) > 60
        known = each.steps_per_second is not None
        rows.append(
            [
                *([each.namespace] if namespaces else []),
                each.name,
                output.state(each.state),
                each.workers,
                *([each.parameter_servers] if servers else []),
                each.data_workers,
                each.step,
                wording.rate(each.steps_per_second or 0.0) + ("?" if stale else "")
                if known
                else None,
                f"{each.cpu_cores or 0.0:.1f}" if known else None,
                _amount(each.memory_bytes),
                *([_share(each.gpu_utilization), _amount(each.gpu_memory_bytes)] if gpus else []),
                _share(each.wait_share),
                *([wording.spark(each.speeds, SPARK // 2 if servers else SPARK)] if speeds else []),
            ]
        )
    right: list[output.Column] = [
        (name, "right")
        for name in (
            *("STEP", "STEPS/S", "CPU", "MEMORY"),
            *(("GPU %", "GPU MEM") if gpus else ()),
            "WAIT",
        )
    ]
    speed: list[output.Column] = ["SPEED"] if speeds else []
    many: list[output.Column] = ["WORK", *(["PS"] if servers else []), "DATA"]
    head: list[output.Column] = ["NAME", ("STATE", "whole"), *many, *right, *speed]
    return output.table([*(["NAMESPACE"] if namespaces else []), *head], rows)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"


def _amount(count: int | None) -> str | None:
    return None if count is None else wording.amount(count)
