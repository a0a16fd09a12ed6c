"""Objects and lists as bytes, in the form a client asked for.

The plain JSON form is what controllers read thousands of times: it is made once per version and
shared. Tables, metadata only and YAML are made for each request.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock_cluster.apiserver.content import bodies, columns
from penstock_cluster.apiserver.content.lists import Page
from penstock_cluster.apiserver.content.negotiation import Form
from penstock_cluster.registry import Engine
from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version

_INCLUDES = ("", "Metadata", "Object", "None")


def external(resource: Resource, version: Version) -> Json:
    """The object as clients of ``resource`` see it; serialise with orjson."""
    if resource.view is None:
        return version.external()
    document = resource.view(version)
    if not version.managed:
        return document
    metadata = {**document["metadata"], "managedFields": managed.external(version.managed)}
    return {**document, "metadata": metadata}


def encode(engine: Engine, resource: Resource, version: Version) -> bytes:
    """The JSON of an object; shared between requests when it is a stored version."""
    if version.number == 0:
        return orjson.dumps(external(resource, version))
    return engine.store.encoded(version, resource.cache_view, lambda item: external(resource, item))


def partial(resource: Resource, version: Version, form: str = "v1") -> Json:
    """The metadata of an object alone."""
    metadata = external(resource, version)["metadata"]
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{form}",
        "metadata": metadata,
    }


class Writer:
    """Writes replies about one resource in one form."""

    def __init__(self, engine: Engine, resource: Resource, form: Form, include: str) -> None:
        self._engine = engine
        self._resource = resource
        self._form = form
        self._include = include or "Metadata"
        self._header_sent = False
        if form.kind == "Table" and include not in _INCLUDES:
            raise errors.bad_request(
                "Unable to convert to Table as requested: includeObject: Invalid value: "
                f'"{include}"'
                ": must be 'Metadata', 'Object', 'None', or empty"
            )

    @property
    def content_type(self) -> str:
        return self._form.content_type

    def one(self, version: Version) -> bytes:
        kind = self._form.kind
        if not kind:
            if self._form.encoding == "yaml":
                return self._yaml(orjson.loads(encode(self._engine, self._resource, version)))
            return encode(self._engine, self._resource, version)
        if kind == "Table":
            metadata = {"resourceVersion": version.object["metadata"].get("resourceVersion", "")}
            return orjson.dumps(self._table([version], metadata))
        if kind == "PartialObjectMetadata":
            return orjson.dumps(partial(self._resource, version, self._form.version))
        raise errors.not_acceptable(("application/json", "application/yaml"))

    def document(self, document: Json) -> bytes:
        """A reply that is no stored object (a Status, a Scale)."""
        if self._form.encoding == "yaml":
            return self._yaml(document)
        return orjson.dumps(document)

    @staticmethod
    def _yaml(document: Json) -> bytes:
        return bodies.to_yaml(document)

    def page(self, page: Page) -> bytes:
        kind = self._form.kind
        metadata: Json = {"resourceVersion": str(page.resource_version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if not kind:
            if self._form.encoding == "yaml":
                return self._yaml(orjson.loads(self._plain_page(page, metadata)))
            return self._plain_page(page, metadata)
        if kind == "Table":
            return orjson.dumps(self._table(page.versions, metadata))
        if kind == "PartialObjectMetadataList":
            items = [partial(self._resource, version) for version in page.versions]
            return orjson.dumps(
                {
                    "kind": kind,
                    "apiVersion": f"meta.k8s.io/{self._form.version}",
                    "metadata": metadata,
                    "items": items,
                }
            )
        raise errors.not_acceptable(("application/json", "application/yaml"))

    def _plain_page(self, page: Page, metadata: Json) -> bytes:
        resource = self._resource
        kind = orjson.dumps(resource.list_kind)
        version = orjson.dumps(resource.api_version)
        items = [encode(self._engine, resource, item) for item in page.versions]
        if resource.custom:
            listed = orjson.dumps({"continue": "", **metadata})
            return b"".join(
                (
                    b'{"apiVersion":',
                    version,
                    b',"items":[',
                    b",".join(items),
                    b'],"kind":',
                    kind,
                    b',"metadata":',
                    listed,
                    b"}",
                )
            )
        # Items of built-in lists come without kind and apiVersion, as from the real server.
        head = b'{"kind":' + orjson.dumps(resource.kind) + b',"apiVersion":' + version + b","
        cut = len(head)
        bare = [b"{" + item[cut:] if item.startswith(head) else item for item in items]
        return b"".join(
            (
                b'{"kind":',
                kind,
                b',"apiVersion":',
                version,
                b',"metadata":',
                orjson.dumps(metadata),
                b',"items":[',
                b",".join(bare),
                b"]}",
            )
        )

    def full_page(self, page: Page) -> bytes:
        """A plain list whose items keep kind and apiVersion (the answer to a deletecollection)."""
        metadata: Json = {"resourceVersion": str(page.resource_version)}
        resource = self._resource
        items = [external(resource, version) for version in page.versions]
        if resource.custom:
            metadata = {"continue": "", **metadata}
        return orjson.dumps(
            {
                "kind": resource.list_kind,
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": items,
            }
        )

    def _table(self, versions: list[Version], metadata: Json) -> Json:
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._form.version}",
            "metadata": metadata,
            "columnDefinitions": columns.definitions(self._resource),
            "rows": self._rows(versions),
        }

    def _rows(self, versions: list[Version]) -> list[Json]:
        give = columns.cells(self._resource)
        now = self._engine.now()
        form = self._engine.operations.form
        return [
            {"cells": give(form(self._resource, version), now), "object": self._included(version)}
            for version in versions
        ]

    def _included(self, version: Version) -> Any:
        if self._include == "None":
            return None
        if self._include == "Object":
            return external(self._resource, version)
        return partial(self._resource, version, self._form.version)

    def event(self, kind: str, version: Version) -> bytes:
        """One line of a watch."""
        form = self._form.kind
        if not form:
            body = encode(self._engine, self._resource, version)
        elif form == "Table":
            table = self._table(
                [version], {"resourceVersion": version.object["metadata"]["resourceVersion"]}
            )
            if self._header_sent:
                table["columnDefinitions"] = None
            self._header_sent = True
            body = orjson.dumps(table)
        else:
            body = orjson.dumps(partial(self._resource, version, self._form.version))
        return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"

    def bookmark(self, document: Json) -> bytes:
        kind = self._form.kind
        if kind == "Table":
            document = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._form.version}",
                "metadata": document["metadata"],
                "columnDefinitions": None
                if self._header_sent
                else columns.definitions(self._resource),
                "rows": [],
            }
            self._header_sent = True
        elif kind:
            document = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{self._form.version}",
                "metadata": document["metadata"],
            }
        return orjson.dumps({"type": "BOOKMARK", "object": document}) + b"\n"
