"""Pod Security admission: the labels of a namespace, and what they mean for what is put into it.

``pod-security.kubernetes.io/enforce`` refuses pods that violate its standard; ``warn`` (by default
as strict as ``enforce``) lets them in with a warning, and warns of pod templates, which nothing
refuses; ``audit`` is checked and has no effect, there being no audit log. A namespace without
labels is privileged. Later changes of a pod are looked at where they may matter: other images and
added containers.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock_cluster.registry.admission.pod_standards import (
    LEVELS,
    PRIVILEGED,
    Standard,
    parse_version,
)
from penstock_cluster.registry.admission.pod_standards import violations as found_by
from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import compact, read
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Store

_PREFIX = "pod-security.kubernetes.io/"
_RESTRICTED = LEVELS[-1]
_OTHER_PATHS = ("binding", "eviction", "status")
_TEMPLATES = {
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
    "jobs.batch": ("spec", "template"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What the labels of a namespace ask for."""

    enforce: Standard
    warn: Standard


def policy_of(labels: Json) -> tuple[Policy, Faults]:
    """The policy of a namespace, and what is wrong with its labels.

    A wrong level is enforced as the strictest one, and warned of as none; a wrong version is the
    latest.
    """
    faults = Faults()

    def standard(mode: str, otherwise: str) -> Standard:
        level, version = labels.get(f"{_PREFIX}{mode}"), labels.get(f"{_PREFIX}{mode}-version")
        minor = None
        if level is not None and level not in LEVELS:
            path = f"metadata.labels[{_PREFIX}{mode}]"
            faults.invalid(path, compact(level), f"must be one of {', '.join(LEVELS)}")
            level = otherwise
        if version is not None:
            try:
                minor = parse_version(version)
            except ValueError as error:
                path = f"metadata.labels[{_PREFIX}{mode}-version]"
                faults.invalid(path, compact(version), str(error))
        return Standard(level or PRIVILEGED, minor)

    enforce = standard("enforce", _RESTRICTED)
    standard("audit", PRIVILEGED)
    warn = standard("warn", PRIVILEGED)
    if f"{_PREFIX}warn" not in labels and labels.get(f"{_PREFIX}enforce") in LEVELS[1:]:
        own_version = f"{_PREFIX}warn-version" in labels
        warn = Standard(enforce.level, warn.minor if own_version else enforce.minor)
    return Policy(enforce, warn), faults


class PodSecurity:
    """Applies the labels of namespaces; :class:`ApiError` 403 for a pod, 422 for a label."""

    def __init__(self, store: Store) -> None:
        self._namespaces = store.table("namespaces")
        self._pods = store.table("pods")

    def __call__(self, request: AdmissionRequest) -> None:
        new, old, call = request.new, request.old, request.call
        if new is None:
            return
        kind = request.resource.name.qualified
        if kind == "namespaces" and not request.subresource:
            self._admit_namespace(request.resource, new, old, call)
        elif kind == "pods" and request.subresource not in _OTHER_PATHS:
            if old is None or _matters(new["spec"], old["spec"]):
                self._admit_pod(request.resource, new, call)
        elif kind in _TEMPLATES and not request.subresource:
            template = read(new, _TEMPLATES[kind])
            if template and template.get("spec"):
                policy = self._policy(new["metadata"]["namespace"])
                _warn(policy.warn, template.get("metadata") or {}, template["spec"], call)

    def _policy(self, namespace: str) -> Policy:
        found = self._namespaces.items.get(("", namespace))
        labels = found.object["metadata"].get("labels") if found else None
        return policy_of(labels or {})[0]

    def _admit_pod(self, resource: Resource, pod: Json, call: Call) -> None:
        metadata = pod["metadata"]
        policy = self._policy(metadata["namespace"])
        against = found_by(policy.enforce, metadata.get("annotations") or {}, pod["spec"])
        if against:
            text = ", ".join(map(str, against))
            why = f'violates PodSecurity "{policy.enforce}": {text}'
            raise errors.forbidden(resource.name, metadata.get("name", ""), why)
        _warn(policy.warn, metadata, pod["spec"], call)

    def _admit_namespace(self, resource: Resource, new: Json, old: Json | None, call: Call) -> None:
        policy, faults = policy_of(new["metadata"].get("labels") or {})
        before, earlier = policy_of((old or new)["metadata"].get("labels") or {})
        if faults and (old is None or faults.items != earlier.items):
            raise errors.invalid(resource.name, new["metadata"].get("name", ""), faults.items)
        if old is not None and _is_stricter(policy.enforce, before.enforce):
            call.warnings.extend(self._in_violation(new["metadata"]["name"], policy.enforce))

    def _in_violation(self, namespace: str, standard: Standard) -> list[str]:
        """Warnings of the pods that are there already; one for all that violate the same."""
        pods: dict[str, list[str]] = {}
        for version in self._pods.in_namespace(namespace):
            metadata, spec = version.object["metadata"], version.object["spec"]
            against = found_by(standard, metadata.get("annotations") or {}, spec)
            if against:
                reasons = ", ".join(one.reason for one in against)
                pods.setdefault(reasons, []).append(metadata["name"])
        if not pods:
            return []
        first = (
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level '
            f'"{standard}"'
        )
        return [
            first,
            *sorted(f"{min(names)}{_others(len(names))}: {why}" for why, names in pods.items()),
        ]


def _others(count: int) -> str:
    if count == 1:
        return ""
    return f" (and {count - 1} other {'pod' if count == 2 else 'pods'})"


def _is_stricter(new: Standard, old: Standard) -> bool:
    """Whether pods that are there may violate the new standard and not the old one."""
    if new == old or new.level == PRIVILEGED:
        return False
    return new.minor != old.minor or new.strictness > old.strictness


def _warn(standard: Standard, metadata: Json, spec: Json, call: Call) -> None:
    against = found_by(standard, metadata.get("annotations") or {}, spec)
    if against:
        text = ", ".join(map(str, against))
        call.warnings.append(f'would violate PodSecurity "{standard}": {text}')


def _matters(new: Json, old: Json) -> bool:
    """Whether a change of a pod may change what a standard says of it."""

    def images(spec: Json) -> list[object]:
        fields = ("containers", "initContainers", "ephemeralContainers")
        return [[one.get("image") for one in spec.get(field) or ()] for field in fields]

    return images(new) != images(old)
