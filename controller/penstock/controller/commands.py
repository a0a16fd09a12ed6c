"""``penstock controller``: run the controller, or print the manifests that it needs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from penstock.base.enums import GangScheduler
from penstock.base.logs import LogFormat
from penstock.base.ports import CONTROLLER_METRICS
from penstock.kube.command import (
    HostOption,
    KubeconfigOption,
    LeaseNameOption,
    LogFormatOption,
    MetricsPortOption,
    announce,
    run,
)


def controller(
    kubeconfig: KubeconfigOption = None,
    namespace: Annotated[
        str, typer.Option(help="Serve this namespace only; without it, all of them.")
    ] = "",
    host: HostOption = "127.0.0.1",
    metrics_port: MetricsPortOption = CONTROLLER_METRICS,
    brain_url: Annotated[
        str, typer.Option(help="Address of the Brain as trainers reach it; without it, no Brain.")
    ] = "",
    brain_ca_file: Annotated[
        Path | None,
        typer.Option(help="Whose certificates trainers trust of a Brain with TLS; PEM."),
    ] = None,
    trainer_image: Annotated[
        str, typer.Option(help="Image of the Elastic Trainer's container.")
    ] = "penstock/runtime",
    lease_namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of Leases and of the key of tokens; without it, the pod's own, and "
            "outside a cluster penstock-system."
        ),
    ] = "",
    lease_name: LeaseNameOption = "penstock-controller",
    planner_lease_name: Annotated[
        str, typer.Option(help="Name of the scheduler's Lease, in the same namespace.")
    ] = "penstock-scheduler",
    leader_election: Annotated[
        bool, typer.Option(help="Contend for the Lease; without it, run one replica only.")
    ] = True,
    cache_socket: Annotated[
        str,
        typer.Option(
            help="Where the file cache of each node listens, a path on the node; without it, there "
            "is none."
        ),
    ] = "",
    gang_scheduler: Annotated[
        GangScheduler | None,
        typer.Option(help="Whose groups the gangs of jobs are; without it, pods start one by one."),
    ] = None,
    train_jobs_managed_by: Annotated[
        str,
        typer.Option(
            help="Run TrainJobs of Kubeflow whose spec.managedBy is this, such as "
            "penstock.dev/controller; without it, none."
        ),
    ] = "",
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="How many jobs to work on at the same time.")
    ] = 16,
    log_format: LogFormatOption = LogFormat.TEXT,
    print_manifests: Annotated[
        bool,
        typer.Option(help="Print the CRDs, roles, policies and priority classes, and end."),
    ] = False,
) -> None:
    """Make a cluster's pods what its ElasticJobs and Scales say.

    Prints the address of health and metrics when it is ready to lead. Ends with 0 on SIGTERM.
    """
    if print_manifests:
        from penstock.controller.manifests import render

        sys.stdout.write(render())
        return
    from penstock.controller.operator import Options
    from penstock.controller.reconcile import Settings
    from penstock.controller.service import ServiceOptions, serve
    from penstock.kube.connection import in_pod, make_identity, own_namespace
    from penstock.kube.election import LeaseName
    from penstock.kube.errors import ConfigurationError, PortInUseError
    from penstock.kube.logs import set_up_logging

    authority = None if brain_ca_file is None else _authority(brain_ca_file)
    makes_namespace = None if lease_namespace or in_pod() else own_namespace()
    lease_namespace = lease_namespace or own_namespace()
    set_up_logging(log_format)
    options = ServiceOptions(
        operator=Options(
            settings=Settings(
                trainer_image=trainer_image,
                brain_url=brain_url or None,
                brain_authority=authority,
                cache_socket=_socket(cache_socket),
                gang_scheduler=gang_scheduler,
            ),
            namespace=namespace or None,
            workers=workers,
            identity=make_identity(),
            key_namespace=lease_namespace,
            planner_lease=(lease_namespace, planner_lease_name),
            train_jobs_managed_by=_manager(train_jobs_managed_by),
        ),
        kubeconfig=kubeconfig,
        host=host,
        port=metrics_port,
        lease=LeaseName(lease_namespace, lease_name) if leader_election else None,
        makes_namespace=makes_namespace,
    )

    run(
        "controller",
        serve(options, partial(announce, "controller")),
        (ConfigurationError, PortInUseError),
    )


def _manager(name: str) -> str:
    """A name as ``spec.managedBy`` can have it.

    Raises:
        BadParameter: it is none.
    """
    domain, slash, path = name.partition("/")
    if name and not (domain and slash and path and len(name) <= 253 and name.split() == [name]):
        raise typer.BadParameter(
            f"{name}: must be DOMAIN/NAME, such as penstock.dev/controller",
            param_hint="--train-jobs-managed-by",
        )
    return name


def _socket(path: str) -> str | None:
    """A path as pods can mount it.

    Raises:
        BadParameter: it is not that of a file in a folder of its own.
    """
    parts = PurePosixPath(path).parts
    if path and (len(parts) < 3 or parts[0] != "/" or ".." in parts):
        raise typer.BadParameter(
            f"{path}: must be the path from the root of a socket in a folder of its own, such as"
            " /run/penstock-cache/cache.sock",
            param_hint="--cache-socket",
        )
    return path or None


def _authority(path: Path) -> str:
    """The certificates in a file, which go into trainers' environment.

    Raises:
        BadParameter: it holds none.
    """
    import ssl

    try:
        pem = path.read_text()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise typer.BadParameter(
            f"{path}: no certificates in PEM: {error}", param_hint="--brain-ca-file"
        ) from error
    return pem
