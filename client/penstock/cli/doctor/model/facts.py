"""What the doctor looks at: everything is read once, and what cannot be read is said, not raised.

Only a cluster that does not answer at all is an error. Every list is read as the caller; a right
that the caller lacks makes an `Unknown` in the place of the objects, and the checks say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, TypeVar

import httpx

from penstock.client import errors
from penstock.client.kubernetes import resources
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import Json
from penstock.client.kubernetes.resources import Resource
from penstock.client.sdk import Penstock
from penstock.client.trust import verified_by
from penstock.crds.group import GROUP, SYSTEM_NAMESPACE

DEFINITIONS: Final = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", False)
POLICIES: Final = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False)
BINDINGS: Final = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", False
)
PRIORITIES: Final = Resource("scheduling.k8s.io/v1", "priorityclasses", False)
ROLES: Final = Resource("rbac.authorization.k8s.io/v1", "clusterroles", False)
LEASES: Final = Resource("coordination.k8s.io/v1", "leases")
NODES: Final = Resource("v1", "nodes", False)
CLAIMS: Final = Resource("v1", "persistentvolumeclaims")
DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
REVIEWS: Final = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", False)
REVIEWS_OF_OTHERS: Final = Resource("authorization.k8s.io/v1", "subjectaccessreviews", False)
WHO: Final = Resource("authentication.k8s.io/v1", "selfsubjectreviews", False)

PART_OF: Final = "app.kubernetes.io/part-of=penstock"
COMPONENT: Final = "app.kubernetes.io/component"
BRAIN_SECONDS: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class Unknown:
    """Something that could not be read, and why."""

    why: str


@dataclass(frozen=True)
class Right:
    """Something that somebody must be allowed to do."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str | None = None
    name: str = ""

    def __str__(self) -> str:
        whole = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {whole}{'/' + self.subresource if self.subresource else ''}"


CALLER_NEEDS: Final = (
    *(Right(verb, "elasticjobs", GROUP) for verb in ("get", "list", "create", "patch", "delete")),
    *(Right(verb, "scales", GROUP) for verb in ("list", "create", "delete")),
    Right("list", "pods"),
    Right("get", "pods", subresource="log"),
    Right("list", "events"),
)
COMPONENTS_NEED: Final = {
    "controller": (
        *(Right(verb, "elasticjobs", GROUP) for verb in ("list", "watch", "delete")),
        *(Right("patch", of, GROUP, "status") for of in ("elasticjobs", "scales")),
        *(Right(verb, "scales", GROUP) for verb in ("list", "watch", "create", "patch", "delete")),
        *(Right(verb, "pods") for verb in ("list", "watch", "create", "patch", "delete")),
        *(Right("create", of) for of in ("services", "serviceaccounts", "secrets", "events")),
        Right("patch", "services"),
        *(Right("create", of, "rbac.authorization.k8s.io") for of in ("roles", "rolebindings")),
    ),
    "scheduler": (
        *(Right(verb, "nodes") for verb in ("list", "watch")),
        *(Right(verb, "pods") for verb in ("list", "watch", "patch", "delete")),
        Right("list", "elasticjobs", GROUP),
        Right("create", "scales", GROUP),
    ),
    "brain": (
        Right("create", "tokenreviews", "authentication.k8s.io"),
        Right("create", "subjectaccessreviews", "authorization.k8s.io"),
        *(Right(verb, "scales", GROUP) for verb in ("create", "delete")),
    ),
}


@dataclass(frozen=True, kw_only=True)
class BrainFacts:
    """What the Brain said of itself."""

    how: str
    ready: str = ""
    """Empty: it is; else what it said."""
    version: str = ""
    clock_seconds: float | None = None
    """Its clock less this one."""
    allowed: str = ""
    """Empty: the caller may list jobs; else why not."""
    jobs: dict[str, float] | None = None
    """When each job was last heard of, by uid."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One look at a cluster."""

    now: float
    client_version: str
    namespace: str
    server: Json
    user: str
    clock_seconds: float
    """The server's clock less this one; a second is as exact as it gets."""
    definitions: list[Json] | Unknown
    policies: list[Json] | Unknown
    bindings: list[Json] | Unknown
    """Of admission policies."""
    priorities: list[Json] | Unknown
    roles: list[Json] | Unknown
    denied: list[Right] | Unknown
    denied_to: dict[str, list[Right]] | Unknown
    """By component; a component without an account of its own is absent."""
    leases: list[Json] | Unknown
    nodes: list[Json] | Unknown
    deployments: list[Json] | Unknown
    claims: list[Json] | Unknown
    jobs: list[Json] | Unknown
    pods: list[Json] | Unknown
    own_pods: list[Json] | Unknown
    """Of the components."""
    brain: BrainFacts | Unknown


def gather(penstock: Penstock, clock: Callable[[], float] = time.time) -> Facts:
    """Look once.

    Raises:
        ClusterError: The cluster does not answer or does not know us.
    """
    cluster = penstock.cluster
    server = cluster.send(resources.ClusterCall(method="GET", path="/version"))
    user, clock_seconds = _who(cluster, clock)

    def listed(resource: Resource, labels: str = "", near: str = "") -> list[Json] | Unknown:
        try:
            return cluster.list(resource, labels=labels)
        except errors.ForbiddenError:
            if resource.namespaced and near:
                return _unless_refused(lambda: cluster.list(resource, near, labels=labels))
            return Unknown(f"you may not list {resource.plural}")
        except errors.ClusterRefusedError as error:
            return Unknown(str(error))

    deployments = listed(DEPLOYMENTS, PART_OF, SYSTEM_NAMESPACE)
    return Facts(
        now=clock(),
        client_version=version("penstock"),
        namespace=penstock.namespace,
        server=server,
        user=user,
        clock_seconds=clock_seconds,
        definitions=listed(DEFINITIONS),
        policies=listed(POLICIES),
        bindings=listed(BINDINGS),
        priorities=listed(PRIORITIES),
        roles=listed(ROLES),
        denied=_unless_refused(lambda: _denied(cluster, penstock.namespace)),
        denied_to=_unless_refused(lambda: _denied_to(cluster, deployments)),
        leases=listed(LEASES, near=SYSTEM_NAMESPACE),
        nodes=listed(NODES),
        deployments=deployments,
        claims=listed(CLAIMS, PART_OF, SYSTEM_NAMESPACE),
        jobs=listed(resources.JOBS, near=penstock.namespace),
        pods=listed(resources.PODS, near=penstock.namespace),
        own_pods=listed(resources.PODS, PART_OF, SYSTEM_NAMESPACE),
        brain=_brain(penstock, clock),
    )


def _unless_refused(read: Callable[[], T]) -> T | Unknown:
    try:
        return read()
    except errors.ClusterRefusedError as error:
        return Unknown(str(error))


def _who(cluster: ClusterClient, clock: Callable[[], float]) -> tuple[str, float]:
    """Our name in the cluster, and how far its clock is from ours.

    The answer to a review is stamped by the server, needs no rights and changes nothing.
    """
    from penstock.cli.wording import seconds

    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    call = resources.ClusterCall(method="POST", path=WHO.path(), body=kind)
    before = clock()
    found = cluster.send(call)
    after = clock()
    stamp = (found.get("metadata") or {}).get("creationTimestamp")
    user = str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")
    # The stamp has whole seconds, cut off: its moment lies half a second later, on average.
    return user, seconds(stamp) + 0.5 - (before + after) / 2 if stamp else 0.0


def _denied(cluster: ClusterClient, namespace: str) -> list[Right]:
    return [
        right
        for right in CALLER_NEEDS
        if not _allowed(cluster, REVIEWS, {"resourceAttributes": _attributes(right, namespace)})
    ]


def _denied_to(cluster: ClusterClient, deployments: list[Json] | Unknown) -> dict[str, list[Right]]:
    found: dict[str, list[Right]] = {}
    if isinstance(deployments, Unknown):
        return found
    for deployment in deployments:
        component = (deployment["metadata"].get("labels") or {}).get(COMPONENT, "")
        account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
        user = f"system:serviceaccount:{deployment['metadata']['namespace']}:{account}"
        groups = ["system:serviceaccounts", "system:authenticated"]
        found[component] = [
            right
            for right in COMPONENTS_NEED.get(component, ())
            if not _allowed(
                cluster,
                REVIEWS_OF_OTHERS,
                {"user": user, "groups": groups, "resourceAttributes": _attributes(right, None)},
            )
        ]
    return found


def _attributes(right: Right, namespace: str | None) -> Json:
    given = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
        "namespace": namespace or "",
    }
    return {name: value for name, value in given.items() if value}


def _allowed(cluster: ClusterClient, reviews: Resource, spec: Json) -> bool:
    kind = {
        REVIEWS.plural: "SelfSubjectAccessReview",
        REVIEWS_OF_OTHERS.plural: "SubjectAccessReview",
    }[reviews.plural]
    body = {"apiVersion": reviews.api_version, "kind": kind, "spec": spec}
    answer = cluster.send(resources.ClusterCall(method="POST", path=reviews.path(), body=body))
    return bool((answer.get("status") or {}).get("allowed"))


def _brain(penstock: Penstock, clock: Callable[[], float]) -> BrainFacts | Unknown:
    try:
        brain = penstock.brain
    except errors.BrainError as error:
        return Unknown(str(error))
    address = penstock.brain_address
    assert address is not None
    try:
        with httpx.Client(
            base_url=address.url,
            timeout=BRAIN_SECONDS,
            trust_env=False,
            verify=verified_by(address.trust),
        ) as http:
            ready = http.get("/readyz")
            document = http.get("/openapi.json")
    except httpx.HTTPError as error:
        return Unknown(f"{address.url} ({address.how}): {str(error) or type(error).__name__}")
    told: dict[str, Any] = {}
    if date := ready.headers.get("date"):
        from email.utils import parsedate_to_datetime

        told["clock_seconds"] = parsedate_to_datetime(date).timestamp() + 0.5 - clock()
    if document.is_success:
        told["version"] = str(document.json().get("info", {}).get("version", ""))
    if not ready.is_success:
        told["ready"] = f"HTTP {ready.status_code} {ready.text[:200]}"
    try:
        told["jobs"] = {
            job.uid: job.last_seen_seconds
            for job in brain.jobs(namespace=penstock.namespace, phase="Active")
        }
    except errors.BrainError as error:
        told["allowed"] = str(error)
    return BrainFacts(how=f"{address.url} ({address.how})", **told)
