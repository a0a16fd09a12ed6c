"""Paths outside of resources: discovery, OpenAPI, health, metrics, version."""

from __future__ import annotations

import orjson

from penstock_cluster.apiserver import discovery
from penstock_cluster.apiserver.content.negotiation import Form, negotiate
from penstock_cluster.apiserver.openapi import OpenApi
from penstock_cluster.apiserver.request import JSON_TYPE, TEXT_TYPE, Reply, Request
from penstock_cluster.registry import Engine
from penstock_cluster.registry.admission.rbac import Attributes
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json

_HEALTH = ("healthz", "livez", "readyz")


class Outside:
    """Answers what is not about a resource; discovery documents are kept until a kind changes."""

    def __init__(self, engine: Engine, address: str) -> None:
        self.engine = engine
        self.openapi = OpenApi(engine.registry, engine.types)
        self._address = address
        self._discovery: dict[tuple[str, str], bytes] = {}
        self._discovery_revision = -1

    def answer(self, request: Request) -> Reply:
        path = request.target.path
        wanted = Attributes(request.target.verb, path=path)
        if not self.engine.authorizer.allowed(request.user, wanted):
            raise errors.forbidden_path(request.user.name, wanted.verb, path)
        if request.method not in ("GET", "HEAD"):
            raise errors.page_not_found()
        parts = [part for part in path.split("/") if part]
        head = parts[0] if parts else ""
        if head in _HEALTH:
            return Reply(b"ok", content_type=TEXT_TYPE)
        if head == "openapi":
            return self._openapi(parts)
        if head == "metrics":
            return Reply(self._metrics(), content_type=b"text/plain; version=0.0.4")
        if head == "version" and len(parts) == 1:
            return Reply(orjson.dumps(discovery.version_info()))
        return self._discover(request, parts)

    def _discover(self, request: Request, parts: list[str]) -> Reply:
        registry = self.engine.registry
        form = negotiate(request.accept) if request.accept else Form()
        if self._discovery_revision != registry.revision:
            self._discovery.clear()
            self._discovery_revision = registry.revision
        aggregated = form.kind == "APIGroupDiscoveryList" and parts in (["api"], ["apis"])
        cache_key = (request.target.path, form.version if aggregated else "")
        body = self._discovery.get(cache_key)
        if body is None:
            document = self._discovery_document(parts, form.version if aggregated else "")
            if document is None:
                raise errors.page_not_found()
            body = self._discovery[cache_key] = orjson.dumps(document)
        if aggregated:
            kind = f";g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
            return Reply(body, content_type=JSON_TYPE + kind.encode())
        return Reply(body)

    def _discovery_document(self, parts: list[str], aggregated: str) -> Json | None:
        registry = self.engine.registry
        if not parts:
            return discovery.root_paths(registry)
        if parts == ["api"]:
            if aggregated:
                return discovery.aggregated(registry, core=True, version=aggregated)
            return discovery.api_versions(self._address)
        if parts == ["apis"]:
            if aggregated:
                return discovery.aggregated(registry, core=False, version=aggregated)
            return discovery.group_list(registry)
        if parts[0] == "api" and len(parts) == 2:
            return discovery.resource_list(registry, "", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            return discovery.one_group(registry, parts[1])
        if parts[0] == "apis" and len(parts) == 3 and parts[1]:
            return discovery.resource_list(registry, parts[1], parts[2])
        return None

    def _openapi(self, parts: list[str]) -> Reply:
        if parts[1:] == ["v2"]:
            return Reply(self.openapi.second())
        if parts[1:] == ["v3"]:
            return Reply(self.openapi.index(), content_type=TEXT_TYPE)
        if len(parts) > 2 and parts[1] == "v3":
            document = self.openapi.document("/".join(parts[2:]))
            if document is not None:
                return Reply(document)
            return Reply(b"", 404, TEXT_TYPE)
        raise errors.page_not_found()

    def _metrics(self) -> bytes:
        store = self.engine.store
        lines = [
            "# TYPE apiserver_storage_objects gauge",
            *(
                f'apiserver_storage_objects{{resource="{table.name}"}} {len(table.items)}'
                for table in store.tables()
            ),
            "# TYPE apiserver_registered_watchers gauge",
            f"apiserver_registered_watchers {len(self.engine.open_watches)}",
            "# TYPE apiserver_resource_version counter",
            f"apiserver_resource_version {store.number}",
        ]
        return ("\n".join(lines) + "\n").encode()
