"""``penstock logs``: what a job's pods print, of one rank or of all of a role."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.enums import TRAINER_ROLE, Role
from penstock.cli import output
from penstock.cli.session import JobName, Session, connected

if TYPE_CHECKING:
    from penstock.client.kubernetes.resources import ClusterCall

Json = dict[str, Any]
MOST_STREAMS: Final = 64
_ROLES: Final = ", ".join([*(role.value for role in Role), TRAINER_ROLE])


@connected
def logs_(
    session: Session,
    job: JobName,
    role: Annotated[str, typer.Option("--role", help=f"One of {_ROLES}.")] = Role.WORKER.value,
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="One rank; else all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until they end.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Only the last lines; else all.")
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the container before the present one.")
    ] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="With times.")] = False,
) -> None:
    """Show what a job's pods print; a line names its rank where there are several.

    A terminal is given colours, and nothing else that would change it; a pipe or a file all that
    they print.
    """
    from penstock.client import errors
    from penstock.client.kubernetes import resources

    document = session.job(job)
    pods = _pods(session, document, role, rank)
    if not pods:
        which = role if rank is None else f"{role} {rank}"
        raise errors.ObjectNotFoundError(f"job {job} has no pod of {which}", code=404)
    if len(pods) > MOST_STREAMS:
        raise errors.PenstockError(f"{len(pods)} pods are too many at once: choose one by --rank")
    query = {
        name: value
        for name, value in (
            ("follow", "true" if follow else ""),
            ("tailLines", "" if tail is None else str(tail)),
            ("previous", "true" if previous else ""),
            ("timestamps", "true" if timestamps else ""),
        )
        if value
    }
    calls = {
        _label(pod): resources.ClusterCall(
            method="GET",
            path=resources.PODS.path(session.namespace, pod["metadata"]["name"], "log"),
            query=query,
        )
        for pod in pods
    }
    failures = asyncio.run(_print(session, calls))
    if len(failures) == len(calls):
        raise next(iter(failures.values()))
    for label, error in failures.items():
        session.note(f"{label}: {error}")


def _pods(session: Session, job: Json, role: str, rank: int | None) -> list[Json]:
    """The newest pod of each rank that is asked for, by rank."""
    from penstock.cli.exits import UsageError
    from penstock.client.kubernetes import resources
    from penstock.crds import labels

    names = {each.value: each.in_names for each in Role} | {TRAINER_ROLE: TRAINER_ROLE}
    names |= {each.in_names: each.in_names for each in Role}
    if role not in names:
        raise UsageError(f"--role {role}: one of {_ROLES} expected")
    selector = f"{labels.JOB_UID}={job['metadata']['uid']},{labels.ROLE}={names[role]}"
    if rank is not None:
        selector += f",{labels.RANK}={rank}"
    newest: dict[int, Json] = {}
    for pod in session.cluster.list(resources.PODS, session.namespace, labels=selector):
        number = _number(pod, labels.RANK)
        if number not in newest or _number(pod, labels.INCARNATION) > _number(
            newest[number], labels.INCARNATION
        ):
            newest[number] = pod
    return [newest[number] for number in sorted(newest)]


def _number(pod: Json, label: str) -> int:
    text = (pod["metadata"].get("labels") or {}).get(label, "0")
    return int(text) if text.isdigit() else 0


def _label(pod: Json) -> str:
    from penstock.crds import labels

    tags = pod["metadata"]["labels"]
    return f"{tags[labels.ROLE]}-{tags.get(labels.RANK, '0')}"


async def _print(session: Session, calls: dict[str, ClusterCall]) -> dict[str, Exception]:
    """Print all at once, line by line; the errors of those that gave none."""
    from penstock.client import errors
    from penstock.client.kubernetes.async_cluster_client import AsyncClusterClient
    from penstock.client.kubernetes.cluster_client import TIMEOUT_SECONDS

    failures: dict[str, Exception] = {}
    prefix, on_terminal = len(calls) > 1, sys.stdout.isatty()

    def shown(label: str, line: str) -> str:
        if session.output is not output.Format.TABLE:
            return output.streamed({"pod": label, "line": line}, session.output)
        if on_terminal:
            line = output.log_line(line)
        return f"{label} | {line}\n" if prefix else f"{line}\n"

    async def one(label: str, lines: AsyncGenerator[str]) -> None:
        try:
            async with contextlib.aclosing(lines):
                async for line in lines:
                    sys.stdout.write(shown(label, line))
                    sys.stdout.flush()
        except errors.ClusterError as error:
            failures[label] = error

    async with AsyncClusterClient(session.cluster.access) as cluster:
        if any("follow" in call.query for call in calls.values()):
            try:
                async with asyncio.TaskGroup() as group:
                    for label, call in calls.items():
                        group.create_task(one(label, cluster.lines(call)))
            except ExceptionGroup as group_error:
                # Such as a reader that has closed the pipe: for all of them alike.
                raise group_error.exceptions[0] from None
        else:
            for label, call in calls.items():
                await one(label, cluster.lines(call, idle_seconds=TIMEOUT_SECONDS))
    return failures
