"""``penstock uninstall``: removes what the chart or ``penstock up`` put into a cluster.

Definitions and jobs stay unless they are asked for: deleting a definition deletes every job with
it. What is deleted is found by the chart's labels, by the field manager of ``penstock up``, and by
the names that are fixed because they exist once in a cluster; nothing else is touched.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.shards import lease_names
from penstock.cli import output
from penstock.cli.session import Session, UsageError, connected

if TYPE_CHECKING:
    from penstock.client.kubernetes.resources import Resource

Json = dict[str, Any]
PART_OF: Final = "app.kubernetes.io/part-of=penstock"
INSTALLER: Final = "penstock-install"
"""Field manager under which ``penstock up`` applies what it needs."""

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_KINDS: Final = (
    ("apps/v1", "deployments", True),
    ("policy/v1", "poddisruptionbudgets", True),
    ("networking.k8s.io/v1", "networkpolicies", True),
    ("monitoring.coreos.com/v1", "servicemonitors", True),
    ("monitoring.coreos.com/v1", "prometheusrules", True),
    ("v1", "services", True),
    ("v1", "configmaps", True),
    ("v1", "secrets", True),
    ("v1", "serviceaccounts", True),
    (_RBAC, "rolebindings", True),
    (_RBAC, "roles", True),
    (_RBAC, "clusterrolebindings", False),
    (_RBAC, "clusterroles", False),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", False),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    ("scheduling.k8s.io/v1", "priorityclasses", False),
)
"""In the order in which they go: first what acts, last what lets it."""

JOB_KEY: Final = "penstock-job-key"
_LEASES: Final = (*lease_names(), "penstock-scheduler")


@dataclass(frozen=True)
class Found:
    """An object that would be deleted."""

    resource: Resource
    document: Json

    @property
    def namespace(self) -> str | None:
        found: str | None = self.document["metadata"].get("namespace")
        return found

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


@connected
def uninstall_(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    jobs: Annotated[bool, typer.Option("--jobs", help="Delete all jobs too, first.")] = False,
    crds: Annotated[
        bool, typer.Option("--crds", help="Delete the definitions too, and so all jobs.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Delete the Brain's volume too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
) -> None:
    """Remove Penstock from the cluster; definitions, jobs and history stay unless asked for."""
    from penstock.client import errors
    from penstock.client.kubernetes import resources

    found = list(_installed(session, history))
    wanted = list(_jobs(session)) if jobs or crds else []
    if crds:
        found += list(_definitions(session))
    everything = [*wanted, *found]
    if not everything:
        session.note("nothing of Penstock was found in this cluster")
        session.show([], lambda: "") if session.output is not output.Format.TABLE else None
        return
    if dry_run or session.output is output.Format.TABLE:
        session.show(_listed(everything), lambda: _table(everything))
    if dry_run:
        return
    if not yes:
        _confirm(session, len(everything), len(wanted))
    for each in everything:
        try:
            session.cluster.send(
                resources.delete(
                    each.resource, each.name, each.namespace, uid=each.document["metadata"]["uid"]
                )
            )
        except errors.ObjectNotFoundError:
            continue  # its owner's deletion was faster
    if session.output is output.Format.TABLE:
        typer.echo(f"{len(everything)} objects deleted")
    else:
        sys.stdout.write(output.written(_listed(everything), session.output))
    if not crds:
        session.note("the definitions stay, and with them all jobs (--crds deletes them)")


def _confirm(session: Session, count: int, jobs: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask: say --yes, or look with --dry-run")
    lost = f", {jobs} of them jobs" if jobs else ""
    where = session.cluster.access.context or session.cluster.access.server
    if not typer.confirm(f"Delete these {count} objects{lost} in {where}?", err=True):
        raise typer.Exit(1)


def _installed(session: Session, history: bool) -> Iterator[Found]:
    """What is in the cluster of the control plane itself.

    Raises:
        ForbiddenError: The caller is known and may not do this.
    """
    from penstock.client.kubernetes.resources import Resource

    releases, namespaces = set(), set()
    kinds = [*_KINDS, ("v1", "persistentvolumeclaims", True)] if history else [*_KINDS]
    for version, plural, namespaced in kinds:
        resource = Resource(version, plural, namespaced)
        # What only the chart makes is asked for by its label: nobody's Secrets are read.
        labels = PART_OF if namespaced and plural != "roles" else ""
        for document in _all(session, resource, labels):
            if labels or _ours(document):
                tags = document["metadata"].get("labels") or {}
                releases.add(tags.get("app.kubernetes.io/instance", ""))
                yield Found(resource, document)
    leases = Resource("coordination.k8s.io/v1", "leases")
    for document in _all(session, leases):
        if document["metadata"]["name"] in _LEASES:
            namespaces.add(document["metadata"]["namespace"])
            yield Found(leases, document)
    secrets = Resource("v1", "secrets")
    for release in sorted(releases - {""}):  # what Helm remembers of it
        yield from (
            Found(secrets, each) for each in _all(session, secrets, f"owner=helm,name={release}")
        )
    for namespace in sorted(namespaces):
        yield from _key(session, secrets, namespace)


def _key(session: Session, secrets: Resource, namespace: str) -> Iterator[Found]:
    """The key of the jobs' tokens, which lies beside the controller's Lease."""
    from penstock.client import errors
    from penstock.client.kubernetes import resources

    with contextlib.suppress(errors.ObjectNotFoundError):
        found = session.cluster.send(resources.get(secrets, JOB_KEY, namespace))
        yield Found(secrets, found)


def _ours(document: Json) -> bool:
    metadata = document["metadata"]
    name, _, value = PART_OF.partition("=")
    if (metadata.get("labels") or {}).get(name) == value:
        return True
    managers = {each.get("manager") for each in metadata.get("managedFields") or ()}
    return INSTALLER in managers and str(metadata["name"]).startswith("penstock-")


def _all(session: Session, resource: Resource, labels: str = "") -> list[Json]:
    from penstock.client import errors

    try:
        return session.cluster.list(resource, labels=labels)
    except errors.NotInstalledError:
        return []  # a kind that this cluster does not have


def _jobs(session: Session) -> Iterator[Found]:
    from penstock.client.kubernetes.resources import JOBS

    for document in _all(session, JOBS):
        yield Found(JOBS, document)


def _definitions(session: Session) -> Iterator[Found]:
    from penstock.client.kubernetes.resources import Resource
    from penstock.crds.group import GROUP

    definitions = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", False)
    for document in _all(session, definitions):
        if document["spec"]["group"] == GROUP:
            yield Found(definitions, document)


def _listed(found: list[Found]) -> list[Json]:
    return [
        {"resource": each.resource.plural, "namespace": each.namespace, "name": each.name}
        for each in found
    ]


def _table(found: list[Found]) -> Any:
    rows = [[each.resource.plural, each.namespace, each.name] for each in found]
    return output.table(["RESOURCE", "NAMESPACE", "NAME"], rows)
