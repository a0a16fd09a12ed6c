"""The commands of this room: ``penstock up``, ``down``, ``demo`` and ``cluster``.

Only options and messages live here; what the commands do is in the modules that they import when
they run, so that ``penstock --help`` stays fast.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.base.kubeconfig import named_or_home
from penstock.base.ports import EMBEDDED_API_SERVER

HomeOption = Annotated[
    Path, typer.Option("--home", help="Folder for the kubeconfig, the logs and the Brain's store.")
]
NodesOption = Annotated[
    Path | None,
    typer.Option("--nodes", help="YAML file with the nodes of the embedded cluster."),
]
BrainConfigOption = Annotated[
    Path | None, typer.Option("--brain-config", help="Configuration file of the Brain.")
]
CpuLimitsOption = Annotated[
    bool,
    typer.Option(
        "--enforce-cpu-limits",
        help="Pods of the embedded cluster get no more CPU than their limits, also below a core.",
    ),
]

DEFAULT_HOME: Final = Path(".penstock")
DEFAULT_NODES: Final = Path(__file__).with_name("nodes.yaml")
DEMO_JOB: Final = Path("examples/digits/job.yaml")
DEMO_IMAGES: Final = Path("examples/images/job_far.yaml")


def up(
    home: HomeOption = DEFAULT_HOME,
    nodes: NodesOption = None,
    brain_config: BrainConfigOption = None,
    external: Annotated[
        bool, typer.Option("--external", help="Use the cluster of $KUBECONFIG, not an own one.")
    ] = False,
    brain_url: Annotated[
        str | None,
        typer.Option(help="Address by which pods of an external cluster reach this Brain."),
    ] = None,
    any_ports: Annotated[
        bool, typer.Option("--any-ports", help="Listen on free ports, not on the usual ones.")
    ] = False,
    enforce_cpu_limits: CpuLimitsOption = False,
    train_jobs_managed_by: Annotated[
        str,
        typer.Option(help="Have the controller run TrainJobs whose spec.managedBy is this."),
    ] = "",
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground until interrupted.")
    ] = False,
) -> None:
    """Start a control plane on this machine and leave it running."""
    _require("up", "kubernetes", *(() if external else ("penstock_cluster",)))
    from penstock.local import lifecycle
    from penstock.local.control_plane.components import ANY_PORTS, Ports, Settings
    from penstock.local.control_plane.home import Home

    settings = Settings(
        home=Home(home),
        ports=ANY_PORTS if any_ports else Ports(),
        kubeconfig=_external_kubeconfig() if external else None,
        nodes_file=nodes,
        brain_config=brain_config,
        advertised_brain_url=brain_url,
        enforces_cpu_limits=enforce_cpu_limits,
        train_jobs_managed_by=train_jobs_managed_by,
    )
    with _errors_in_one_line():
        if foreground:
            asyncio.run(lifecycle.run_in_foreground(settings, typer.echo))
        else:
            lifecycle.start_in_background(settings, typer.echo)


def down(
    home: HomeOption = DEFAULT_HOME,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove the folder: objects, history and logs.")
    ] = False,
) -> None:
    """Stop the control plane that "penstock up" started."""
    from penstock.local import lifecycle
    from penstock.local.control_plane.home import Home

    with _errors_in_one_line():
        lifecycle.stop(Home(home), purge, typer.echo)


def demo(
    home: HomeOption = DEFAULT_HOME / "demo",
    job: Annotated[Path, typer.Option(help="Manifest of the job to train.")] = DEMO_JOB,
    images: Annotated[
        bool, typer.Option(help="Then train a job that waits for its data, until a GPU pod comes.")
    ] = True,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds after which the demo gives up.")
    ] = 600.0,
    kill: Annotated[bool, typer.Option(help="Kill one worker on the way.")] = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the control plane up until Ctrl-C.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Train two real jobs end to end on an embedded cluster and show what happens."""
    _require("demo", "kubernetes", "penstock_cluster")
    from penstock.local.control_plane.home import Home
    from penstock.local.demo.run import DemoOptions, run_demo

    fed = DEMO_IMAGES if images else None
    options = DemoOptions(Home(home), job, fed, timeout_seconds, kill, json_output, keep)
    with _errors_in_one_line():
        report = run_demo(options)
        faults = report.faults()
        for fault in faults:
            typer.echo(f"penstock: {fault}", err=True)
        if faults:
            raise typer.Exit(1)


def cluster(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API server; 0 takes a free one.")
    ] = EMBEDDED_API_SERVER,
    kubeconfig: Annotated[Path, typer.Option(help="Where to write the kubeconfig.")] = DEFAULT_HOME
    / "kubeconfig",
    pods_folder: Annotated[
        Path, typer.Option(help="Where pods keep their files and logs.")
    ] = DEFAULT_HOME / "pods",
    database: Annotated[
        Path | None, typer.Option(help="SQLite file that keeps the objects; default: none does.")
    ] = None,
    nodes: NodesOption = None,
    rbac: Annotated[bool, typer.Option("--rbac", help="Enforce roles and bindings.")] = False,
    enforce_cpu_limits: CpuLimitsOption = False,
) -> None:
    """Run the embedded cluster alone, in the foreground."""
    _require("cluster", "penstock_cluster")
    from penstock_cluster.cluster import ClusterOptions
    from penstock_cluster.foreground import error_line, run_cluster
    from penstock_cluster.nodes import NodeDeclarationError, read_nodes_file

    try:
        options = ClusterOptions(
            nodes=read_nodes_file(nodes or DEFAULT_NODES),
            folder=pods_folder,
            database=database,
            port=port,
            rbac=rbac,
            enforces_cpu_limits=enforce_cpu_limits,
        )
        asyncio.run(run_cluster(options, kubeconfig, typer.echo))
    except (OSError, NodeDeclarationError) as error:
        typer.echo(f"penstock cluster: {error_line(error)}", err=True)
        raise typer.Exit(1) from None


def _require(command: str, *modules: str) -> None:
    """End with one line that names the wheel, if one is missing; nothing is imported."""
    for module in modules:
        if find_spec(module) is None:
            wheel = module.replace("_", "-")
            typer.echo(
                f"penstock {command} needs the wheel {wheel}, which is not installed: "
                f"pip install {wheel}, or pip install 'penstock[local]' for all that it needs",
                err=True,
            )
            raise typer.Exit(1)


def _external_kubeconfig() -> Path:
    paths = named_or_home().split(os.pathsep)
    existing = [Path(path) for path in paths if Path(path).is_file()]
    if not existing:
        raise typer.BadParameter(f"no kubeconfig at {paths[0]}; set KUBECONFIG")
    return existing[0]


class _errors_in_one_line:  # noqa: N801  reads as a statement
    """Turns the room's own errors into one line on standard error and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from penstock.local.control_plane.home import HomeError
        from penstock.local.control_plane.supervisor import StartError
        from penstock.local.demo.scenario import DemoError

        if isinstance(error, DemoError | HomeError | StartError):
            typer.echo(f"penstock: {error}", err=True)
            raise typer.Exit(1) from None
