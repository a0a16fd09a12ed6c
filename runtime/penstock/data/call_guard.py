"""The one place where calls inside a job are let in: Starlette handlers that need the token.

Who cannot prove to hold it (`penstock.data.call_proof`) is refused before a byte of the body is
read; a handler is given a body that is what its caller sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from penstock.data.call_proof import CLOCK_HEADER, REPLY_HEADER, CallChecker, ProvenCall
from penstock.data.protocol import ProtocolError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    Handler = Callable[[Request], Awaitable[Response]]

REFUSAL = "the job's token is missing or wrong"
_BY_GROUP: Final = "penstock.by_group"


def guard_calls(
    token: str, max_bytes: int, refusal: str = REFUSAL, group_token: str = ""
) -> Callable[[Handler], Handler]:
    """What makes a handler one for calls of the job, or of its share group, alone.

    Args:
        token: the job's.
        max_bytes: what a call's body has at most.
        refusal: what is said to somebody without the token.
        group_token: the share group's, whose holders may call as well; empty: nobody else may.
            `by_group` tells a handler of whom a call is.
    """
    from starlette.responses import PlainTextResponse

    own = CallChecker(token)
    checkers = [own, CallChecker(group_token)] if group_token else [own]

    def guard(handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            said = request.headers.get("authorization", "")
            for checker in checkers:
                call = checker.check(request.method, _target(request), said)
                if call is not None:
                    break
            else:
                return PlainTextResponse(refusal, 401)
            request.scope[_BY_GROUP] = checker is not own
            response = await _answer(handler, request, call, max_bytes)
            if call.clock is not None:
                response.headers[CLOCK_HEADER] = call.clock
            proof = checker.prove(call, response.status_code, bytes(response.body))
            response.headers[REPLY_HEADER] = proof
            return response

        return guarded

    return guard


def by_group(request: Request) -> bool:
    """Whether a call that was let in is one of the share group, and not one of the job."""
    return bool(request.scope.get(_BY_GROUP))


async def _answer(handler: Handler, request: Request, call: ProvenCall, max_bytes: int) -> Response:
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

    if call.clock is not None:
        return PlainTextResponse("a call that was made long ago, or that was made before", 401)
    try:
        body = await read_body(request, max_bytes)
    except ProtocolError as error:
        return PlainTextResponse(str(error), 400)
    if hashlib.sha256(body).hexdigest() != call.body_digest:
        return PlainTextResponse("a call whose body was changed on the way", 400)
    return await handler(Request(request.scope, _replaying(body, request)))


def _target(request: Request) -> str:
    """Path and query as the caller sent them."""
    scope = request.scope
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return (path + b"?" + query if query else path).decode("latin-1")


def _replaying(body: bytes, request: Request) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    given = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await request.receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def read_body(request: Request, max_bytes: int) -> bytes:
    """All that a caller sent.

    Raises:
        ProtocolError: it is too much, or the caller left.
    """
    from starlette.requests import ClientDisconnect

    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise ProtocolError(f"more than {max_bytes} bytes in one message")
            chunks.append(chunk)
    except ClientDisconnect as error:  # a program that ends, as any may
        raise ProtocolError("the caller left within its message") from error
    return b"".join(chunks)
