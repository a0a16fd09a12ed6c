"""Role-based access control: may this user do that?

The rules come from the Roles and bindings in the store, as they are at the time of the request.
Members of ``system:masters`` may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import User
from penstock_cluster.registry.model.errors import Json, ResourceName
from penstock_cluster.registry.objects.store import Store

_GROUP = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_EDIT_CORE = [
    "configmaps",
    "events",
    "persistentvolumeclaims",
    "pods",
    "pods/eviction",
    "secrets",
    "serviceaccounts",
    "services",
]


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do: with a resource, or (``path``) outside of resources."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allows(rule: Json, wanted: Attributes) -> bool:
    """Whether one rule of a role covers what is wanted."""
    if not _covers(rule.get("verbs"), wanted.verb):
        return False
    if wanted.path:
        return any(
            pattern in ("*", wanted.path)
            or (pattern.endswith("*") and wanted.path.startswith(pattern[:-1]))
            for pattern in rule.get("nonResourceURLs") or ()
        )
    if not _covers(rule.get("apiGroups"), wanted.group):
        return False
    names = rule.get("resourceNames")
    if names and wanted.name not in names:
        return False
    listed = rule.get("resources") or ()
    if "*" in listed or wanted.full_resource in listed:
        return True
    return bool(wanted.subresource) and f"*/{wanted.subresource}" in listed


def _covers(listed: list[str] | None, value: str) -> bool:
    return listed is not None and ("*" in listed or value in listed)


def _is_subject(subject: Json, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    place = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and user.name == f"system:serviceaccount:{place}:{name}"


class Authorizer:
    """Answers from the roles and bindings in a store; ``enforced`` off allows everything."""

    def __init__(self, store: Store, *, enforced: bool) -> None:
        self._store = store
        self.enforced = enforced

    def allowed(self, user: User, wanted: Attributes) -> bool:
        if "system:masters" in user.groups:
            return True
        if not self.enforced and user.name != "system:anonymous":
            return True
        return any(allows(rule, wanted) for rule in self.rules(user, wanted.namespace))

    def check(self, user: User, wanted: Attributes, resource: ResourceName) -> None:
        """:class:`ApiError` 403 unless ``user`` may do this."""
        if not self.allowed(user, wanted):
            raise errors.forbidden(resource, wanted.name, explain(user, wanted))

    def rules(self, user: User, namespace: str) -> Iterator[Json]:
        """The rules that hold for ``user`` in ``namespace`` (and everywhere)."""
        for version in self._store.table(f"clusterrolebindings.{_GROUP}").items.values():
            yield from self._bound(version.object, user, "")
        if namespace:
            for version in self._store.table(f"rolebindings.{_GROUP}").in_namespace(namespace):
                yield from self._bound(version.object, user, namespace)

    def _bound(self, binding: Json, user: User, namespace: str) -> Iterator[Json]:
        subjects = binding.get("subjects") or ()
        if not any(_is_subject(subject, user, namespace) for subject in subjects):
            return
        yield from self.rules_of(binding.get("roleRef") or {}, namespace)

    def rules_of(self, reference: Json, namespace: str) -> Iterator[Json]:
        """The rules of the role that a binding in ``namespace`` refers to, if there is one."""
        role = self._role(reference, namespace)
        if role is not None:
            yield from self._role_rules(role)

    def has_role(self, reference: Json, namespace: str) -> bool:
        """Whether the role that a binding in ``namespace`` refers to is there."""
        return self._role(reference, namespace) is not None

    def _role(self, reference: Json, namespace: str) -> Json | None:
        kind, name = reference.get("kind"), reference.get("name", "")
        if kind == "ClusterRole":
            role = self._store.table(f"clusterroles.{_GROUP}").items.get(("", name))
        else:
            role = self._store.table(f"roles.{_GROUP}").items.get((namespace, name))
        return None if role is None else role.object

    def _role_rules(self, role: Json) -> Iterator[Json]:
        yield from role.get("rules") or ()
        for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            wanted = selector.get("matchLabels") or {}
            for version in self._store.table(f"clusterroles.{_GROUP}").items.values():
                labels = version.object["metadata"].get("labels") or {}
                if version.object is not role and wanted.items() <= labels.items():
                    yield from version.object.get("rules") or ()


def explain(user: User, wanted: Attributes) -> str:
    """Why a request is refused, in the words of the real server."""
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    return (
        f'User "{user.name}" cannot {wanted.verb} resource "{wanted.full_resource}" in API group '
        f'"{wanted.group}" {where}'
    )


def bootstrap_objects() -> list[tuple[str, Json]]:
    """The roles and bindings that every cluster starts with, with their tables."""
    discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ]
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    reviews = {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    }
    who_am_i = {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    }
    view = [
        {
            "apiGroups": [""],
            "resources": [name for name in _EDIT_CORE if name != "secrets"]
            + ["pods/log", "pods/status", "namespaces"],
            "verbs": _READ,
        },
        {
            "apiGroups": ["apps", "batch", "autoscaling", "policy", "networking.k8s.io"],
            "resources": ["*"],
            "verbs": _READ,
        },
    ]
    edit = [
        *view,
        {"apiGroups": [""], "resources": _EDIT_CORE, "verbs": [*_READ, *_WRITE]},
        {
            "apiGroups": ["apps", "batch", "autoscaling", "policy", "networking.k8s.io"],
            "resources": ["*"],
            "verbs": _WRITE,
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": [*_READ, *_WRITE]},
    ]
    admin = [*edit, {"apiGroups": [_GROUP], "resources": ["roles", "rolebindings"], "verbs": ["*"]}]
    roles: dict[str, tuple[list[Json], str]] = {
        "cluster-admin": (
            [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ],
            "system:masters",
        ),
        "system:discovery": (
            [{"nonResourceURLs": discovery, "verbs": ["get"]}],
            "system:authenticated",
        ),
        "system:public-info-viewer": (
            [{"nonResourceURLs": public, "verbs": ["get"]}],
            "system:authenticated system:unauthenticated",
        ),
        "system:basic-user": ([reviews, who_am_i], "system:authenticated"),
        "view": (view, ""),
        "edit": (edit, ""),
        "admin": (admin, ""),
    }
    objects: list[tuple[str, Json]] = []
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    for name, (rules, groups) in roles.items():
        metadata = {"name": name, "labels": labels}
        role = {"kind": "ClusterRole", "apiVersion": f"{_GROUP}/v1", "metadata": metadata}
        objects.append(("clusterroles", {**role, "rules": rules}))
        if groups:
            subjects = [
                {"kind": "Group", "apiGroup": _GROUP, "name": group} for group in groups.split()
            ]
            reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
            binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference}
            objects.append(("clusterrolebindings", {**binding, "subjects": subjects}))
    return objects
