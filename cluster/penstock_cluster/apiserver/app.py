"""The HTTP server as a bare ASGI application.

Each request is authenticated, authorised (before anything about the resource or the body is
looked at), dispatched by verb, and answered in the form asked for. There is no framework between
the socket and the engine: thousands of writes a second pass here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import orjson

from penstock_cluster.apiserver import watching
from penstock_cluster.apiserver.content import protobuf
from penstock_cluster.apiserver.content.negotiation import PROTOBUF
from penstock_cluster.apiserver.handlers import Handlers
from penstock_cluster.apiserver.impersonation import impersonated
from penstock_cluster.apiserver.nonresource_paths import Outside
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
from penstock_cluster.apiserver.transport import CERTIFIED_USER
from penstock_cluster.registry import ApiError, Engine
from penstock_cluster.registry.admission.rbac import Attributes, explain
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call, User
from penstock_cluster.registry.objects.field_selectors import selected_name
from penstock_cluster.registry.tokens import TokenError

logger = logging.getLogger(__name__)


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
        self._handlers = Handlers(engine)

    def close(self) -> None:
        """End all watches."""
        self._handlers.close()

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
            certified = scope.get("extensions", {}).get(CERTIFIED_USER, {}).get("user")
            self._authenticate(request, scope["headers"], certified)
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
                reply = await self._handlers.answer(request, call)
                if refusal is not None and isinstance(reply, StreamReply) and reply.watch:
                    reply.watch.fail(refusal)
            else:
                reply = self._outside.answer(request)
        except ApiError as error:
            reply = _refusal(error)
        except Exception:
            # One broken request must not take the server down; the fault is in the log.
            logger.exception("%s %s failed", request.method, request.target.path)
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

    def _authenticate(
        self, request: Request, headers: Headers, certified: User | None = None
    ) -> None:
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
        if certified is not None:
            request.user = certified  # before a token, as the real server does
        elif token:
            try:
                request.user = self.engine.tokens.user_of(token.decode("latin-1"))
            except TokenError:
                raise errors.unauthorized() from None
        if acts_as_another:
            request.user = impersonated(request.user, headers, self.engine.authorizer)

    def _authorize(self, request: Request) -> None:
        target = request.target
        name = target.name
        if not name and target.verb in ("list", "watch"):
            name = selected_name(request.query.get("fieldSelector", ""))
        wanted = Attributes(
            target.verb, target.group, target.resource, target.subresource, target.namespace, name
        )
        if not self.engine.authorizer.allowed(request.user, wanted):
            resource = errors.ResourceName(target.group, target.resource, "")
            raise errors.forbidden(resource, name, explain(request.user, wanted))

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
            if await _is_cut_off(sender, listener, watch):
                logger.info(
                    "%s reads its watch of %s too slowly: it is closed",
                    request.user_agent,
                    request.target.resource,
                )
                sender.cancel()
                self._forget(watch)
                sender = asyncio.ensure_future(_end(send))  # which waits for the watcher as well
                await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
            elif sender.done():
                sender.result()
                await _end(send)
        finally:
            for task in (sender, listener):
                task.cancel()
            await asyncio.gather(sender, listener, return_exceptions=True)
            self._forget(watch)

    def _forget(self, watch: watching.WatchStream | None) -> None:
        if watch is not None:
            self.engine.open_watches.discard(watch)
            watch.close()


def _is_lost_watch(request: Request, refusal: ApiError) -> bool:
    """A watch whose version is gone is answered with 200 and one ERROR event."""
    return request.target.verb == "watch" and refusal.is_gone


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


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})


async def _is_cut_off(
    sender: asyncio.Future[None],
    listener: asyncio.Future[None],
    watch: watching.WatchStream | None,
) -> bool:
    """Wait for the end of a stream; true if it has none because its watcher is too slow."""
    while True:
        done, _ = await asyncio.wait(
            (sender, listener),
            timeout=None if watch is None else watching.SLOW_SECONDS / 2,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if done:
            return False
        if watch is not None and watch.is_too_slow:
            return True


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
