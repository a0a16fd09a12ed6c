"""Limit ranges as far as containers go: default requests and limits, minimum, maximum, ratio.

Defaults are filled in before a pod is checked, and an annotation says which; the bounds are looked
at afterwards, for new pods and for resizes. Limits for whole pods and for claims have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.quantity import value_of
from penstock_cluster.registry.objects.resource import Strategy
from penstock_cluster.registry.objects.store import Store

LIMIT_RANGES = "limitranges"
_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRangeStrategy(Strategy):
    """A limit range says its defaults in full: from the maximum, and requests from the limits."""

    def default(self, document: Json) -> None:
        for item in (document.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            if limits:
                item["default"] = limits
            if requests:
                item["defaultRequest"] = requests


def fill_in(pod: Json, namespace: str, store: Store) -> None:
    """Give the containers of a new pod the defaults of the namespace, in place."""
    table = store.table(LIMIT_RANGES)
    notes: list[str] = []
    for item in _for_containers(version.object for version in table.in_namespace(namespace)):
        for field, noun in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(field) or ():
                notes += _fill_in_container(container, noun, item)
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _fill_in_container(container: Json, noun: str, item: Json) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for field, default in (("requests", "defaultRequest"), ("limits", "default")):
        present = resources.get(field) or {}
        added = {k: v for k, v in (item.get(default) or {}).items() if k not in present}
        if added:
            resources[field] = {**present, **added}
            yield f"{', '.join(sorted(added))} {field[:-1]} for {noun} {container['name']}"


def _for_containers(ranges: Iterator[Json]) -> list[Json]:
    return [
        item
        for document in ranges
        for item in (document.get("spec") or {}).get("limits") or ()
        if item.get("type") == "Container"
    ]


class LimitRanges:
    """Refuses containers outside of the bounds: :class:`ApiError` 403."""

    def __init__(self, store: Store) -> None:
        self._ranges = store.table(LIMIT_RANGES)

    def __call__(self, request: AdmissionRequest) -> None:
        pod = request.sized_pod
        if pod is None or not self._ranges.items:
            return
        spec = pod["spec"]
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        for version in self._ranges.in_namespace(request.namespace):
            faults = [
                fault
                for item in _for_containers(iter((version.object,)))
                for container in containers
                for fault in out_of_bounds(container.get("resources") or {}, item)
            ]
            if faults:
                listed = list(dict.fromkeys(faults))
                why = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
                raise errors.forbidden(request.resource.name, request.name, why)


def out_of_bounds(resources: Json, item: Json) -> Iterator[str]:
    """What a limit for containers has against the resources of one."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, least in (item.get("min") or {}).items():
        said = f"minimum {name} usage per Container is {least}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif value_of(requests[name]) < value_of(least):
            yield f"{said}, but request is {requests[name]}"
        elif name in limits and value_of(limits[name]) < value_of(least):
            yield f"{said}, but limit is {limits[name]}"
    for name, most in (item.get("max") or {}).items():
        said = f"maximum {name} usage per Container is {most}"
        if name not in limits:
            yield f"{said}.  No limit is specified"
        elif value_of(limits[name]) > value_of(most):
            yield f"{said}, but limit is {limits[name]}"
        elif name in requests and value_of(requests[name]) > value_of(most):
            yield f"{said}, but request is {requests[name]}"
    for name, most in (item.get("maxLimitRequestRatio") or {}).items():
        said = f"{name} max limit to request ratio per Container is {most}"
        request, limit = value_of(requests.get(name, 0)), value_of(limits.get(name, 0))
        if not request:
            yield f"{said}, but no request is specified or request is 0"
        elif not limit:
            yield f"{said}, but no limit is specified or limit is 0"
        elif limit / request > value_of(most):
            yield f"{said}, but provided ratio is {float(limit / request):f}"
