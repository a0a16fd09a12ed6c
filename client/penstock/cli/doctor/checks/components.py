"""Whether the components run, lead, answer and keep what they have to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.base.shards import (
    NUMBER_OBJECT,
    Share,
    different_numbers,
    lease_name,
    lease_names,
    read_holder,
)
from penstock.cli import wording
from penstock.cli.doctor.checks.cures import START, some
from penstock.cli.doctor.model.facts import Facts, Unknown
from penstock.cli.doctor.model.finding import Finding, fault, ok, skipped, warning
from penstock.client.job_calls import condition, holds

Json = dict[str, Any]

BROKEN: Final = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
)
"""What a container waits for that nobody will bring."""
MOST_SKEW_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 300.0


def components(facts: Facts) -> Iterator[Finding]:
    """The Deployments have their pods."""
    if isinstance(facts.deployments, Unknown):
        yield skipped("components", facts.deployments.why)
        return
    for each in facts.deployments:
        name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
        ready = (each.get("status") or {}).get("readyReplicas") or 0
        wanted = each["spec"].get("replicas", 1)
        if not wanted:
            yield fault(
                "components",
                f"deployment {name} is scaled to 0: nobody does its work",
                f"kubectl -n {namespace} scale deployment {name} --replicas=1",
            )
        elif broken := _broken(each, facts):
            yield fault(
                "components",
                f"deployment {name}: {broken}",
                f"kubectl -n {namespace} logs deployment/{name} --previous; "
                f"kubectl -n {namespace} describe pods",
            )
        elif ready == 0:
            yield fault(
                "components",
                f"deployment {name} has 0 of {wanted} pods ready",
                f"kubectl -n {namespace} describe deployment {name}; "
                f"kubectl -n {namespace} logs deployment/{name}",
            )
        else:
            yield ok("components", f"deployment {name} has {ready} of {wanted} pods ready")


def _broken(deployment: Json, facts: Facts) -> str:
    """What the kubelet says of a container that cannot live; empty: nothing."""
    if isinstance(facts.own_pods, Unknown):
        return ""
    of = deployment["spec"]["selector"].get("matchLabels") or {}
    for pod in facts.own_pods:
        tags, there = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
        if there != deployment["metadata"]["namespace"] or not of.items() <= tags.items():
            continue
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            waiting = (status.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in BROKEN:
                said = f"{pod['metadata']['name']} is in {waiting['reason']}"
                if restarts := status.get("restartCount"):
                    said += f" after {restarts} restarts"
                ended = (status.get("lastState") or {}).get("terminated") or {}
                text = ended.get("message") or waiting.get("message") or ""
                return f"{said}: {text}" if text else said
    return ""


def brain(facts: Facts) -> Iterator[Finding]:
    """The Brain answers, can serve, and knows the caller."""
    if isinstance(facts.brain, Unknown):
        yield fault(
            "Brain",
            f"not reached: {facts.brain.why}",
            "start it, or say where it is with --brain; jobs train on meanwhile, without plans: "
            + START,
        )
        return
    if facts.brain.ready:
        yield fault(
            "Brain",
            f"{facts.brain.how} is not ready: {facts.brain.ready}",
            "look whether its database is reachable and its volume has room: "
            "kubectl -n penstock-system logs deployment/penstock-brain",
        )
    if facts.brain.allowed:
        yield fault(
            "Brain",
            f"{facts.brain.how} refuses you: {facts.brain.allowed}",
            "give it a token that it knows: PENSTOCK_BRAIN_TOKEN="
            "$(kubectl create token ACCOUNT --audience=penstock-brain)",
        )
    if not facts.brain.ready and not facts.brain.allowed:
        yield ok("Brain", f"{facts.brain.how} is ready and knows you")


def clocks(facts: Facts) -> Iterator[Finding]:
    """No clock is so far off that Leases and tokens are misjudged."""
    found = {"the API server's": facts.clock_seconds}
    if not isinstance(facts.brain, Unknown) and facts.brain.clock_seconds is not None:
        found["the Brain's"] = facts.brain.clock_seconds
    off = {name: skew for name, skew in found.items() if abs(skew) > MOST_SKEW_SECONDS}
    for name, skew in off.items():
        yield fault(
            "clocks",
            f"{name} clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this one's",
            "synchronise both machines with NTP (timedatectl set-ntp true)",
        )
    if not off:
        worst = max(abs(skew) for skew in found.values())
        yield ok("clocks", f"within {max(1.0, worst):.0f} s of this machine's")


def leases(facts: Facts) -> Iterator[Finding]:
    """Controller and scheduler hold their Leases and renew them; of shards, each has one holder."""
    if isinstance(facts.leases, Unknown):
        yield skipped("Leases", facts.leases.why)
        return
    living = [
        _holder(each)
        for each in facts.leases
        if each["metadata"]["name"] in lease_names() and _leads(each, facts)
    ]
    if numbers := different_numbers(living):
        shown = " and ".join(str(number) for number in numbers)
        yield warning(
            "Leases",
            f"controllers divide the jobs into {shown} shards: those that came last wait until "
            "the others have stopped",
            "look again in a minute; then restart the ones of the old number (a release without "
            f"shards goes by 1; ConfigMap {NUMBER_OBJECT} has the number in force)",
        )
    else:
        number = max((read_holder(holder).number for holder in living), default=1)
        for shard in range(number):
            name = lease_name(shard)
            jobs = "job" if number == 1 else f"job of {Share(shard, number)}"
            yield from _held("controller", name, f"no {jobs} is started, scaled or mended", facts)
    yield from _held("scheduler", "penstock-scheduler", "no job gets data workers", facts)


def _held(part: str, name: str, why: str, facts: Facts) -> Iterator[Finding]:
    """One process, in one namespace, holds a Lease."""
    assert not isinstance(facts.leases, Unknown)
    held = [each for each in facts.leases if each["metadata"]["name"] == name]
    cure = f"start the {part}: {START}"
    if not held:
        # Without a scheduler jobs train all the same.
        yield (fault if part == "controller" else warning)(
            "Leases", f"nobody has ever held {name}: {why}", cure
        )
        return
    leading = [
        f"{each['metadata']['namespace']} by {_holder(each)}"
        for each in held
        if _leads(each, facts)
    ]
    if len(leading) > 1:
        yield fault(
            "Leases",
            f"{name} is held in {len(leading)} namespaces, {', '.join(leading)}: all of them act "
            "on every job" + ("" if name == f"penstock-{part}" else " of the shard"),
            "keep one and stop the others: `penstock down` where it was started, or "
            "`helm uninstall penstock --namespace NAMESPACE`",
        )
        return
    ages = [_since_renewal(each, facts) for each in held]
    lease, (late, limit) = min(zip(held, ages, strict=True), key=lambda pair: pair[1][0])
    holder = _holder(lease)
    if not holder or late > limit:
        how = f"since {wording.duration(late)}" if holder else "it was given back"
        yield fault("Leases", f"{name} is not renewed, {how}: {why}", cure)
    else:
        yield ok("Leases", f"{name} is held by {holder}")


def _leads(lease: Json, facts: Facts) -> bool:
    late, limit = _since_renewal(lease, facts)
    return bool(_holder(lease)) and late <= limit


def _holder(lease: Json) -> str:
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def _since_renewal(lease: Json, facts: Facts) -> tuple[float, float]:
    """How long ago a Lease was renewed by the server's clock, and how long that may be."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    limit = float(spec.get("leaseDurationSeconds") or 15) + MOST_SKEW_SECONDS
    if not renewed:
        return float(10**9), limit
    return facts.now + facts.clock_seconds - wording.seconds(renewed), limit


def metrics(facts: Facts) -> Iterator[Finding]:
    """Running jobs report samples, without which nothing is planned."""
    if isinstance(facts.jobs, Unknown):
        yield skipped("samples", facts.jobs.why)
        return
    if isinstance(facts.brain, Unknown) or facts.brain.jobs is None:
        yield skipped("samples", "the Brain did not say")
        return
    silent = []
    running = 0
    for job in facts.jobs:
        if job["metadata"]["namespace"] != facts.namespace or not holds(job, "Running"):
            continue
        running += 1
        since = wording.seconds((condition(job, "Running") or {})["lastTransitionTime"])
        heard = facts.brain.jobs.get(job["metadata"]["uid"], since)
        if facts.now - max(heard, since) > SILENT_SECONDS:
            silent.append(job["metadata"]["name"])
    if silent:
        yield fault(
            "samples",
            f"no samples for {wording.duration(SILENT_SECONDS)} from running: {some(silent)}",
            f"penstock logs {silent[0]} --role trainer: can it reach the Brain (network policy, "
            "token, address)?",
        )
    else:
        yield ok("samples", f"{running} running jobs in {facts.namespace} report")


def storage(facts: Facts) -> Iterator[Finding]:
    """The Brain's volume is there."""
    if isinstance(facts.claims, Unknown):
        yield skipped("storage", facts.claims.why)
        return
    unbound = [each for each in facts.claims if (each.get("status") or {}).get("phase") != "Bound"]
    for each in unbound:
        name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
        phase = (each.get("status") or {}).get("phase") or "new"
        yield fault(
            "storage",
            f"volume claim {namespace}/{name} is {phase}: the Brain cannot start",
            f"kubectl -n {namespace} describe pvc {name}; set a storage class that exists: "
            "--set brain.database.sqlite.storageClass=...",
        )
    if not unbound:
        names = [each["metadata"]["name"] for each in facts.claims]
        said = f"{', '.join(names)} is bound" if names else "no volume claims of Penstock"
        yield ok("storage", said)
