"""Brings a control plane up, runs the demo on it, and takes it down again."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx
import yaml
from rich.console import Console

from penstock.local.control_plane.components import ANY_PORTS, BRAIN, Settings, control_plane
from penstock.local.control_plane.home import Home
from penstock.local.control_plane.supervisor import supervised
from penstock.local.demo.feeding import Feeding
from penstock.local.demo.observation.observer import Connection, Json, Observer
from penstock.local.demo.observation.report import Report
from penstock.local.demo.scenario import Demo, DemoError
from penstock.local.demo.screen import (
    console_for,
    live_screen,
    print_report,
)
from penstock.local.lifecycle import installer
from penstock_cluster.gpus import GPU, machine_gpus

BRAIN_CONFIG: Final = Path(__file__).with_name("brain.yaml")
NODES: Final = Path(__file__).with_name("nodes.yaml")
SCHEDULER_OPTIONS: Final = ("--interval=2", "--tune-training-workers")
"""It looks every few seconds where a cluster's looks twice a minute."""

IMAGES_TIMEOUT_SECONDS: Final = 180.0


@dataclass(frozen=True)
class DemoOptions:
    """What a person may choose about the demo."""

    home: Home
    job: Path
    images: Path | None
    """The manifest of a job that waits for its data; None: no such job."""
    timeout_seconds: float
    kill_a_worker: bool
    json_output: bool
    keep: bool


def run_demo(options: DemoOptions) -> Report:
    """Run the demo and print its report; raises HomeError, StartError or DemoError."""
    manifest = read_job(options.job)
    images = None
    if options.images is not None:
        images = read_job(options.images, "leave it out with --no-images")
        if machine_gpus():
            images = on_gpu(images)
    console = console_for(options.json_output)
    report = asyncio.run(_run(options, manifest, images, console))
    print_report(report, console)
    if options.json_output:
        print(json.dumps(report.as_json()))  # noqa: T201  the result is the output
    else:
        for line in how_to_look(options):
            console.print(line, markup=False, soft_wrap=True)
    if report.faults():
        for line in where_to_look(options.home):
            console.print(line, markup=False, soft_wrap=True)
    return report


def where_to_look(home: Home) -> list[str]:
    """Where a demo that did not go as promised has left its traces."""
    return [
        f"logs of the control plane: {home.logs}",
        f"logs of the pods: {home.pods}",
    ]


def read_job(path: Path, otherwise: str = "name one with --job") -> Json:
    """The one manifest in a YAML file; raises DemoError with what to do."""
    try:
        manifest = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise DemoError(
            f"no job at {path}; run the demo where Penstock was cloned, or {otherwise}"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DemoError(f"{path} cannot be read as YAML: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "ElasticJob":
        raise DemoError(f"{path} does not hold one ElasticJob")
    if not isinstance(metadata := manifest.get("metadata"), dict) or not metadata.get("name"):
        raise DemoError(f"the ElasticJob in {path} has no metadata.name; give it one")
    return manifest


def on_gpu(manifest: Json) -> Json:
    """A job whose worker asks for a GPU of the machine, unless it says itself what it needs."""
    asking = copy.deepcopy(manifest)
    for container in asking["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]:
        container.setdefault("resources", {}).setdefault("limits", {}).setdefault(GPU, 1)
    return asking


def how_to_look(options: DemoOptions) -> list[str]:
    """The kubectl and curl lines with which a person repeats the demo by hand."""
    return [
        "",
        "To look at it yourself:",
        "  . .venv/bin/activate",
        "  penstock up && export KUBECONFIG=$PWD/.penstock/kubeconfig",
        f"  kubectl apply -f {options.job}",
        "  kubectl get ej,scales,pods",
        "  kubectl describe ej/digits",
        "  kubectl logs -f -l penstock.dev/role=worker",
        "  kubectl wait --for=condition=Succeeded ej/digits --timeout=5m",
        "  penstock down",
    ]


async def _run(
    options: DemoOptions, manifest: Json, images: Json | None, console: Console
) -> Report:
    home = options.home
    if home.read_state() is not None and not home.is_locked():
        home.purge()  # an earlier demo's jobs have ended already
    home.create()
    settings = Settings(
        home=home,
        ports=ANY_PORTS,
        nodes_file=NODES,
        brain_config=BRAIN_CONFIG,
        scheduler_options=SCHEDULER_OPTIONS,
    )
    with home.lock():
        # A callback of one line.
        say: Callable[[str], None] = lambda name: console.print(f"{name} is up")  # noqa: E731
        async with supervised(home, control_plane(settings), say, installer(home)) as addresses:
            connection = Connection.from_kubeconfig(home.kubeconfig)
            console.print(
                f"watch it with: kubectl --kubeconfig {home.kubeconfig} get ej,pods --watch",
                markup=False,
                soft_wrap=True,
            )
            console.print(f"applying {options.job}", markup=False)
            async with observing(connection, addresses[BRAIN], manifest) as observer:
                with live_screen(console) as show:
                    demo = Demo(
                        observer=observer,
                        manifest=manifest,
                        timeout_seconds=options.timeout_seconds,
                        show=show,
                        kill_a_worker=options.kill_a_worker,
                    )
                    report = await demo.run()
            if images is not None and not report.gave_up:
                console.print(f"applying {options.images}", markup=False)
                async with observing(connection, addresses[BRAIN], images) as observer:
                    with live_screen(console) as show:
                        feeding = Feeding(observer, images, IMAGES_TIMEOUT_SECONDS, show)
                        report = replace(report, images=await feeding.run())
            if options.keep:
                console.print("the control plane stays up until you press Ctrl-C")
                await _until_interrupted()
            return report


@contextlib.asynccontextmanager
async def observing(
    connection: Connection, brain: str | httpx.AsyncClient, manifest: Json
) -> AsyncIterator[Observer]:
    """Look at the job of a manifest; a client of the Brain that is given is closed after it."""
    metadata = manifest["metadata"]
    observer = Observer(
        connection,
        brain,
        namespace=metadata.get("namespace", "default"),
        job=metadata["name"],
    )
    try:
        yield observer
    finally:
        await observer.close()


async def _until_interrupted() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return
