"""The kinds that are served: built-in ones as a table, custom ones as their CRDs come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_cluster.registry.model.errors import page_not_found
from penstock_cluster.registry.model.shape import CoreTypes
from penstock_cluster.registry.objects.resource import ALL_VERBS, Resource, Strategy, Subresource

_STATUS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class CoreKind:
    """One row of the table of built-in kinds."""

    group: str
    version: str
    kind: str
    plural: str
    package: str
    namespaced: bool = True
    short: str = ""
    categories: str = ""
    verbs: tuple[str, ...] = ALL_VERBS
    #: ``name:kind:verbs`` or just ``status``.
    subresources: tuple[str, ...] = ()
    stored: bool = True
    storage: str = ""


_CORE = "core.v1"
_REVIEW = ("create",)
_PROXY = "proxy:{}ProxyOptions:create,delete,get,patch,update"

CORE_KINDS: tuple[CoreKind, ...] = (
    CoreKind("", "v1", "Binding", "bindings", _CORE, verbs=_REVIEW, stored=False),
    CoreKind("", "v1", "ConfigMap", "configmaps", _CORE, short="cm"),
    CoreKind("", "v1", "Endpoints", "endpoints", _CORE, short="ep"),
    CoreKind("", "v1", "Event", "events", _CORE, short="ev", storage="events"),
    CoreKind("", "v1", "LimitRange", "limitranges", _CORE, short="limits"),
    CoreKind(
        "",
        "v1",
        "Namespace",
        "namespaces",
        _CORE,
        namespaced=False,
        short="ns",
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=("finalize:Namespace:update", "status"),
    ),
    CoreKind(
        "",
        "v1",
        "Node",
        "nodes",
        _CORE,
        namespaced=False,
        short="no",
        subresources=(_PROXY.format("Node"), "status"),
    ),
    CoreKind(
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        _CORE,
        short="pvc",
        subresources=("status",),
    ),
    CoreKind(
        "",
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        _CORE,
        namespaced=False,
        short="pv",
        subresources=("status",),
    ),
    CoreKind(
        "",
        "v1",
        "Pod",
        "pods",
        _CORE,
        short="po",
        categories="all",
        subresources=(
            "attach:PodAttachOptions:create,get",
            "binding:Binding:create",
            "ephemeralcontainers:Pod:get,patch,update",
            "eviction:policy/v1/Eviction:create",
            "exec:PodExecOptions:create,get",
            "log:Pod:get",
            "portforward:PodPortForwardOptions:create,get",
            _PROXY.format("Pod"),
            "resize:Pod:get,patch,update",
            "status",
        ),
    ),
    CoreKind("", "v1", "PodTemplate", "podtemplates", _CORE),
    CoreKind(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        _CORE,
        short="rc",
        categories="all",
        subresources=("scale:autoscaling/v1/Scale:get,patch,update", "status"),
    ),
    CoreKind(
        "",
        "v1",
        "ResourceQuota",
        "resourcequotas",
        _CORE,
        short="quota",
        subresources=("status",),
    ),
    CoreKind("", "v1", "Secret", "secrets", _CORE),
    CoreKind(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        _CORE,
        short="sa",
        subresources=("token:authentication.k8s.io/v1/TokenRequest:create",),
    ),
    CoreKind(
        "",
        "v1",
        "Service",
        "services",
        _CORE,
        short="svc",
        categories="all",
        subresources=(_PROXY.format("Service"), "status"),
    ),
    CoreKind("apps", "v1", "ControllerRevision", "controllerrevisions", "apps.v1"),
    CoreKind(
        "apps",
        "v1",
        "DaemonSet",
        "daemonsets",
        "apps.v1",
        short="ds",
        categories="all",
        subresources=("status",),
    ),
    *(
        CoreKind(
            "apps",
            "v1",
            kind,
            plural,
            "apps.v1",
            short=short,
            categories="all",
            subresources=("scale:autoscaling/v1/Scale:get,patch,update", "status"),
        )
        for kind, plural, short in (
            ("Deployment", "deployments", "deploy"),
            ("ReplicaSet", "replicasets", "rs"),
            ("StatefulSet", "statefulsets", "sts"),
        )
    ),
    CoreKind("events.k8s.io", "v1", "Event", "events", "events.v1", short="ev", storage="events"),
    *(
        CoreKind(
            "authentication.k8s.io",
            "v1",
            kind,
            plural,
            "authentication.v1",
            namespaced=False,
            verbs=_REVIEW,
            stored=False,
        )
        for kind, plural in (
            ("SelfSubjectReview", "selfsubjectreviews"),
            ("TokenReview", "tokenreviews"),
        )
    ),
    *(
        CoreKind(
            "authorization.k8s.io",
            "v1",
            kind,
            kind.lower() + "s",
            "authorization.v1",
            namespaced=kind.startswith("Local"),
            verbs=_REVIEW,
            stored=False,
        )
        for kind in (
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        )
    ),
    *(
        CoreKind(
            "autoscaling",
            version,
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            f"autoscaling.{version}",
            short="hpa",
            categories="all",
            subresources=("status",),
            storage=f"horizontalpodautoscalers.{version}",
        )
        for version in ("v2", "v1")
    ),
    CoreKind(
        "batch",
        "v1",
        "CronJob",
        "cronjobs",
        "batch.v1",
        short="cj",
        categories="all",
        subresources=("status",),
    ),
    CoreKind("batch", "v1", "Job", "jobs", "batch.v1", categories="all", subresources=("status",)),
    CoreKind(
        "networking.k8s.io",
        "v1",
        "IngressClass",
        "ingressclasses",
        "networking.v1",
        namespaced=False,
    ),
    CoreKind(
        "networking.k8s.io",
        "v1",
        "Ingress",
        "ingresses",
        "networking.v1",
        short="ing",
        subresources=("status",),
    ),
    CoreKind(
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
        "networking.v1",
        short="netpol",
    ),
    CoreKind(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "policy.v1",
        short="pdb",
        subresources=("status",),
    ),
    CoreKind(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        "rbac.v1",
        namespaced=False,
    ),
    CoreKind(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterroles",
        "rbac.v1",
        namespaced=False,
    ),
    CoreKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "rbac.v1"),
    CoreKind("rbac.authorization.k8s.io", "v1", "Role", "roles", "rbac.v1"),
    CoreKind(
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "storageclasses",
        "storage.v1",
        namespaced=False,
        short="sc",
    ),
    *(
        CoreKind(
            "admissionregistration.k8s.io",
            "v1",
            kind,
            plural,
            "admissionregistration.v1",
            namespaced=False,
            categories=categories,
            subresources=subresources,
        )
        for kind, plural, categories, subresources in (
            (
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                "api-extensions",
                (),
            ),
            (
                "ValidatingAdmissionPolicy",
                "validatingadmissionpolicies",
                "api-extensions",
                ("status",),
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings",
                "api-extensions",
                (),
            ),
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                "api-extensions",
                (),
            ),
        )
    ),
    CoreKind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "apiextensions",
        namespaced=False,
        short="crd crds",
        categories="api-extensions",
        subresources=("status",),
    ),
    CoreKind(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclasses",
        "scheduling.v1",
        namespaced=False,
        short="pc",
    ),
    CoreKind("coordination.k8s.io", "v1", "Lease", "leases", "coordination.v1"),
    CoreKind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "node.v1", namespaced=False),
    CoreKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "discovery.v1"),
)


def definition_name(row: CoreKind) -> str:
    if row.package == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{row.kind}"
    return f"io.k8s.api.{row.package}.{row.kind}"


def _subresource(row: CoreKind, text: str) -> Subresource:
    if text == "status":
        return Subresource("status", row.kind, _STATUS)
    name, kind, verbs = text.split(":")
    group, version = "", ""
    if "/" in kind:
        group, version, kind = kind.split("/")
    return Subresource(name, kind, tuple(verbs.split(",")), group, version)


def core_resource(row: CoreKind, types: CoreTypes, strategy: Strategy) -> Resource:
    definition = definition_name(row)
    found = [_subresource(row, text) for text in row.subresources]
    return Resource(
        group=row.group,
        version=row.version,
        kind=row.kind,
        plural=row.plural,
        singular=row.kind.lower(),
        namespaced=row.namespaced,
        shape=types.shape(definition),
        strategy=strategy,
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        verbs=row.verbs,
        subresources={item.name: item for item in found},
        storage=row.storage,
        definition=definition,
        stored=row.stored,
        storage_version="v1beta1" if row.package == "apiextensions" else "",
    )


class Registry:
    """Every served resource, by path, by kind and by its kubectl spelling."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        #: Goes up with every change: for caches of discovery documents.
        self.revision = 0

    def add(self, resource: Resource) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.group, resource.version, resource.kind] = resource
        self.revision += 1

    def remove(self, resource: Resource) -> None:
        self._by_path.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        self.revision += 1

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._by_path.values()))

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def named(self, text: str) -> Resource:
        """By ``plural`` or ``plural.group``; :class:`ApiError` 404 when nothing is so called."""
        plural, _, group = text.partition(".")
        for resource in self._by_path.values():
            if resource.plural == plural and resource.group == group:
                return resource
        raise page_not_found()

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, the preferred one first."""
        found: dict[str, list[str]] = {}
        for resource in self._by_path.values():
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def in_version(self, group: str, version: str) -> list[Resource]:
        return [
            resource
            for resource in self._by_path.values()
            if resource.group == group and resource.version == version
        ]
