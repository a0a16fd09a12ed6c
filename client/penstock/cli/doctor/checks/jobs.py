"""What holds up jobs and their pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.cli import wording
from penstock.cli.doctor.checks.cures import START, some
from penstock.cli.doctor.model.facts import Facts, Unknown
from penstock.cli.doctor.model.finding import Finding, fault, ok, skipped, warning
from penstock.client.job_calls import condition
from penstock.crds import labels
from penstock.crds.conditions import JobReason

HURTS: Final = {
    JobReason.UNSCHEDULABLE,
    JobReason.IMAGE_UNAVAILABLE,
    JobReason.INVALID_CONTAINER,
    JobReason.POD_REFUSED,
    JobReason.CHECKPOINTS_NOT_WRITTEN,
    JobReason.JOURNAL_NOT_WRITTEN,
    JobReason.STEP_LOG_NOT_WRITTEN,
}
"""Of a job's conditions, what somebody has to do something about."""
MOST_JOBS: Final = 4
GATED_SECONDS: Final = 120.0
UNSEEN_SECONDS: Final = 60.0


def gates(facts: Facts) -> Iterator[Finding]:
    """No pod waits at the planner's gate for ever."""
    if isinstance(facts.pods, Unknown):
        yield skipped("gates", facts.pods.why)
        return
    waiting = []
    for pod in facts.pods:
        gated = [each["name"] for each in (pod.get("spec") or {}).get("schedulingGates") or ()]
        created = wording.seconds(pod["metadata"]["creationTimestamp"])
        age = facts.now + facts.clock_seconds - created
        if labels.PLACEMENT_GATE in gated and age > GATED_SECONDS:
            waiting.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    if waiting:
        namespace, name = waiting[0].split("/")
        yield fault(
            "gates",
            f"behind the scheduler's gate for more than {wording.duration(GATED_SECONDS)}: "
            f"{some(waiting)}",
            "start the scheduler, or the controller, which lifts gates while no scheduler is "
            "alive; a pod whose job is gone: "
            f"kubectl -n {namespace} delete pod {name}",
        )
    else:
        yield ok("gates", "no pod waits behind the scheduler's gate")


def jobs(facts: Facts) -> Iterator[Finding]:
    """Every job was looked at."""
    if isinstance(facts.jobs, Unknown):
        yield skipped("jobs", facts.jobs.why)
        return
    unseen, refused, hurt = [], [], list[tuple[str, str]]()
    for job in facts.jobs:
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        age = (
            facts.now + facts.clock_seconds - wording.seconds(job["metadata"]["creationTimestamp"])
        )
        accepted = condition(job, "Accepted")
        if job["spec"].get("managedBy"):
            continue
        if accepted is None and age > UNSEEN_SECONDS:
            unseen.append(name)
        elif accepted is not None and accepted["status"] != "True":
            refused.append(f"{name} ({accepted['reason']})")
        hurt += [
            (name, f"{found.get('reason')}: {found.get('message', '')}")
            for kind in ("Scaling", "StorageHealthy")
            if (found := condition(job, kind)) is not None and found.get("reason") in HURTS
        ]
    if unseen:
        yield fault("jobs", f"not looked at by any controller: {some(unseen)}", START)
    if refused:
        first = refused[0].split(" ")[0].partition("/")
        yield warning(
            "jobs",
            f"not accepted: {some(refused)}",
            f"penstock describe -n {first[0]} {first[2]} says which field is at fault",
        )
    for name, what in hurt[:MOST_JOBS]:
        namespace, _, short = name.partition("/")
        yield warning("jobs", f"{name}: {what}", f"penstock describe -n {namespace} {short}")
    if not unseen and not refused and not hurt:
        yield ok("jobs", f"{len(facts.jobs)} jobs, none forgotten or refused")
