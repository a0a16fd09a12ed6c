"""Cuts from an answer what was cut from the recorded one.

Each cut has the words that the recordings use for it in ``response.trimmed``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
_GATES = ("schedulingGates", "affinity", "nodeSelector", "nodeName", "tolerations", "schedulerName")
_ROOT_PATHS = (
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/readyz",
    "/openapi/v2",
    "/openapi/v3",
    "/version",
    "/metrics",
)
_AGGREGATED = ("pods", "nodes", "namespaces", "configmaps", "serviceaccounts", "events")
_OPENAPI_ENTRIES = (
    "api/v1",
    "apis/golden.dev",
    "apis/golden.dev/v1alpha1",
    "apis/apiextensions.k8s.io/v1",
    "version",
    "apis",
)
_COMMON_COLUMNS = 200


def trimmed(note: str, recorded: Any, got: Any) -> Any:
    """``got`` as the recorder would have kept it."""
    if not isinstance(got, dict) or note == "nothing":
        return got
    if got.get("kind") == "Status" and isinstance(recorded, dict):
        return got
    kept = re.fullmatch(r"only the (groups|resources) (.*?)(?: are| and their.*) kept", note)
    if kept is not None:
        return _only(kept[1], kept[2].split(", "), got)
    if note == "only name and status are kept":
        return _named(got, "status", rv="resourceVersion" in recorded["metadata"])
    return _CUTS[note](got)


def _only(what: str, names: list[str], got: Json) -> Json:
    if what == "resources":
        kept = [item for item in got["resources"] if item["name"].split("/")[0] in names]
        return {**got, "resources": kept}
    if "groups" in got:
        return {**got, "groups": [group for group in got["groups"] if group["name"] in names]}
    return {**got, "items": [x for x in got["items"] if x["metadata"].get("name", "") in names]}


def _picked(source: Json, keys: tuple[str, ...]) -> Json:
    return {key: source[key] for key in keys if key in source}


def _pod(spec: tuple[str, ...] | None) -> Callable[[Json], Json]:
    def cut(got: Json) -> Json:
        if got.get("kind") != "Pod":
            return got
        kept = _picked(got, ("kind", "apiVersion", "metadata", "status"))
        return kept if spec is None else {**kept, "spec": _picked(got["spec"], spec)}

    return cut


def _items(cut: Callable[[Json], Any]) -> Callable[[Json], Json]:
    return lambda got: (
        {**got, "items": [cut(item) for item in got["items"]]} if "items" in got else got
    )


def _name(item: Json) -> Json:
    return {"metadata": {"name": item["metadata"]["name"]}}


def _named(got: Json, *more: str, rv: bool = False) -> Json:
    keys = ("name", "resourceVersion") if rv else ("name",)
    return {
        "kind": got["kind"],
        "metadata": _picked(got["metadata"], keys),
        **{key: got[key] for key in more},
    }


def _owner(item: Json) -> Json:
    keys = ("name", "ownerReferences", "finalizers", "deletionTimestamp")
    return {"metadata": _picked(item["metadata"], keys)}


def _deleted_pod(item: Json) -> Json:
    return _pod(("nodeName", "terminationGracePeriodSeconds"))(
        {**item, "kind": "Pod", "apiVersion": "v1"}
    )


def _placed_pod(item: Json) -> Json:
    place = _picked(item["spec"], ("nodeName",))
    return {**_name(item), "spec": place, "status": {"phase": item["status"]["phase"]}}


def _event(item: Json) -> Json:
    return {**_name(item), "reason": item["reason"], "type": item.get("type")}


def _labels(item: Json) -> Json:
    metadata = item["metadata"]
    return {"metadata": {"name": metadata["name"], "labels": metadata.get("labels")}}


def _priority(got: Json) -> Json:
    keys = ("priorityClassName", "priority", "preemptionPolicy")
    return {"kind": got["kind"], "spec": {key: got["spec"].get(key) for key in keys}}


def _root(got: Json) -> Json:
    return {"paths": [path for path in got["paths"] if "golden" in path or path in _ROOT_PATHS]}


def _aggregated(got: Json) -> Json:
    items = []
    for item in got["items"]:
        versions = [
            {**v, "resources": [r for r in v["resources"] if r["resource"] in _AGGREGATED]}
            for v in item["versions"]
        ]
        items.append({**item, "versions": versions})
    return {**got, "items": items}


def _openapi_entries(got: Json) -> Json:
    return {"paths": {k: v for k, v in got["paths"].items() if k in _OPENAPI_ENTRIES}}


def _definitions(got: Json) -> Json:
    kept = {k: v for k, v in got["definitions"].items() if k.startswith("dev.golden")}
    return {"swagger": got["swagger"], "definitions": kept}


def _openapi_document(got: Json) -> Json:
    paths = {
        path: {verb: _operation(value) for verb, value in item.items()}
        for path, item in got["paths"].items()
        if "widgets" in path
    }
    schemas = {
        name: schema if name.startswith("dev.golden") else _shared_schema(schema)
        for name, schema in got["components"]["schemas"].items()
    }
    return {**got, "paths": paths, "components": {**got["components"], "schemas": schemas}}


def _operation(value: Any) -> Any:
    if isinstance(value, list):
        return [_parameter(item) for item in value]
    if not isinstance(value, dict):
        return value
    copy = dict(value)
    if "responses" in copy:
        copy["responses"] = {
            code: {
                "description": reply.get("description"),
                "content": dict(list(reply.get("content", {}).items())[:1]),
            }
            for code, reply in copy["responses"].items()
        }
    if "parameters" in copy:
        copy["parameters"] = [_parameter(item) for item in copy["parameters"]]
    return copy


def _parameter(item: Any) -> Any:
    if isinstance(item, dict) and "description" in item:
        return {**item, "description": "<text>"}
    return item


def _shared_schema(schema: Json) -> Json:
    keys = ("type", "x-kubernetes-group-version-kind")
    kept = {k: v for k, v in schema.items() if k in keys and len(repr(v)) < _COMMON_COLUMNS}
    return {"...": "<left out>", **kept}


_CUTS: dict[str, Callable[[Json], Any]] = {
    "spec shows the priority fields": _priority,
    "spec shows only nodeName and terminationGracePeriodSeconds": _pod(
        ("nodeName", "terminationGracePeriodSeconds")
    ),
    "spec shows only nodeName": _pod(("nodeName",)),
    "spec shows only the fields about scheduling": _pod(_GATES),
    "spec left out": _pod(None),
    "spec of items left out": _items(_deleted_pod),
    "some paths only": _root,
    "only some resources are kept": _aggregated,
    "items show name, reason, type": _items(_event),
    "items show only the name": _items(_name),
    "items show only name and labels": _items(_labels),
    "items show only name, nodeName and phase": _items(_placed_pod),
    "items show only name, ownerReferences, finalizers, deletionTimestamp": _items(_owner),
    "names only": _items(lambda item: item["metadata"]["name"]),
    "name and resourceVersion only": lambda got: _named(got, rv=True),
    "name only": _named,
    "only kind and name": _named,
    "only kind and metadata": lambda got: _picked(got, ("kind", "metadata")),
    "the certificate is left out": lambda got: {**got, "data": dict.fromkeys(got["data"], "<pem>")},
    "some entries only": _openapi_entries,
    "only the definitions of golden.dev are kept, no paths": _definitions,
    "only paths of widgets, one content type per response, parameter texts and shared schemas "
    "left out": _openapi_document,
}
