"""What is done with a request for a kind or an object, by verb.

From the body, the query and the headers to an operation of the engine, and from its outcome to the
form that was asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import orjson

from penstock_cluster.apiserver import reviews, routing
from penstock_cluster.apiserver.content import bodies, logs, parameters, protobuf
from penstock_cluster.apiserver.content.lists import Page, read_page
from penstock_cluster.apiserver.content.negotiation import PROTOBUF, Form, negotiate
from penstock_cluster.apiserver.content.representation import Writer
from penstock_cluster.apiserver.paths import Target
from penstock_cluster.apiserver.request import (
    JSON_TYPE,
    TEXT_TYPE,
    Reply,
    Request,
    StreamReply,
)
from penstock_cluster.apiserver.watching import WatchStream
from penstock_cluster.registry import Engine
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.shape import Shape
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.operations.deletion import Deleted
from penstock_cluster.registry.subresources import SUCCESS, not_available

_PATCH_KINDS = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_DELETE_OPTIONS = f"{_META}DeleteOptions"
#: Types of the bodies that paths below an object take.
_SUBRESOURCE_TYPES = {
    "Binding": "io.k8s.api.core.v1.Binding",
    "Eviction": "io.k8s.api.policy.v1.Eviction",
    "Scale": "io.k8s.api.autoscaling.v1.Scale",
    "TokenRequest": "io.k8s.api.authentication.v1.TokenRequest",
}

_WRITES: Final = {"create", "update", "patch", "delete", "deletecollection"}


class Handlers:
    """Answers requests for kinds and objects of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._closing = False

    def close(self) -> None:
        """End all watches, and those to come at once."""
        self._closing = True
        self.engine.close_watches()

    async def answer(self, request: Request, call: Call) -> Reply | StreamReply:
        """The answer to a request for a kind or an object; :class:`ApiError`."""
        target = request.target
        resource = routing.find(self.engine.registry, target)
        if not resource.namespaced and target.namespace:
            # The namespace of a Namespace's own path is its name: only roles look at it.
            target = request.target = replace(target, namespace="")
        routing.check_method(resource, target)
        verb = target.verb
        keeps_nothing = resource.kind.endswith("Review") or target.subresource == "token"
        writes = verb in _WRITES and not keeps_nothing
        if writes and (why := self.engine.unsaved):
            raise errors.service_unavailable(f"nothing can be written now: {why}")
        reply: Reply | StreamReply
        if verb == "get":
            reply = await self._get(resource, request)
        elif verb == "list":
            reply = await self._list(resource, request)
        elif verb == "watch":
            reply = self._watch(resource, request)
        elif verb == "create":
            reply = await self._create(resource, request, call)
        elif verb == "update":
            reply = await self._update(resource, request, call)
        elif verb == "patch":
            reply = await self._patch(resource, request, call)
        elif verb == "delete":
            reply = await self._delete(resource, request, call)
        elif verb == "deletecollection":
            reply = await self._delete_collection(resource, request, call)
        else:
            raise errors.method_not_allowed()
        if writes and (why := await self.engine.saved()):
            raise errors.service_unavailable(f"what was written is not saved yet: {why}")
        return reply

    def _writer(self, resource: Resource, request: Request) -> Writer:
        form = negotiate(request.accept) if request.accept else Form()
        return Writer(self.engine, resource, form, request.query.get("includeObject", ""))

    def _reply(self, writer: Writer, version: Version, status: int = 200) -> Reply:
        return Reply(writer.one(version), status, writer.content_type.encode())

    async def _get(self, resource: Resource, request: Request) -> Reply | StreamReply:
        target = request.target
        if target.subresource == "log":
            return await self._log(resource, request)
        if target.subresource in ("exec", "attach", "portforward", "proxy"):
            raise not_available(resource, target.subresource)
        writer = self._writer(resource, request)
        version = self.engine.subresources.get(
            resource, target.namespace, target.name, target.subresource
        )
        if target.subresource == "scale":
            return Reply(writer.document(version.object))
        return self._reply(writer, version)

    async def _log(self, resource: Resource, request: Request) -> Reply | StreamReply:
        target = request.target
        version = self.engine.operations.get(resource, target.namespace, target.name)
        query = logs.log_query(request.query)
        pieces = await logs.open_log(self.engine, version.object, query)
        if pieces is None:
            return Reply(b"", 204, TEXT_TYPE)
        return StreamReply(pieces, b"text/plain")

    async def _list(self, resource: Resource, request: Request) -> Reply:
        writer = self._writer(resource, request)
        options = parameters.list_options(request.query, watching=False)
        page = await read_page(self.engine, resource, request.target.namespace, options)
        return Reply(writer.page(page), 200, writer.content_type.encode())

    def _watch(self, resource: Resource, request: Request) -> StreamReply:
        target = request.target
        writer = self._writer(resource, request)
        query = request.query
        if target.name:
            query = {**query, "fieldSelector": f"metadata.name={target.name}"}
        options = parameters.list_options(query, watching=True)
        stream = WatchStream(
            self.engine, resource, target.namespace, options, writer, request.facts()
        )
        stream.open()
        if self._closing:
            stream.finish()
        return StreamReply(stream.pieces(), JSON_TYPE, stream)

    def _options(self, request: Request, call: Call, kind: str, *, apply: bool = False) -> bool:
        """Take the write options into ``call``; the result is ``force``."""
        options = parameters.write_options(request.query, request.user_agent, kind, apply=apply)
        call.manager = options.manager
        call.dry_run = options.dry_run
        call.field_validation = options.field_validation
        return options.force

    async def _document(
        self, request: Request, call: Call, resource: Resource, kind: str, *, needs_kind: bool
    ) -> Json:
        text = await request.body()
        if bodies.media_type(request.content_type) == PROTOBUF and not resource.custom:
            return protobuf.decode_object(text, self._shape_of(resource, kind), kind)
        document = bodies.decode_object(text, request.content_type, kind, needs_kind=needs_kind)
        call.size = len(text)
        if call.field_validation != "Ignore" and not request.content_type.endswith("yaml"):
            twice = bodies.duplicate_fields(text, document)
            if twice:
                listing = [f'duplicate field "{path}"' for path in twice]
                if call.field_validation == "Strict":
                    raise errors.bad_request(
                        f'{kind} in version "{request.target.version}" cannot be handled as a '
                        f"{kind}: strict decoding error: {', '.join(listing)}"
                    )
                call.warnings.extend(listing)
        return document

    def _shape_of(self, resource: Resource, kind: str) -> Shape:
        if kind == resource.kind:
            return resource.shape
        return self.engine.types.shape(_SUBRESOURCE_TYPES[kind])

    async def _create(self, resource: Resource, request: Request, call: Call) -> Reply:
        target = request.target
        self._options(request, call, "CreateOptions")
        writer = self._writer(resource, request)
        if target.subresource:
            kind = resource.subresources[target.subresource].kind
            document = await self._document(request, call, resource, kind, needs_kind=False)
            reply = self.engine.subresources.create(
                resource, target.namespace, target.name, target.subresource, document, call
            )
            return Reply(writer.document(reply), 201, writer.content_type.encode())
        document = await self._document(
            request, call, resource, resource.kind, needs_kind=resource.custom
        )
        if not resource.stored:
            return self._create_unstored(resource, request, call, document)
        version = self.engine.operations.create(
            resource, target.namespace, document, call, target.name
        )
        return self._reply(writer, version, 201)

    def _create_unstored(
        self, resource: Resource, request: Request, call: Call, document: Json
    ) -> Reply:
        """Create something that is not stored: a review, or a binding by its old path."""
        namespace = request.target.namespace
        if resource.kind == "Binding":
            pods = self.engine.registry.named("pods")
            reply = self.engine.subresources.bind(pods, namespace, "", document, call)
        else:
            reply = reviews.answer(self.engine, resource, document, request.user, namespace)
        return Reply(orjson.dumps(reply), 201)

    async def _update(self, resource: Resource, request: Request, call: Call) -> Reply:
        target = request.target
        self._options(request, call, "UpdateOptions")
        writer = self._writer(resource, request)
        kind = resource.kind
        if target.subresource:
            kind = resource.subresources[target.subresource].kind
        needs_kind = resource.custom and target.subresource != "scale"
        document = await self._document(request, call, resource, kind, needs_kind=needs_kind)
        version, created = self.engine.subresources.update(
            resource, target.namespace, target.name, target.subresource, document, call
        )
        return self._written(writer, version, target, created=created)

    async def _patch(self, resource: Resource, request: Request, call: Call) -> Reply:
        target = request.target
        kind = _PATCH_KINDS.get(bodies.media_type(request.content_type))
        if kind is None or (kind == "strategic" and resource.custom):
            accepted = ["application/json-patch+json", "application/merge-patch+json"]
            if not resource.custom:
                accepted.append("application/strategic-merge-patch+json")
            raise errors.unsupported_media_type([*accepted, "application/apply-patch+yaml"])
        force = self._options(request, call, "PatchOptions", apply=kind == "apply")
        writer = self._writer(resource, request)
        text = await request.body()
        call.size = len(text)
        if kind == "apply":
            body = bodies.parse_yaml(text)
        else:
            try:
                body = bodies.parse_json(text)
            except ValueError as error:
                raise errors.bad_request(f"error decoding patch: {error}") from None
        version, created = self.engine.subresources.patch(
            resource,
            target.namespace,
            target.name,
            target.subresource,
            kind,
            body,
            call,
            force=force,
        )
        return self._written(writer, version, target, created=created)

    def _written(self, writer: Writer, version: Version, target: Target, *, created: bool) -> Reply:
        status = 201 if created else 200
        if target.subresource == "scale":
            return Reply(writer.document(version.object), status)
        return self._reply(writer, version, status)

    async def _delete_body(self, request: Request) -> Json | None:
        text = await request.body()
        if not text:
            return None
        if bodies.media_type(request.content_type) == PROTOBUF:
            shape = self.engine.types.shape(_DELETE_OPTIONS)
            return protobuf.decode_object(text, shape, "DeleteOptions")
        return bodies.decode_object(text, request.content_type, "DeleteOptions", needs_kind=False)

    async def _delete(self, resource: Resource, request: Request, call: Call) -> Reply:
        target = request.target
        body = await self._delete_body(request)
        options, call.dry_run = parameters.delete_options(request.query, body)
        writer = self._writer(resource, request)
        deleted = self.engine.operations.delete(
            resource, target.namespace, target.name, options, call
        )
        if deleted.gone and resource.plural != "pods":
            return Reply(writer.document(_gone(resource, deleted)))
        return self._reply(writer, deleted.version)

    async def _delete_collection(self, resource: Resource, request: Request, call: Call) -> Reply:
        body = await self._delete_body(request)
        options, call.dry_run = parameters.delete_options(request.query, body)
        writer = self._writer(resource, request)
        selection = parameters.list_options(request.query, watching=False)
        page = await read_page(self.engine, resource, request.target.namespace, selection)
        found = self.engine.operations.delete_collection(resource, page.versions, options, call)
        return Reply(writer.full_page(Page(found, page.resource_version)))


def _gone(resource: Resource, deleted: Deleted) -> Json:
    details: Json = {"name": deleted.version.key[1]}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    details["uid"] = deleted.version.uid
    return {**SUCCESS, "details": details}
