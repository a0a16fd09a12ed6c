"""``penstock suspend`` and ``resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.session import JobName, Session, connected

Wait = Annotated[bool, typer.Option("--wait", help="Return when it has come about.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait at most.")]


@connected
def suspend_(session: Session, job: JobName, wait: Wait = False, timeout: Timeout = 300.0) -> None:
    """Drain a job: its pods go, its state and its targets stay."""
    from penstock.client import job_calls

    document = session.cluster.send(job_calls.suspend(job, session.namespace, True))
    if wait:
        session.penstock.wait(job, "Suspended", timeout_seconds=timeout)
        document = session.job(job)
    session.did(document, "suspended" if wait else "is being suspended")


@connected
def resume_(session: Session, job: JobName, wait: Wait = False, timeout: Timeout = 300.0) -> None:
    """Let a suspended job go on where it was."""
    from penstock.client import job_calls

    document = session.cluster.send(job_calls.suspend(job, session.namespace, False))
    if wait:
        session.penstock.wait(job, "Running", timeout_seconds=timeout)
        document = session.job(job)
    session.did(document, "runs" if wait else "resumed")
