"""``penstock list`` and ``get``: jobs as the cluster has them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, wording
from penstock.cli.session import JobName, Session, connected

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Those of every namespace.")
]


@connected
def list_(
    session: Session,
    all_namespaces: AllNamespaces = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only those with these labels.")
    ] = "",
) -> None:
    """List jobs."""
    from penstock.client.kubernetes.resources import JOBS

    namespace = None if all_namespaces else session.namespace
    jobs = [tidy(each) for each in session.cluster.list(JOBS, namespace, labels=selector)]
    if not jobs and session.output is output.Format.TABLE:
        session.note("no jobs" if all_namespaces else f"no jobs in namespace {namespace}")
        return
    session.show(
        {"apiVersion": "v1", "kind": "List", "items": jobs},
        lambda: jobs_table(jobs, time.time(), namespaces=all_namespaces),
    )


@connected
def get_(session: Session, job: JobName) -> None:
    """Show one job in one line, or the whole object with -o yaml."""
    found = tidy(session.job(job))
    session.show(found, lambda: jobs_table([found], time.time()))


def tidy(document: Json) -> Json:
    """The object without the bookkeeping that nobody wants to read."""
    document.setdefault("apiVersion", "penstock.dev/v1alpha1")
    document.setdefault("kind", "ElasticJob")
    document["metadata"].pop("managedFields", None)
    return document


def jobs_table(jobs: list[Json], now: float, *, namespaces: bool = False) -> Table:
    """The columns of ``kubectl get ej``, the strategy, and rare roles where any job has them."""
    rows = []
    statuses = [job.get("status") or {} for job in jobs]
    servers = any(status.get("ps") for status in statuses)
    estimated = any(_left(status, now) for status in statuses)
    accelerated = any(status.get("acceleratedDataWorkers") for status in statuses)
    for job in jobs:
        metadata, status = job["metadata"], job.get("status") or {}
        plan = status.get("plan") or {}
        rows.append(
            [
                *([metadata["namespace"]] if namespaces else []),
                metadata["name"],
                output.state(status.get("state")),
                status.get("workers"),
                *([status.get("ps")] if servers else []),
                status.get("dataWorkers"),
                *([status.get("acceleratedDataWorkers")] if accelerated else []),
                job["spec"].get("strategy"),
                f"{plan['source']} {plan.get('reason', '')}" if plan.get("source") else None,
                *([_left(status, now)] if estimated else []),
                wording.age(metadata.get("creationTimestamp"), now),
            ]
        )
    head: list[output.Column] = [
        "NAME",
        ("STATE", "whole"),
        "WORKERS",
        *(["PS"] if servers else []),
        "DATA",
        *(["ACCELERATED"] if accelerated else []),
        "STRATEGY",
        "PLAN",
        *([("ETA", "right")] if estimated else []),
        ("AGE", "right"),
    ]
    return output.table([*(["NAMESPACE"] if namespaces else []), *head], rows)


def _left(status: Json, now: float) -> str | None:
    """How long the training of a job that runs still takes, by its trainer's estimate."""
    end = status.get("estimatedCompletionTime")
    if not end or status.get("state") not in {"Running", "Scaling"}:
        return None
    return wording.duration(wording.seconds(end) - now)
