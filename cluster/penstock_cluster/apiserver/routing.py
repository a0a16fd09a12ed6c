"""Which kind a path means, and whether it takes the method: the refusals of the real server."""

from __future__ import annotations

from penstock_cluster.apiserver.paths import Target
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.resource import Resource


def find(registry: Registry, target: Target) -> Resource:
    """The kind that a path means; :class:`ApiError` 404 or 405."""
    resource = registry.get(target.group, target.version, target.resource)
    if resource is None:
        served = registry.in_version(target.group, target.version)
        if served and not served[0].custom:
            raise errors.resource_not_found()
        raise errors.page_not_found()
    missing_place = (
        resource.namespaced and not target.namespace and (target.name or target.verb == "create")
    )
    foreign_place = (
        not resource.namespaced and target.namespace and (resource.plural != "namespaces")
    )
    if missing_place or foreign_place:
        if resource.custom:
            raise errors.page_not_found()
        if foreign_place or target.name:
            raise errors.resource_not_found()
        raise errors.method_not_allowed()
    return resource


def check_method(resource: Resource, target: Target) -> None:
    """:class:`ApiError` 400, 404 or 405 unless the path takes the method."""
    if resource.custom:
        _check_custom_method(resource, target)
    else:
        _check_core_method(resource, target)


def _check_core_method(resource: Resource, target: Target) -> None:
    if target.subresource:
        found = resource.subresources.get(target.subresource)
        if found is None:
            raise errors.resource_not_found()
        if target.verb not in found.verbs:
            raise errors.method_not_allowed()
        return
    on_object = target.verb in ("get", "update", "patch", "delete")
    if bool(target.name) is not on_object and target.verb != "watch":
        raise errors.method_not_allowed()
    if target.verb not in resource.verbs:
        raise errors.method_not_allowed()


def _check_custom_method(resource: Resource, target: Target) -> None:
    if target.subresource:
        if target.subresource not in resource.subresources:
            raise errors.not_found(resource.name, target.name)
        if target.verb not in ("get", "update", "patch"):
            raise errors.method_not_allowed(target.verb, resource.name)
    elif not target.name and target.verb in ("update", "patch"):
        raise errors.bad_request("name must be provided")
