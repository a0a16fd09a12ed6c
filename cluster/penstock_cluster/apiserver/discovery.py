"""Discovery: which groups, versions and resources there are, in the legacy and aggregated forms."""

from __future__ import annotations

import platform
from typing import Any

from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.resource import Resource

MINOR = 36
#: The order in which a real server lists its groups; others follow in order of appearance.
_GROUP_ORDER = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)
_FIXED_PATHS = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)


def version_info() -> Json:
    """``/version``: the Kubernetes whose behaviour this server follows, and what runs it."""
    return {
        "major": "1",
        "minor": str(MINOR),
        "emulationMajor": "1",
        "emulationMinor": str(MINOR),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(MINOR - 1),
        "gitVersion": f"v1.{MINOR}.0+penstock",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"linux/{platform.machine()}",
    }


def groups(registry: Registry) -> dict[str, list[str]]:
    """Named groups in order, each with its versions, preferred first."""
    found = registry.groups()
    found.pop("", None)
    known = [name for name in _GROUP_ORDER if name in found]
    custom = sorted(name for name in found if name not in _GROUP_ORDER)
    return {name: found[name] for name in (*known, *custom)}


def root_paths(registry: Registry) -> Json:
    paths = {*_FIXED_PATHS, "/api/v1"}
    for group, versions in groups(registry).items():
        paths.add(f"/apis/{group}")
        paths.update(f"/apis/{group}/{version}" for version in versions)
    return {"paths": sorted(paths)}


def api_versions(address: str) -> Json:
    server = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [server]}


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(registry: Registry) -> Json:
    listed = [_group(name, versions) for name, versions in groups(registry).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def one_group(registry: Registry, name: str) -> Json | None:
    versions = groups(registry).get(name)
    if versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(registry: Registry, group: str, version: str) -> Json | None:
    """The resources of one group and version; ``None`` when it is not served."""
    found = registry.in_version(group, version)
    if not found:
        return None
    listed: list[Json] = []
    for resource in found if found[0].custom else sorted(found, key=lambda item: item.plural):
        listed.append(_resource(resource))
        for name, item in _subresources(resource):
            entry: Json = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if item.group:
                entry |= {"group": item.group, "version": item.version}
            listed.append({**entry, "kind": item.kind, "verbs": list(item.verbs)})
    head: Json = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": listed}


def _subresources(resource: Resource) -> list[tuple[str, Any]]:
    if resource.custom:
        return list(resource.subresources.items())
    return sorted(resource.subresources.items())


def _resource(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.stored:
        entry["storageVersionHash"] = resource.storage_version_hash
    return entry


def aggregated(registry: Registry, *, core: bool, version: str) -> Json:
    """The aggregated form of ``/api`` (``core``) or ``/apis``."""
    items: list[Json] = []
    wanted = {"": ["v1"]} if core else groups(registry)
    for group, versions in wanted.items():
        listed = [
            {
                "version": name,
                "resources": [
                    _aggregated_resource(resource)
                    for resource in sorted(
                        registry.in_version(group, name), key=lambda item: item.plural
                    )
                ],
                "freshness": "Current",
            }
            for name in versions
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(resource: Resource) -> Json:
    def response(kind: str, group: str = "", version: str = "") -> Json:
        if resource.custom and not group:
            return {"group": resource.group, "version": resource.version, "kind": kind}
        return {"group": group, "version": version, "kind": kind}

    entry: Json = {
        "resource": resource.plural,
        "responseKind": response(resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {
            "subresource": name,
            "responseKind": response(item.kind, item.group, item.version),
            "verbs": list(item.verbs),
        }
        for name, item in _subresources(resource)
    ]
    if below:
        entry["subresources"] = below
    return entry
