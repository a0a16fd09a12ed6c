"""The demo tells causes before effects, and what it saw even where the job did not end."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from penstock.local.control_plane.home import Home
from penstock.local.demo.observation.observer import Observer
from penstock.local.demo.observation.report import PlanEntry
from penstock.local.demo.run import where_to_look
from penstock.local.demo.scenario import Demo, PodLine, View
from penstock.local.demo.screen import Lines


class StuckObserver:
    """A job that runs for ever."""

    async def apply(self, manifest: dict[str, Any]) -> None:
        pass

    async def job(self) -> dict[str, Any]:
        return {"metadata": {"uid": "u"}, "status": {"state": "Running"}}

    async def nothing(self, *_: object) -> list[Any]:
        return []

    samples = pods = scales = nothing


def test_a_job_that_does_not_end_is_reported_as_far_as_it_went() -> None:
    demo = Demo(
        observer=cast("Observer", StuckObserver()),
        manifest={"metadata": {"name": "digits"}},
        timeout_seconds=0.0,
        show=lambda _: None,
    )
    report = asyncio.run(demo.run())
    assert report.job.state == "Running"
    assert report.faults()[0] == "not ended after 0 s; the job's state is Running"


def test_the_folders_of_the_logs_are_named() -> None:
    lines = where_to_look(Home(Path("demo")))
    assert [line.rpartition(" ")[2] for line in lines] == ["demo/logs", "demo/pods"]


def test_within_one_look_causes_come_before_effects() -> None:
    out = io.StringIO()
    plan = PlanEntry("p", 1.0, "Adjust", "Brain", "Faster", "why", "a", 2, None, None)
    view = View(
        seconds=24.4,
        state="Scaling",
        message="",
        uid="u",
        workers="1/2",
        restarts=0,
        pods=(PodLine("w-1", "worker", 1, 0, "Failed", False, "node"),),
        plans=(plan,),
        notes=("killed w-1 with SIGKILL",),
    )
    Lines(Console(file=out, width=200)).show(view)
    told = [line.partition(" s  ")[2].split()[0] for line in out.getvalue().splitlines()]
    assert told == ["killed", "plan:", "pod", "job"]
