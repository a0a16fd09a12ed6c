"""Who is at the other end: both sides prove that they hold the job's token, and never send it.

Each side sends a nonce and answers the other's with an HMAC over both nonces and its own role, so
that a proof can be used neither twice nor by the other side. Versions are compared first, because a
difference of versions is the likelier and the more useful thing to be told. What the listener finds
wrong it also says to the caller, so that the clear error is on both sides.

The caller sends first. All of it is over within `HANDSHAKE_SECONDS`, or the connection is.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from penstock.data.errors import FrameError, HandshakeError
from penstock.data.signature import same
from penstock.data.transport import frame

PROTOCOL_VERSION: Final = 3
HANDSHAKE_SECONDS: Final = 10.0
MAX_NAME: Final = 200
MAX_HEADER_BYTES: Final = 4096
"""Nobody who has yet to prove anything gets more memory than this."""

HELLO, CHALLENGE, PROOF, WELCOME, REFUSED = range(16, 21)
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Peer:
    """What the other end said about itself; its token was right."""

    name: str
    release: str
    same_host: bool = False


def release() -> str:
    """The release of Penstock that runs here."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"


def call(sock: socket.socket, token: str, name: str, *, same_host: bool = False) -> Peer:
    """The caller's side.

    Raises:
        HandshakeError: the listener refused, or failed to prove that it holds the token.
        FrameError: it went away or stalled.
    """
    frame.set_timeouts(sock, HANDSHAKE_SECONDS)
    nonce = secrets.token_bytes(16)
    frame.send(sock, HELLO, [PROTOCOL_VERSION, PYTHON, release(), name, nonce, same_host])
    version_there, python, release_there, theirs, proof, who = _expect(sock, CHALLENGE, 6)
    _compare(version_there, python, release_there)
    if not same(proof, _prove(token, b"listener", nonce, theirs)):
        frame.send(sock, REFUSED, "you hold another token than I do")
        raise HandshakeError("the other end does not hold this job's token: it is not of this job")
    frame.send(sock, PROOF, _prove(token, b"caller", theirs, nonce))
    _expect(sock, WELCOME, 0)
    return Peer(_text(who), _text(release_there), same_host)


def answer(sock: socket.socket, token: str, name: str) -> Peer:
    """The listener's side; raises as `call` does, and tells the caller why."""
    frame.set_timeouts(sock, HANDSHAKE_SECONDS)
    try:
        spoken, python, release_there, who, theirs, same_host = _expect(sock, HELLO, 6)
        _compare(spoken, python, release_there)
        if not isinstance(theirs, bytes) or len(theirs) != 16:
            raise HandshakeError("the other end's nonce is not 16 bytes")
        nonce = secrets.token_bytes(16)
        proof = _prove(token, b"listener", theirs, nonce)
        frame.send(sock, CHALLENGE, [PROTOCOL_VERSION, PYTHON, release(), nonce, proof, name])
        if not same(_expect(sock, PROOF, None), _prove(token, b"caller", nonce, theirs)):
            raise HandshakeError("the token of the other end is not this job's")
    except HandshakeError as error:
        _say(sock, str(error))
        raise
    frame.send(sock, WELCOME, [])
    return Peer(_text(who), _text(release_there), bool(same_host))


def _prove(token: str, role: bytes, nonce: bytes, other: bytes) -> bytes:
    return hmac.new(token.encode(), b"penstock data " + role + nonce + other, "sha256").digest()


def _compare(spoken: object, python: object, release_there: object) -> None:
    if spoken != PROTOCOL_VERSION:
        raise HandshakeError(
            f"protocol version {spoken!r} there (Penstock {_text(release_there)}) and "
            f"{PROTOCOL_VERSION} here (Penstock {release()}): run the same release of Penstock in "
            "training workers and data workers"
        )
    if python != PYTHON:
        raise HandshakeError(
            f"Python {_text(python)} there and {PYTHON} here: a pipeline can only be opened by the "
            "Python that packed it; use the same image for training workers and data workers"
        )


def _expect(sock: socket.socket, kind: int, fields: int | None) -> Any:
    try:
        received = frame.receive(sock, _nothing, MAX_HEADER_BYTES)
    except TimeoutError as error:
        raise HandshakeError("the other end said nothing in time") from error
    for descriptor in received.descriptors:  # nobody asked for them
        os.close(descriptor)
    if received.kind == REFUSED:
        raise HandshakeError(f"the other end refused: {_text(received.header)}")
    header = received.header
    malformed = fields is not None and (not isinstance(header, list) or len(header) != fields)
    if received.kind != kind or malformed:
        raise HandshakeError(f"message {received.kind} where {kind} of the handshake was due")
    return header


def _nothing(size: int) -> memoryview:
    raise FrameError(f"a body of {size} bytes in a handshake")


def _say(sock: socket.socket, why: str) -> None:
    try:
        frame.send(sock, REFUSED, why)
    except FrameError:
        return  # it is gone already: nobody is left to be told


def _text(value: object) -> str:
    return value[:MAX_NAME] if isinstance(value, str) else repr(value)[:MAX_NAME]
