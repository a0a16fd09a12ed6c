"""Nobody hands on a right that they do not have: checked where roles are enforced.

* A role may hold what its author holds, or anything where they may ``escalate`` it; a binding may
  name a role whose rights its author holds, which must be there, or one that they may ``bind``.
* An owner reference that blocks the owner's deletion needs the right to the owner's finalizers,
  and a change of owner references the right to delete the object. Real servers check this one where
  the plugin OwnerReferencesPermissionEnforcement is on, as OpenShift has it: whoever passes here,
  passes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from penstock_cluster.registry.admission.rbac import Attributes, Authorizer, allows
from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.resource import Resource

_GROUP = "rbac.authorization.k8s.io"
_MASTERS = "system:masters"


class Escalation:
    """An admission check over the rights of whoever makes the request."""

    def __init__(self, authorizer: Authorizer, registry: Registry) -> None:
        self._authorizer = authorizer
        self._registry = registry

    def __call__(self, request: AdmissionRequest) -> None:
        new, old, call = request.new, request.old, request.call
        if new is None or request.subresource or _MASTERS in call.user.groups:
            return
        if request.resource.group == _GROUP:
            self._check_rights(request.resource, new, old, call)
        self._check_owners(request.resource, new, old, call)

    def _check_rights(self, resource: Resource, new: Json, old: Json | None, call: Call) -> None:
        namespace = new["metadata"].get("namespace", "")
        if resource.plural in ("clusterroles", "roles"):
            verb, plural, name = "escalate", resource.plural, new["metadata"].get("name", "")
            rules = new.get("rules") or []
            if old is not None and rules == (old.get("rules") or []):
                return
        else:
            reference = new["roleRef"]
            plural = "clusterroles" if reference["kind"] == "ClusterRole" else "roles"
            verb, name = "bind", reference["name"]
            rules = self._authorizer.rules_of(reference, namespace)
        wanted = Attributes(verb, _GROUP, plural, "", namespace, name)
        if self._authorizer.allowed(call.user, wanted):
            return
        if verb == "bind" and not self._authorizer.has_role(reference, namespace):
            raise errors.not_found(errors.ResourceName(_GROUP, plural, ""), name)
        own = list(self._authorizer.rules(call.user, namespace))
        missing = [one for rule in rules for one in parts(rule) if not _covered(one, own)]
        if missing:
            listed = "\n".join(_shown(one) for one in missing)
            why = (
                f'user "{call.user.name}" (groups={list(call.user.groups)!r}) is attempting to '
                f"grant RBAC permissions not currently held:\n{listed}"
            )
            raise errors.forbidden(resource.name, new["metadata"].get("name", ""), why)

    def _check_owners(self, resource: Resource, new: Json, old: Json | None, call: Call) -> None:
        metadata = new["metadata"]
        references = metadata.get("ownerReferences") or []
        before = [] if old is None else old["metadata"].get("ownerReferences") or []
        if references == before:
            return
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        if old is not None:
            wanted = Attributes("delete", resource.group, resource.plural, "", namespace, name)
            if not self._authorizer.allowed(call.user, wanted):
                raise errors.forbidden(
                    resource.name,
                    name,
                    "cannot set an ownerRef on a resource you can't delete: , <nil>",
                )
        for reference in references:
            if not reference.get("blockOwnerDeletion") or reference in before:
                continue
            owner = self._registry.of_kind(reference["apiVersion"], reference["kind"])
            if owner is None:
                continue
            place = namespace if owner.namespaced else ""
            wanted = Attributes(
                "update", owner.group, owner.plural, "finalizers", place, reference["name"]
            )
            if not self._authorizer.allowed(call.user, wanted):
                raise errors.forbidden(
                    resource.name,
                    name,
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you "
                    "can't set finalizers on: , <nil>",
                )


def parts(rule: Json) -> Iterator[Json]:
    """A rule as rules of one verb on one resource (or path) each."""
    names: Sequence[str | None] = rule.get("resourceNames") or (None,)
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [path]}
        groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
        for group, resource, name in product(groups, resources, names):
            part = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
            yield part if name is None else {**part, "resourceNames": [name]}


def _covered(part: Json, own: list[Json]) -> bool:
    [verb] = part["verbs"]
    if paths := part.get("nonResourceURLs"):
        return any(allows(rule, Attributes(verb, path=paths[0])) for rule in own)
    resource, _, subresource = part["resources"][0].partition("/")
    name = (part.get("resourceNames") or [""])[0]
    wanted = Attributes(verb, part["apiGroups"][0], resource, subresource, name=name)
    return any(allows(rule, wanted) for rule in own)


def _shown(part: Json) -> str:
    if paths := part.get("nonResourceURLs"):
        return f'{{NonResourceURLs:["{paths[0]}"], Verbs:["{part["verbs"][0]}"]}}'
    names = f', ResourceNames:["{part["resourceNames"][0]}"]' if "resourceNames" in part else ""
    return (
        f'{{APIGroups:["{part["apiGroups"][0]}"], Resources:["{part["resources"][0]}"]{names}, '
        f'Verbs:["{part["verbs"][0]}"]}}'
    )
