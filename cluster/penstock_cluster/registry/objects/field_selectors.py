"""Which objects a request selects, by label and by the fields that a kind lets be selected by."""

from __future__ import annotations

from penstock_cluster.registry.model.documents import read
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.selectors import FieldReader, FieldSelector, LabelSelector
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.objects.watch import Match


def _reader(path: tuple[str, ...]) -> FieldReader:
    def value(document: Json) -> str:
        found = read(document, path)
        if found is None:
            return ""
        if found is True or found is False:
            return "true" if found else "false"
        return str(found)

    return value


def _paths(text: str) -> dict[str, FieldReader]:
    return {name: _reader(tuple(name.split("."))) for name in text.split()}


_COMMON_FIELDS = _paths("metadata.name metadata.namespace")
_EVENT_OBJECT = "kind namespace name uid apiVersion resourceVersion fieldPath"
_CORE_FIELDS: dict[str, dict[str, FieldReader]] = {
    "pods": _paths(
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName "
        "spec.hostNetwork status.phase status.podIP status.nominatedNodeName"
    ),
    "nodes": {**_paths("spec.unschedulable")},
    "namespaces": _paths("status.phase"),
    "secrets": _paths("type"),
    "events": {
        **_paths("reason type reportingComponent"),
        **{
            f"involvedObject.{name}": _reader(("involvedObject", name))
            for name in _EVENT_OBJECT.split()
        },
        "source": _reader(("source", "component")),
    },
    "events.events.k8s.io": {
        **_paths("reason type"),
        "reportingController": _reader(("reportingComponent",)),
        **{
            f"regarding.{name}": _reader(("involvedObject", name)) for name in _EVENT_OBJECT.split()
        },
    },
    "services": _paths("spec.clusterIP spec.type"),
    "jobs.batch": _paths("status.successful"),
}


def selectable(resource: Resource) -> dict[str, FieldReader]:
    """The fields of a kind that may stand in a field selector."""
    readers = dict(_COMMON_FIELDS)
    readers.update(_CORE_FIELDS.get(resource.name.qualified, {}))
    for item in resource.crd_version.get("selectableFields") or ():
        path = item["jsonPath"].lstrip(".")
        readers[path] = _reader(tuple(path.split(".")))
    return readers


def selected_name(fields: str) -> str:
    """The one name that a field selector leaves; empty: it leaves more.

    A list or a watch of one name is allowed by a role that names it.
    """
    for term in fields.split(","):
        field, _, value = term.partition("=")
        if field == "metadata.name":
            return value.removeprefix("=")
    return ""


def matcher(resource: Resource, labels: str, fields: str) -> Match | None:
    """A test for stored versions; ``None`` when everything matches."""
    by_label = LabelSelector.parse(labels) if labels else None
    by_field = FieldSelector.parse(fields, selectable(resource)) if fields else None
    if not by_label and not by_field:
        return None
    if not by_field:
        assert by_label is not None
        selector = by_label
        return lambda version: selector.matches(version.object["metadata"].get("labels"))
    field_selector = by_field

    def match(version: Version) -> bool:
        if not field_selector.matches(version.object):
            return False
        if by_label is None:
            return True
        return by_label.matches(version.object["metadata"].get("labels"))

    return match
