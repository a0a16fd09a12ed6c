"""The HTTP server as a bare ASGI application.

Each request is authenticated, authorised (before anything about the resource or the body is
looked at), dispatched by verb, and answered in the form asked for. There is no framework between
the socket and the engine: thousands of writes a second pass here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import orjson

from penstock_cluster.apiserver import bodies, logs, parameters, protobuf, reviews
from penstock_cluster.apiserver.impersonation import impersonated
from penstock_cluster.apiserver.lists import Page, read_page
from penstock_cluster.apiserver.negotiation import PROTOBUF, Form, negotiate
from penstock_cluster.apiserver.outside import Outside
from penstock_cluster.apiserver.paths import Target
from penstock_cluster.apiserver.representation import Writer
from penstock_cluster.apiserver.request import (
    JSON_TYPE,
    TEXT_TYPE,
    AsgiApp,
    Headers,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    StreamReply,
)
from penstock_cluster.apiserver.watching import WatchStream
from penstock_cluster.registry import ApiError, Engine, errors
from penstock_cluster.registry.call import Call
from penstock_cluster.registry.deletion import Deleted
from penstock_cluster.registry.errors import Json
from penstock_cluster.registry.rbac import Attributes, explain
from penstock_cluster.registry.resource import Resource
from penstock_cluster.registry.shape import Shape
from penstock_cluster.registry.store import Version
from penstock_cluster.registry.subresources import SUCCESS, not_available
from penstock_cluster.registry.tokens import TokenError

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
_logger = logging.getLogger(__name__)


class Application:
    """The ASGI application over one engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        address: str = "127.0.0.1",
        mounts: Mapping[str, AsgiApp] | None = None,
    ) -> None:
        self.engine = engine
        #: Other applications under a path prefix, for administrators only.
        self._mounts = dict(mounts or {})
        self._outside = Outside(engine, address)
        self._closing = False

    def close(self) -> None:
        """End all watches."""
        self._closing = True
        self.engine.close_watches()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        request = Request(scope, receive)
        call: Call | None = None
        try:
            self._authenticate(request, scope["headers"])
            mounted = self._mounted(request)
            if mounted is not None:
                await mounted(scope, receive, send)
                return
            refusal = None
            if self.engine.interceptor is not None:
                refusal = await self.engine.interceptor.on_request(request.facts())
                if refusal is not None and not _is_lost_watch(request, refusal):
                    raise refusal
            reply: Reply | StreamReply
            if request.target.resource:
                self._authorize(request)
                call = Call(request.user, "", self.engine.timestamp(), verb=request.target.verb)
                reply = await self._resource(request, call)
                if refusal is not None and isinstance(reply, StreamReply) and reply.watch:
                    reply.watch.fail(refusal)
            else:
                reply = self._outside.answer(request)
        except ApiError as error:
            reply = _refusal(error)
        except Exception:
            # One broken request must not take the server down; the fault is in the log.
            _logger.exception("%s %s failed", request.method, request.target.path)
            reply = _refusal(errors.internal("the request failed; see the server's log"))
        if isinstance(reply, StreamReply):
            await self._stream(request, reply, send)
            return
        # A reply without a body has no type.
        headers: Headers = [(b"content-type", reply.content_type)] if reply.body else []
        if reply.status != 204:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        headers.append((b"cache-control", b"no-cache, private"))
        if reply.headers:
            headers.extend(reply.headers)
        if call is not None and call.warnings:
            headers.extend((b"warning", _warning(text)) for text in call.warnings)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        body = b"" if request.method == "HEAD" else reply.body
        await send({"type": "http.response.body", "body": body})

    def _mounted(self, request: Request) -> AsgiApp | None:
        """The application mounted at the request's path; :class:`ApiError` 401 or 403."""
        for prefix, app in self._mounts.items():
            path = request.target.path
            if path == prefix or path.startswith(f"{prefix}/"):
                if "system:masters" not in request.user.groups:
                    raise errors.forbidden_path(request.user.name, request.method.lower(), path)
                return app
        return None

    # Who, and whether

    def _authenticate(self, request: Request, headers: Headers) -> None:
        token = b""
        acts_as_another = False
        for name, value in headers:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    token = b""
                token = token.strip()
            elif name == b"accept":
                request.accept = value.decode("latin-1")
            elif name == b"content-type":
                request.content_type = value.decode("latin-1")
            elif name == b"user-agent":
                request.user_agent = value.decode("latin-1")
            elif name.startswith(b"impersonate-"):
                acts_as_another = True
        if token:
            try:
                request.user = self.engine.tokens.user_of(token.decode("latin-1"))
            except TokenError:
                raise errors.unauthorized() from None
        if acts_as_another:
            request.user = impersonated(request.user, headers, self.engine.authorizer)

    def _authorize(self, request: Request) -> None:
        target = request.target
        wanted = Attributes(
            target.verb, target.group, target.resource, target.subresource, target.namespace,
            target.name,
        )  # fmt: skip
        if not self.engine.authorizer.allowed(request.user, wanted):
            name = errors.ResourceName(target.group, target.resource, "")
            raise errors.forbidden(name, target.name, explain(request.user, wanted))

    # Resources

    async def _resource(self, request: Request, call: Call) -> Reply | StreamReply:
        resource = self._find(request)
        target = request.target
        if not resource.namespaced and target.namespace:
            # The namespace of a Namespace's own path is its name: only roles look at it.
            target = request.target = replace(target, namespace="")
        if resource.custom:
            self._check_custom_method(resource, request)
        else:
            self._check_core_method(resource, request)
        verb = target.verb
        if verb == "get":
            return await self._get(resource, request)
        if verb == "list":
            return await self._list(resource, request)
        if verb == "watch":
            return self._watch(resource, request)
        if verb == "create":
            return await self._create(resource, request, call)
        if verb == "update":
            return await self._update(resource, request, call)
        if verb == "patch":
            return await self._patch(resource, request, call)
        if verb == "delete":
            return await self._delete(resource, request, call)
        if verb == "deletecollection":
            return await self._delete_collection(resource, request, call)
        raise errors.method_not_allowed()

    def _find(self, request: Request) -> Resource:
        target = request.target
        registry = self.engine.registry
        resource = registry.get(target.group, target.version, target.resource)
        if resource is None:
            served = registry.in_version(target.group, target.version)
            if served and not served[0].custom:
                raise errors.resource_not_found()
            raise errors.page_not_found()
        missing_place = (
            resource.namespaced
            and not target.namespace
            and (target.name or target.verb == "create")
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

    def _check_core_method(self, resource: Resource, request: Request) -> None:
        target = request.target
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

    def _check_custom_method(self, resource: Resource, request: Request) -> None:
        target = request.target
        if target.subresource:
            if target.subresource not in resource.subresources:
                raise errors.not_found(resource.name, target.name)
            if target.verb not in ("get", "update", "patch"):
                raise errors.method_not_allowed(target.verb, resource.name)
        elif not target.name and target.verb in ("update", "patch"):
            raise errors.bad_request("name must be provided")

    def _writer(self, resource: Resource, request: Request) -> Writer:
        form = negotiate(request.accept) if request.accept else Form()
        return Writer(self.engine, resource, form, request.query.get("includeObject", ""))

    def _reply(self, writer: Writer, version: Version, status: int = 200) -> Reply:
        return Reply(writer.one(version), status, writer.content_type.encode())

    # Reading

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

    async def _stream(self, request: Request, reply: StreamReply, send: Send) -> None:
        headers = [(b"content-type", reply.content_type), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # An empty piece makes the headers leave before the first event.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        watch = reply.watch
        if watch is not None:
            self.engine.open_watches.add(watch)
        sender = asyncio.ensure_future(_send_pieces(reply.pieces, send))
        listener = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
            if sender.done():
                sender.result()
                await send({"type": "http.response.body", "body": b""})
        finally:
            for task in (sender, listener):
                task.cancel()
            await asyncio.gather(sender, listener, return_exceptions=True)
            if watch is not None:
                self.engine.open_watches.discard(watch)
                watch.close()

    # Writing

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
            return self._answer(resource, request, call, document)
        version = self.engine.operations.create(
            resource, target.namespace, document, call, target.name
        )
        return self._reply(writer, version, 201)

    def _answer(self, resource: Resource, request: Request, call: Call, document: Json) -> Reply:
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
            resource, target.namespace, target.name, target.subresource, kind, body, call,
            force=force,
        )  # fmt: skip
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


def _is_lost_watch(request: Request, refusal: ApiError) -> bool:
    """A watch whose version is gone is answered with 200 and one ERROR event."""
    return request.target.verb == "watch" and refusal.is_gone


def _gone(resource: Resource, deleted: Deleted) -> Json:
    details: Json = {"name": deleted.version.key[1]}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    details["uid"] = deleted.version.uid
    return {**SUCCESS, "details": details}


def _refusal(error: ApiError) -> Reply:
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    if error.text is not None:
        return Reply(error.text.encode(), error.code, TEXT_TYPE, headers)
    if error.media_type == PROTOBUF:
        body = protobuf.encode_status(error.status)
        return Reply(body, error.code, PROTOBUF.encode(), headers)
    return Reply(orjson.dumps(error.status), error.code, JSON_TYPE, headers)


def _warning(text: str) -> bytes:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode()


async def _send_pieces(pieces: AsyncIterator[bytes], send: Send) -> None:
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
