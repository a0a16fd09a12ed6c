"""``penstock scheduler``: run the planner of data workers, or print what it needs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.logs import LogFormat
from penstock.base.ports import SCHEDULER_METRICS
from penstock.kube.command import (
    HostOption,
    KubeconfigOption,
    LeaseNameOption,
    LogFormatOption,
    MetricsPortOption,
    announce,
    run,
)


def scheduler(
    kubeconfig: KubeconfigOption = None,
    brain_url: Annotated[
        str, typer.Option(help="Address of the Brain; without it, nothing is allocated.")
    ] = "",
    brain_token_file: Annotated[
        Path | None,
        typer.Option(help="Token for the Brain; without it, the one for the API server."),
    ] = None,
    brain_ca_file: Annotated[
        Path | None,
        typer.Option(help="Whose certificates to trust of a Brain with TLS; PEM."),
    ] = None,
    placement: Annotated[
        str, typer.Option(help="Placement policy: on which node a data worker goes.")
    ] = "stranding",
    allocation: Annotated[
        str, typer.Option(help="Allocation policy: which job gets the next data worker.")
    ] = "ShortestRemaining",
    interval: Annotated[
        float,
        typer.Option(
            min=1,
            max=3600,
            envvar="PENSTOCK_SCHEDULER_INTERVAL",
            help="Seconds between two allocations.",
        ),
    ] = 30.0,
    push: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds between two snapshots for the Brain.")
    ] = 10.0,
    tune_training_workers: Annotated[
        bool,
        typer.Option(
            envvar="PENSTOCK_SCHEDULER_TUNE_TRAINING_WORKERS",
            help="Also tune training workers' CPU; needs pods that can be resized.",
        ),
    ] = False,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(help="Extended resource that counts as accelerator; may be repeated."),
    ] = None,
    host: HostOption = "127.0.0.1",
    metrics_port: MetricsPortOption = SCHEDULER_METRICS,
    lease_namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the Lease; without it, the pod's own, and outside a cluster "
            "penstock-system."
        ),
    ] = "",
    lease_name: LeaseNameOption = "penstock-scheduler",
    leader_election: Annotated[
        bool, typer.Option(help="Contend for the Lease; the controller gates no pod without one.")
    ] = True,
    log_format: LogFormatOption = LogFormat.TEXT,
    print_manifests: Annotated[
        bool, typer.Option(help="Print the roles that it needs, and end.")
    ] = False,
) -> None:
    """Decide which job gets a data worker, and put each on a node.

    Prints the address of health and metrics when it is ready to lead. Ends with 0 on SIGTERM.
    """
    if print_manifests:
        from penstock.scheduler.manifests import render

        sys.stdout.write(render())
        return
    from penstock.base.accelerators import ACCELERATOR_KINDS
    from penstock.kube.connection import in_pod, make_identity, own_namespace
    from penstock.kube.election import LeaseName
    from penstock.kube.errors import ConfigurationError, PortInUseError
    from penstock.kube.logs import set_up_logging
    from penstock.scheduler.errors import UnknownPolicyError
    from penstock.scheduler.planner.planner import Settings
    from penstock.scheduler.service.loop import Options
    from penstock.scheduler.service.process import ProcessOptions, serve

    set_up_logging(log_format)
    options = ProcessOptions(
        loop=Options(
            settings=Settings(
                placement=placement,
                allocation=allocation,
                tunes_training=tune_training_workers,
                kinds=tuple(accelerator or ACCELERATOR_KINDS),
            ),
            interval_seconds=interval,
            push_seconds=push,
            identity=make_identity(),
        ),
        kubeconfig=kubeconfig,
        brain_url=brain_url,
        brain_token_file=brain_token_file,
        brain_ca_file=brain_ca_file,
        host=host,
        port=metrics_port,
        lease=LeaseName(lease_namespace or own_namespace(), lease_name)
        if leader_election
        else None,
        makes_namespace=None if lease_namespace or in_pod() else own_namespace(),
    )

    run(
        "scheduler",
        serve(options, partial(announce, "scheduler")),
        (ConfigurationError, PortInUseError, UnknownPolicyError),
    )
