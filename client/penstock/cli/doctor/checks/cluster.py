"""What the cluster has of Penstock's: its version, definitions, policies, rights, and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.cli.doctor.checks.cures import APPLY_CRDS, UPGRADE, install, short, some
from penstock.cli.doctor.model.facts import COMPONENT, Facts, Unknown
from penstock.cli.doctor.model.finding import Finding, fault, ok, skipped, warning
from penstock.cli.doctor.model.schemas import differences, served_schema
from penstock.client.job_calls import condition, holds
from penstock.crds.group import GROUP, VERSION

OLDEST_KUBERNETES: Final = (1, 30)
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
                what = f"{name} is older than this client: it lacks {some(lacks)}"
                yield fault("CRDs", what, APPLY_CRDS)
            elif beyond:
                yield warning(
                    "CRDs",
                    f"{name} is newer than this client: it has {some(beyond)}",
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
        (facts.priorities, PRIORITY_NAMES, "PriorityClass", install("controller")),
        (facts.roles, ("penstock-trainer",), "ClusterRole", install("controller")),
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
            f"{facts.user} may not, in {facts.namespace}: {some(map(str, facts.denied))}",
            f"kubectl create rolebinding penstock-{short(facts.user)} -n {facts.namespace} "
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
                f"the {component} may not: {some(map(str, denied))}",
                f"restore its role: `{UPGRADE}`, or {install(component)}",
            )
        else:
            yield ok("components' rights", f"the {component} may do what it does")


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
        yield warning("nodes", f"not ready: {some(lost)}", f"kubectl describe node {lost[0]}")
    else:
        yield ok("nodes", f"{len(usable)} of {len(facts.nodes)} ready and schedulable")
