"""``penstock scale``, ``pin`` and ``release``: a person's targets, written as a Scale."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from penstock.base.enums import Policy, Role
from penstock.cli.session import JobName, Session, UsageError, connected
from penstock.cli.suspend import Timeout, Wait

RoleOption = Annotated[Role, typer.Option("--role", help="Role to change.")]
Replicas = Annotated[
    int | None, typer.Option("--replicas", "-r", min=0, max=4096, help="How many.")
]
Spare = Annotated[
    int | None,
    typer.Option("--spare", min=0, max=4096, help="Workers beyond them, preempted first."),
]
Cpu = Annotated[str | None, typer.Option("--cpu", help="CPU of each, such as 2 or 500m.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Memory of each, such as 4Gi.")]
Message = Annotated[str, typer.Option("--message", "-m", help="Why, for those who read on.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Have the controller say what it would do.")
]
POLL_SECONDS: Final = 0.5

Json = dict[str, Any]


def _writing(name: str, policy: Policy, summary: str) -> Callable[..., None]:
    """A command that writes a Scale of a policy; ``scale`` and ``pin`` differ in nothing else."""

    def write(
        session: Session,
        job: JobName,
        role: RoleOption = Role.WORKER,
        replicas: Replicas = None,
        cpu: Cpu = None,
        memory: Memory = None,
        spare: Spare = None,
        message: Message = "",
        dry_run: DryRun = False,
        wait: Wait = False,
        timeout: Timeout = 120.0,
    ) -> None:
        target = _target(replicas, cpu, memory, spare)
        _write(session, job, {role: target}, policy, message, dry_run, wait, timeout)

    write.__name__, write.__doc__ = name, summary
    return connected(write)


scale_ = _writing("scale_", Policy.APPLY, "Change a role of a job, until the Brain says otherwise.")
pin_ = _writing(
    "pin_",
    Policy.PIN,
    'Hold a role of a job at these targets, whatever the Brain says, until "release".',
)


@connected
def release_(
    session: Session,
    job: JobName,
    role: Annotated[
        Role | None, typer.Option("--role", help="Only pins of this role; else all.")
    ] = None,
) -> None:
    """Delete a job's pins: what the Brain said last is in force again."""
    found = session.penstock.release(job, role)
    of_role = f" of {role.in_words}" if role else ""
    count = f"{found} pin{'s' if found != 1 else ''}{of_role} deleted"
    session.did(session.job(job), f"released: {count}" if found else f"has no pin{of_role}")


def _target(replicas: int | None, cpu: str | None, memory: str | None, spare: int | None) -> Json:
    resources = {name: of for name, of in (("cpu", cpu), ("memory", memory)) if of is not None}
    target: Json = {}
    if replicas is not None:
        target["replicas"] = replicas
    if spare is not None:
        target["spareReplicas"] = spare
    if resources:
        target["resources"] = resources
    if not target:
        raise UsageError("nothing to change: give --replicas, --cpu, --memory or --spare")
    return target


def _write(
    session: Session,
    name: str,
    roles: dict[Role, Json],
    policy: Policy,
    message: str,
    dry_run: bool,
    wait: bool,
    timeout: float,
) -> None:
    from penstock.client import job_calls

    job = session.job(name)
    for role, target in roles.items():
        fixed = (job["spec"]["replicaSpecs"].get(role.value) or {}).get("replicas")
        if fixed and "replicas" in target and not dry_run:
            session.note(
                f"the spec fixes replicas of {role.value} at {fixed}, and that counts before any "
                f"Scale: set spec.replicaSpecs.{role.value}.replicas to 0 to give it back"
            )
    call = job_calls.scale(
        job, roles, now_seconds=time.time(), policy=policy, message=message, dry_run=dry_run
    )
    scale = session.cluster.send(call)
    done = "written"
    if wait or dry_run:
        scale, done = _outcome(session, scale, time.monotonic() + timeout)
    session.did(scale, done)


def _outcome(session: Session, scale: Json, deadline: float) -> tuple[Json, str]:
    """The Scale when something came of it.

    Raises:
        WaitTimeoutError: What was waited for did not come about in the time allowed.
        PenstockError: What the client was asked for did not come about.
    """
    from penstock.client import errors, job_calls
    from penstock.client.kubernetes import resources
    from penstock.client.waiting import Absence

    name = scale["metadata"]["name"]
    absence = Absence(time.monotonic)
    while True:
        look = resources.get(resources.SCALES, name, session.namespace)
        try:
            scale = session.cluster.send(look, seconds=max(0.1, deadline - time.monotonic()))
            absence.over()
        except errors.ClusterUnreachableError as error:
            absence.bear(error)
        if job_calls.holds(scale, "Failed"):
            failed = job_calls.condition(scale, "Failed") or {}
            raise errors.PenstockError(
                f"scale {name} was refused: {failed['reason']}: {failed['message']}"
            )
        if job_calls.holds(scale, "Applied"):
            return scale, "applied"
        if job_calls.holds(scale, "Superseded"):
            return scale, "superseded by a newer one"
        applied = job_calls.condition(scale, "Applied") or {}
        if applied.get("reason") == "DryRun":
            would = _preview((scale.get("status") or {}).get("preview") or {})
            return scale, f"is a dry run: {would or 'nothing would change'}"
        if applied.get("reason") in ("FixedBySpec", "PinnedByUser", "Suspended"):
            return scale, f"is kept underneath: {applied['message']}"
        if time.monotonic() > deadline:
            raise errors.WaitTimeoutError(
                f"scale {name} is not applied: {applied.get('message') or 'is the controller up?'}"
            )
        time.sleep(POLL_SECONDS)


def _preview(preview: Json) -> str:
    return "; ".join(
        f"{what}: {', '.join(preview[what])}"
        for what in ("created", "removed", "resized")
        if preview.get(what)
    )
