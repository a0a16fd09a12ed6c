"""OpenAPI documents: version 3 per group and version, version 2 in one piece.

Enough for ``kubectl apply`` (merge keys, query parameters), ``explain`` and ``diff``: the types of
every served kind, and paths that say which kind each operation is about. Built-in types come
without descriptions; those of custom kinds are their CRDs'.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib import resources
from typing import Any

import orjson

from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.shape import CoreTypes
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.resource import Resource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_LIST_PARAMETERS = (
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)
_WRITE_PARAMETERS = (
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
)
_DELETE_PARAMETERS = (
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)
_PARAMETER_TEXTS = {
    "allowWatchBookmarks": "Send BOOKMARK events on a watch.",
    "continue": "Token of the page before this one.",
    "dryRun": "All: do everything but store the result.",
    "fieldManager": "Owner of the fields that this request changes.",
    "fieldSelector": "Only objects whose selectable fields match.",
    "fieldValidation": "Ignore, Warn or Strict: what to do about unknown and duplicate fields.",
    "force": "Take over fields that other managers own (apply only).",
    "gracePeriodSeconds": "Seconds until the object is removed.",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "Delete an object that cannot be read.",
    "labelSelector": "Only objects whose labels match.",
    "limit": "Most objects on one page.",
    "name": "Name of the object.",
    "namespace": "Namespace of the object.",
    "orphanDependents": "Keep the dependents; superseded by propagationPolicy.",
    "pretty": "Write the reply for human readers.",
    "propagationPolicy": "Orphan, Background or Foreground: what becomes of dependents.",
    "resourceVersion": "Version of the store to read from or to start at.",
    "resourceVersionMatch": "Exact or NotOlderThan: how resourceVersion is meant.",
    "sendInitialEvents": "Begin a watch with the present objects and a bookmark.",
    "shardSelector": "Only objects of one shard.",
    "timeoutSeconds": "End the list or watch after this many seconds.",
    "watch": "Stream changes instead of listing.",
}
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"


@lru_cache(maxsize=1)
def _texts() -> dict[str, str]:
    text = resources.files(__package__).joinpath("data/openapi-texts.json").read_text()
    found: dict[str, str] = json.loads(text)
    return found


class OpenApi:
    """The documents of one server, built when asked for and kept until a kind changes."""

    def __init__(self, registry: Registry, types: CoreTypes) -> None:
        self._registry = registry
        self._types = types
        self._revision = -1
        self._documents: dict[str, bytes] = {}
        self._index: bytes = b""
        self._second: bytes = b""

    def _refresh(self) -> None:
        if self._revision == self._registry.revision:
            return
        self._revision = self._registry.revision
        self._documents.clear()
        self._index = self._second = b""

    def index(self) -> bytes:
        """``/openapi/v3``: the documents and a hash of each."""
        self._refresh()
        if not self._index:
            paths: Json = {}
            for path in self._paths():
                digest = hashlib.sha256(self.document(path) or b"").hexdigest()
                url = f"/openapi/v3/{path}?hash={digest[:32].upper()}"
                paths[path] = {"serverRelativeURL": url}
            self._index = orjson.dumps({"paths": paths})
        return self._index

    def _paths(self) -> list[str]:
        found = ["api", "api/v1", "apis", "version"]
        for group, versions in self._registry.groups().items():
            if group:
                if not self._registry.in_version(group, next(iter(versions)))[0].custom:
                    found.append(f"apis/{group}")
                found.extend(f"apis/{group}/{version}" for version in versions)
        return sorted(found)

    def document(self, path: str) -> bytes | None:
        """``/openapi/v3/PATH``; ``None`` when there is no such document."""
        self._refresh()
        if path not in self._paths():
            return None
        found = self._documents.get(path)
        if found is None:
            found = self._documents[path] = orjson.dumps(self._build(path))
        return found

    def _build(self, path: str) -> Json:
        parts = path.split("/")
        if parts[0] == "api" and len(parts) == 2:
            group, version = "", parts[1]
        elif len(parts) == 3:
            group, version = parts[1], parts[2]
        else:
            info = {"title": "Kubernetes", "version": "unversioned"}
            return {"openapi": "3.0.0", "info": info, "paths": {}, "components": {"schemas": {}}}
        served = self._registry.in_version(group, version)
        schemas: Json = {}
        paths: Json = {}
        custom = bool(served) and served[0].custom
        for resource in served:
            paths.update(_paths_of(resource, f"/{path}"))
            self._add_schemas(resource, schemas)
        self._close(schemas)
        title = "Kubernetes CRD Swagger" if custom else "Kubernetes"
        version_text = "v0.1.0" if custom else "unversioned"
        return {
            "openapi": "3.0.0",
            "info": {"title": title, "version": version_text},
            "paths": paths,
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _add_schemas(self, resource: Resource, schemas: Json) -> None:
        if resource.custom:
            schemas[resource.definition] = custom_schema(resource)
            schemas[f"{resource.definition}List"] = custom_list(resource)
            if "scale" in resource.subresources:
                schemas[_SCALE] = _third(self._types.definitions[_SCALE])
        else:
            schemas[resource.definition] = _third(self._types.definitions[resource.definition])
            if resource.stored:
                schemas[f"{resource.definition}List"] = _core_list(resource)
        for name in ("DeleteOptions", "Status", "ListMeta"):
            schemas[_META + name] = _third(self._types.definitions[_META + name])
        schemas[f"{_META}Patch"] = {"type": "object"}

    def _close(self, schemas: Json) -> None:
        """Add everything that is referred to."""
        waiting = list(schemas)
        while waiting:
            for name in _references(schemas[waiting.pop()]):
                if name not in schemas:
                    schemas[name] = _third(self._types.definitions[name])
                    waiting.append(name)

    def second(self) -> bytes:
        """``/openapi/v2``: the types of all kinds."""
        self._refresh()
        if not self._second:
            definitions: Json = {
                name: _second(schema) for name, schema in self._types.definitions.items()
            }
            for resource in self._registry:
                if resource.custom:
                    definitions[resource.definition] = _second_custom(custom_schema(resource))
                    definitions[f"{resource.definition}List"] = _second_custom(
                        custom_list(resource)
                    )
            document = {
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": "v1.36.0"},
                "paths": {},
                "definitions": dict(sorted(definitions.items())),
            }
            self._second = orjson.dumps(document)
        return self._second


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    found = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
    return found.union(*(_references(item) for item in value.values()))


def _third(schema: Any) -> Any:
    """A built-in type as version 3 has it."""
    if isinstance(schema, list):
        return [_third(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        reference = {"$ref": f"#/components/schemas/{schema['$ref']}"}
        extra = {key: _third(item) for key, item in schema.items() if key != "$ref"}
        return {**extra, "allOf": [reference], "default": {}} if extra else {"allOf": [reference]}
    return {
        key: (
            {name: _third(item) for name, item in value.items()}
            if key == "properties"
            else _third(value)
        )
        for key, value in schema.items()
    }


def _second(schema: Any) -> Any:
    """A built-in type as version 2 has it."""
    if isinstance(schema, list):
        return [_second(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written: Json = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            written[key] = f"#/definitions/{value}"
        elif key == "properties":
            written[key] = {name: _second(item) for name, item in value.items()}
        elif key == "oneOf":
            written["type"] = "string"
        else:
            written[key] = _second(value)
    return written


def _gvk(resource: Resource, kind: str) -> list[Json]:
    return [{"group": resource.group, "kind": kind, "version": resource.version}]


def custom_schema(resource: Resource) -> Json:
    """The schema of a custom kind as version 3 publishes it."""
    raw: Json = dict(resource.crd_version["schema"]["openAPIV3Schema"])
    texts = _texts()
    published: Json = {
        "apiVersion": {"description": texts["apiVersion"], "type": "string"},
        "kind": {"description": texts["kind"], "type": "string"},
        "metadata": {
            "description": texts["metadata"],
            "allOf": [{"$ref": f"#/components/schemas/{_META}ObjectMeta"}],
        },
    }
    properties = {
        name: _published(schema)
        for name, schema in (raw.get("properties") or {}).items()
        if name not in published
    }
    raw["properties"] = {**published, **properties}
    raw["x-kubernetes-group-version-kind"] = _gvk(resource, resource.kind)
    raw.update(_selectable(resource))
    return raw


def _published(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: _published(item) for key, item in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        written.pop("type", None)
        written.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return written


def custom_list(resource: Resource) -> Json:
    texts = _texts()
    reference = f"#/components/schemas/{resource.definition}"
    return {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": texts["apiVersion"], "type": "string"},
            "items": {
                "description": texts["items"].replace("{plural}", resource.plural),
                "type": "array",
                "items": {"$ref": reference},
            },
            "kind": {"description": texts["kind"], "type": "string"},
            "metadata": {
                "description": texts["listMetadata"],
                "allOf": [{"$ref": f"#/components/schemas/{_META}ListMeta"}],
            },
        },
        "x-kubernetes-group-version-kind": _gvk(resource, resource.list_kind),
        **_selectable(resource),
    }


def _selectable(resource: Resource) -> Json:
    fields = resource.crd_version.get("selectableFields")
    if not fields:
        return {}
    listed = [{"fieldPath": item["jsonPath"].lstrip(".")} for item in fields]
    return {"x-kubernetes-selectable-fields": listed}


def _core_list(resource: Resource) -> Json:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {
                "type": "array",
                "items": {"allOf": [{"$ref": f"#/components/schemas/{resource.definition}"}]},
            },
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}ListMeta"}]},
        },
        "x-kubernetes-group-version-kind": _gvk(resource, resource.list_kind),
    }


def _second_custom(schema: Any) -> Any:
    """A custom type in version 2: without what that version cannot say."""
    if isinstance(schema, list):
        return [_second_custom(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("allOf"), list) and "$ref" in schema["allOf"][0]:
        name = schema["allOf"][0]["$ref"].rpartition("/")[2]
        rest = {key: item for key, item in schema.items() if key != "allOf"}
        return {**rest, "$ref": f"#/definitions/{name}"}
    written: Json = {}
    for key, value in schema.items():
        if key in ("default", "nullable", "anyOf", "oneOf", "allOf", "not"):
            continue
        if key == "$ref":
            written[key] = f"#/definitions/{value.rpartition('/')[2]}"
        elif key == "properties":
            written[key] = {name: _second_custom(item) for name, item in value.items()}
        elif key == "items":
            written[key] = _second_custom(value)
        else:
            written[key] = value if key.startswith("x-") else _second_custom(value)
    if schema.get("nullable"):
        for lost in ("type", "items", "properties"):
            written.pop(lost, None)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        for lost in ("type", "items", "properties"):
            written.pop(lost, None)
    if schema.get("x-kubernetes-int-or-string"):
        written.pop("type", None)
    return written


def _parameters(rows: tuple[tuple[str, str], ...]) -> list[Json]:
    return [
        {
            "name": name,
            "in": "query",
            "description": _PARAMETER_TEXTS[name],
            "schema": {"type": kind, "uniqueItems": True},
        }
        for name, kind in rows
    ]


def _in_path(name: str) -> Json:
    schema = {"type": "string", "uniqueItems": True}
    text = _PARAMETER_TEXTS[name]
    return {"name": name, "in": "path", "description": text, "required": True, "schema": schema}


def _paths_of(resource: Resource, prefix: str) -> Json:
    """The operations on a kind."""
    writer = _PathWriter(resource)
    pretty = _parameters((("pretty", "string"),))
    place = f"{prefix}/namespaces/{{namespace}}" if resource.namespaced else prefix
    many_parameters = [*([_in_path("namespace")] if resource.namespaced else []), *pretty]
    one_parameters = [
        _in_path("name"),
        *([_in_path("namespace")] if resource.namespaced else []),
        *pretty,
    ]
    collection = f"{place}/{resource.plural}"
    paths: Json = {collection: {**writer.many(), "parameters": many_parameters}}
    if resource.stored:
        one = f"{collection}/{{name}}"
        paths[one] = {**writer.one(""), "parameters": one_parameters}
        for name in resource.subresources:
            found = writer.one(name)
            if found:
                paths[f"{one}/{name}"] = {**found, "parameters": one_parameters}
        if resource.namespaced:
            parameters = sorted(
                [*_parameters(_LIST_PARAMETERS), *pretty], key=lambda item: str(item["name"])
            )
            paths[f"{prefix}/{resource.plural}"] = {
                "get": writer.everywhere(),
                "parameters": parameters,
            }
    return paths


class _PathWriter:
    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = "Namespaced" if resource.namespaced else ""
        group = "".join(part.capitalize() for part in (resource.group or "core").split("."))
        self._place = group + resource.version[:1].upper() + resource.version[1:]
        tag = group[:1].lower() + group[1:]
        self._tags = [f"{tag}_{resource.version}"]
        self._ref = f"#/components/schemas/{resource.definition}"

    def _content(self, reference: str) -> Json:
        return {"application/json": {"schema": {"$ref": reference}}}

    def _operation(
        self,
        action: str,
        description: str,
        identifier: str,
        reference: str,
        codes: tuple[str, ...] = ("200",),
        parameters: tuple[tuple[str, str], ...] = (),
        body: Json | None = None,
    ) -> Json:
        words = {"200": "OK", "201": "Created", "202": "Accepted"}
        responses: Json = {
            code: {"description": words[code], "content": self._content(reference)}
            for code in codes
        }
        responses["401"] = {"description": "Unauthorized", "content": {}}
        operation: Json = {
            "tags": self._tags,
            "description": description,
            "operationId": identifier,
        }
        if parameters:
            operation["parameters"] = _parameters(parameters)
        if body is not None:
            operation["requestBody"] = body
        resource = self._resource
        operation["responses"] = responses
        operation["x-kubernetes-action"] = action
        operation["x-kubernetes-group-version-kind"] = {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        }
        return operation

    def _body(self, reference: str, *, required: bool = True) -> Json:
        schema = {"schema": {"$ref": reference}}
        body: Json = {"content": {"application/json": schema, "application/yaml": schema}}
        if required:
            body["required"] = True
        return body

    def many(self) -> Json:
        resource, kind = self._resource, self._resource.kind
        found: Json = {}
        name = f"{self._place}{self._scope}{kind}"
        if "list" in resource.verbs:
            found["get"] = self._operation(
                "list",
                f"list objects of kind {kind}",
                f"list{name}",
                f"{self._ref}List",
                parameters=_LIST_PARAMETERS,
            )
        if "create" in resource.verbs:
            found["post"] = self._operation(
                "post",
                f"create a {kind}",
                f"create{name}",
                self._ref,
                ("200", "201", "202"),
                _WRITE_PARAMETERS,
                self._body(self._ref),
            )
        if "deletecollection" in resource.verbs:
            identifier = f"delete{self._place}Collection{self._scope}{kind}"
            found["delete"] = self._operation(
                "deletecollection",
                f"delete collection of {kind}",
                identifier,
                f"#/components/schemas/{_META}Status",
                parameters=_LIST_PARAMETERS,
            )
        return found

    def everywhere(self) -> Json:
        kind = self._resource.kind
        identifier = f"list{self._place}{kind}ForAllNamespaces"
        return self._operation(
            "list", f"list objects of kind {kind}", identifier, f"{self._ref}List"
        )

    def one(self, subresource: str) -> Json:
        resource, kind = self._resource, self._resource.kind
        verbs = resource.subresources[subresource].verbs if subresource else resource.verbs
        what = f"{subresource} of the specified {kind}" if subresource else f"the specified {kind}"
        suffix = subresource[:1].upper() + subresource[1:]
        name = f"{self._place}{self._scope}{kind}{suffix}"
        reference = self._ref
        if subresource == "scale":
            reference = f"#/components/schemas/{_SCALE}"
        elif subresource and resource.subresources[subresource].kind != kind:
            return {}
        found: Json = {}
        if "get" in verbs:
            found["get"] = self._operation(
                "get",
                f"read {what}",
                f"read{name}",
                reference,
                parameters=(("resourceVersion", "string"),),
            )
        if "update" in verbs:
            found["put"] = self._operation(
                "put",
                f"replace {what}",
                f"replace{name}",
                reference,
                ("200", "201"),
                _WRITE_PARAMETERS,
                self._body(reference),
            )
        if "delete" in verbs and not subresource:
            found["delete"] = self._operation(
                "delete",
                f"delete a {kind}",
                f"delete{name}",
                f"#/components/schemas/{_META}Status",
                ("200", "202"),
                _DELETE_PARAMETERS,
                self._body(f"#/components/schemas/{_META}DeleteOptions", required=False),
            )
        if "patch" in verbs:
            types = _PATCH_TYPES if resource.custom else (*_PATCH_TYPES, _STRATEGIC)
            schema = {"schema": {"$ref": f"#/components/schemas/{_META}Patch"}}
            found["patch"] = self._operation(
                "patch",
                f"partially update {what}",
                f"patch{name}",
                reference,
                ("200",),
                (*_WRITE_PARAMETERS, ("force", "boolean")),
                {"content": dict.fromkeys(types, schema), "required": True},
            )
        return found
