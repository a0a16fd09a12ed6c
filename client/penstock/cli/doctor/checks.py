"""The doctor's checks: each a pure function of the `Facts` of one look. `CHECKS` is their order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from penstock.cli import wording
from penstock.cli.doctor.facts import COMPONENT, Facts, Unknown
from penstock.cli.doctor.finding import Finding, fault, ok, skipped, warning
from penstock.cli.doctor.schemas import differences, served_schema
from penstock.client.job_calls import condition, holds
from penstock.crds import labels
from penstock.crds.conditions import JobReason
from penstock.crds.group import GROUP, VERSION

Json = dict[str, Any]

BROKEN: Final = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
)
"""What a container waits for that nobody will bring."""
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
MOST_SKEW_SECONDS: Final = 10.0
OLDEST_KUBERNETES: Final = (1, 30)
GATED_SECONDS: Final = 120.0
UNSEEN_SECONDS: Final = 60.0
SILENT_SECONDS: Final = 300.0
APPLY_CRDS: Final = "penstock crds | kubectl apply --server-side --force-conflicts -f -"
UPGRADE: Final = "helm upgrade penstock charts/penstock"
START: Final = "kubectl -n penstock-system get pods; `penstock up --external` runs it from here"
PRIORITY_NAMES: Final = ("penstock-data", "penstock-spare")
POLICY_NAMES: Final = ("penstock-trainer-scale-status", "penstock-trainer-scales")


def versions(facts: Facts) -> Iterator[Finding]:
    """Client, cluster, Brain and components speak to one another."""
    of = facts.server
    numbers = [re.sub(r"\D", "", str(of.get(part) or "0")) or "0" for part in ("major", "minor")]
    kubernetes = (int(numbers[0]), int(numbers[1]))
    said = f"Kubernetes {of.get('gitVersion') or '.'.join(numbers)}"
    if kubernetes < OLDEST_KUBERNETES:
        yield fault("versions", f"{said}: too old", "upgrade it to Kubernetes 1.30 or newer")
    found = {}
    if not isinstance(facts.deployments, Unknown):
        for each in facts.deployments:
            tags = each["metadata"].get("labels") or {}
            found[str(tags.get(COMPONENT))] = str(tags.get("app.kubernetes.io/version", ""))
    if not isinstance(facts.brain, Unknown) and facts.brain.version:
        found["brain"] = facts.brain.version
    others = {name: of for name, of in found.items() if of and of != facts.client_version}
    if others:
        spelt = ", ".join(f"{name} {of}" for name, of in sorted(others.items()))
        yield warning(
            "versions",
            f"this client is {facts.client_version}, but: {spelt}",
            f"bring them to one version: `{UPGRADE}`, or pip install penstock=="
            + next(iter(others.values())),
        )
    elif kubernetes >= OLDEST_KUBERNETES:
        parts = ", ".join(["client", *sorted(found)])
        yield ok("versions", f"{said}; {parts} {facts.client_version}")


def definitions(facts: Facts) -> Iterator[Finding]:
    """Both CRDs are there, served, and know the fields that this client knows."""
    from penstock.crds.elasticjob import ELASTICJOB
    from penstock.crds.scale import SCALE
    from penstock.crds.schema import structural_schema

    if isinstance(facts.definitions, Unknown):
        yield skipped("CRDs", facts.definitions.why)
        return
    there = {each["metadata"]["name"]: each for each in facts.definitions}
    for resource in (ELASTICJOB, SCALE):
        name = f"{resource.plural}.{GROUP}"
        definition = there.get(name)
        if definition is None:
            yield fault("CRDs", f"{name} is not installed", APPLY_CRDS)
            continue
        theirs = served_schema(definition, VERSION)
        if theirs is None:
            served = [each["name"] for each in definition["spec"]["versions"] if each.get("served")]
            what = f"{name} is served as {', '.join(served) or 'nothing'}, not as {VERSION}"
            yield fault("CRDs", what, APPLY_CRDS)
        elif not holds(definition, "Established"):
            said = (condition(definition, "NamesAccepted") or {}).get("message") or "still waiting"
            yield fault(
                "CRDs",
                f"{name} is not established: {said}",
                f"kubectl describe crd {name}, and remove what takes its names",
            )
        else:
            lacks, beyond = differences(structural_schema(resource), theirs)
            if lacks:
                what = f"{name} is older than this client: it lacks {_some(lacks)}"
                yield fault("CRDs", what, APPLY_CRDS)
            elif beyond:
                yield warning(
                    "CRDs",
                    f"{name} is newer than this client: it has {_some(beyond)}",
                    "upgrade this client: pip install --upgrade penstock",
                )
            else:
                yield ok("CRDs", f"{name} {VERSION} is installed and established")


def guards(facts: Facts) -> Iterator[Finding]:
    """What the jobs' trainers are bounded by, and the priorities of spare and data workers."""
    for read, names, what, cure in (
        (
            facts.policies,
            POLICY_NAMES,
            "admission policy",
            APPLY_CRDS,
        ),
        (facts.priorities, PRIORITY_NAMES, "PriorityClass", _install("controller")),
        (facts.roles, ("penstock-trainer",), "ClusterRole", _install("controller")),
    ):
        if isinstance(read, Unknown):
            yield skipped("policies", read.why)
            continue
        there = {each["metadata"]["name"] for each in read}
        missing = [name for name in names if name not in there]
        if missing:
            yield fault("policies", f"{what} {', '.join(missing)} is missing", cure)
            continue
        if read is facts.policies and (idle := _without_effect(facts)):
            yield fault(
                "policies",
                f"{what} {', '.join(idle)} denies nothing: no binding says that it may",
                cure,
            )
            continue
        yield ok("policies", f"{what} {', '.join(names)}")


def _without_effect(facts: Facts) -> list[str]:
    """The policies of ours that no binding has deny anything."""
    if isinstance(facts.bindings, Unknown):
        return []
    bound = {
        each["spec"].get("policyName")
        for each in facts.bindings
        if "Deny" in (each["spec"].get("validationActions") or ())
    }
    return [name for name in POLICY_NAMES if name not in bound]


def your_rights(facts: Facts) -> Iterator[Finding]:
    """The caller may do what the commands do."""
    if isinstance(facts.denied, Unknown):
        yield skipped("your rights", facts.denied.why)
    elif facts.denied:
        yield warning(
            "your rights",
            f"{facts.user} may not, in {facts.namespace}: {_some(map(str, facts.denied))}",
            f"kubectl create rolebinding penstock-{_short(facts.user)} -n {facts.namespace} "
            f"--clusterrole=penstock-editor --user={facts.user}",
        )
    else:
        yield ok("your rights", f"{facts.user} may use jobs in {facts.namespace}")


def components_rights(facts: Facts) -> Iterator[Finding]:
    """The components' accounts may do what they do."""
    if isinstance(facts.denied_to, Unknown):
        yield skipped("components' rights", facts.denied_to.why)
        return
    if not facts.denied_to:
        yield skipped("components' rights", "no component has an account in the cluster")
    for component, denied in sorted(facts.denied_to.items()):
        if denied:
            yield fault(
                "components' rights",
                f"the {component} may not: {_some(map(str, denied))}",
                f"restore its role: `{UPGRADE}`, or {_install(component)}",
            )
        else:
            yield ok("components' rights", f"the {component} may do what it does")


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
    """Controller and scheduler hold their Leases and renew them."""
    if isinstance(facts.leases, Unknown):
        yield skipped("Leases", facts.leases.why)
        return
    for part, why in (
        ("controller", "no job is started, scaled or mended"),
        ("scheduler", "no job gets data workers"),
    ):
        name = f"penstock-{part}"
        held = [each for each in facts.leases if each["metadata"]["name"] == name]
        cure = f"start the {part}: {START}"
        if not held:
            # Without a scheduler jobs train all the same.
            yield (fault if part == "controller" else warning)(
                "Leases", f"nobody has ever held {name}: {why}", cure
            )
            continue
        ages = [_since_renewal(each, facts) for each in held]
        leading = [
            f"{each['metadata']['namespace']} by {holder}"
            for each, (late, limit) in zip(held, ages, strict=True)
            if (holder := _holder(each)) and late <= limit
        ]
        if len(leading) > 1:
            yield fault(
                "Leases",
                f"{name} is held in {len(leading)} namespaces, {', '.join(leading)}: all of them "
                "act on every job",
                "keep one and stop the others: `penstock down` where it was started, or "
                "`helm uninstall penstock --namespace NAMESPACE`",
            )
            continue
        lease, (late, limit) = min(zip(held, ages, strict=True), key=lambda pair: pair[1][0])
        holder = _holder(lease)
        if not holder or late > limit:
            how = f"since {wording.duration(late)}" if holder else "it was given back"
            yield fault("Leases", f"{name} is not renewed, {how}: {why}", cure)
        else:
            yield ok("Leases", f"{name} is held by {holder}")


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


def nodes(facts: Facts) -> Iterator[Finding]:
    """There is somewhere to run."""
    if isinstance(facts.nodes, Unknown):
        yield skipped("nodes", facts.nodes.why)
        return
    ready = [each for each in facts.nodes if holds(each, "Ready")]
    usable = [each for each in ready if not (each.get("spec") or {}).get("unschedulable")]
    lost = sorted(each["metadata"]["name"] for each in facts.nodes if each not in ready)
    if not usable:
        yield fault(
            "nodes",
            f"none of {len(facts.nodes)} nodes is ready and schedulable",
            "kubectl get nodes; kubectl uncordon NODE, or add a node",
        )
    elif lost:
        yield warning("nodes", f"not ready: {_some(lost)}", f"kubectl describe node {lost[0]}")
    else:
        yield ok("nodes", f"{len(usable)} of {len(facts.nodes)} ready and schedulable")


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
            f"no samples for {wording.duration(SILENT_SECONDS)} from running: {_some(silent)}",
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
            f"{_some(waiting)}",
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
        yield fault("jobs", f"not looked at by any controller: {_some(unseen)}", START)
    if refused:
        first = refused[0].split(" ")[0].partition("/")
        yield warning(
            "jobs",
            f"not accepted: {_some(refused)}",
            f"penstock describe -n {first[0]} {first[2]} says which field is at fault",
        )
    for name, what in hurt[:MOST_JOBS]:
        namespace, _, short = name.partition("/")
        yield warning("jobs", f"{name}: {what}", f"penstock describe -n {namespace} {short}")
    if not unseen and not refused and not hurt:
        yield ok("jobs", f"{len(facts.jobs)} jobs, none forgotten or refused")


CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    versions,
    definitions,
    guards,
    components,
    components_rights,
    your_rights,
    leases,
    brain,
    clocks,
    nodes,
    storage,
    metrics,
    gates,
    jobs,
)


def examine(facts: Facts) -> list[Finding]:
    """What every check found, in order."""
    return [finding for check in CHECKS for finding in check(facts)]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return ", ".join(listed[:4]) + more


def _short(user: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[:40] or "user"


def _install(component: str) -> str:
    if component == "brain":
        return f"`{UPGRADE}`"
    return f"penstock {component} --print-manifests | kubectl apply --server-side -f -"
