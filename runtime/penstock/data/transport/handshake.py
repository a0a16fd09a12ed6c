"""Who is at the other end: both sides prove that they hold the job's token, and never send it.

Each side sends a nonce and answers the other's with an HMAC over all that both have said, nonces
included, and its own role, so that a proof can be used neither twice nor by the other side, and
nothing of it can have been changed on the way: neither a name nor how frames are to be sealed. Out
of the same come the keys of the connection's frames (`penstock.data.transport.seal`), except on a
Unix socket, which nobody else is on. A data worker of another job of the same share group says so,
which is under the proofs as well, and both then prove that they hold the group's token.

Versions are compared first, because a difference of versions is the likelier and the more useful
thing to be told. What the listener finds wrong it also says to the caller, so that the clear error
is on both sides.

The caller sends first. All of it is over within `HANDSHAKE_SECONDS`, or the connection is.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgpack

from penstock.data.errors import FrameError, HandshakeError
from penstock.data.keys import Purpose, derive_key
from penstock.data.signature import same
from penstock.data.stage_devices import CPU, CUDA
from penstock.data.transport import frame
from penstock.data.transport.codings import Coding, read_offer
from penstock.data.transport.seal import Seals, chosen, make_seals, offered

PROTOCOL_VERSION: Final = 9
HANDSHAKE_SECONDS: Final = 10.0
MAX_NAME: Final = 200
MAX_STAGE: Final = 1
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
    seals: Seals | None = None  # of the connection; None on a Unix socket
    by_group: bool = False  # the token was the share group's
    codings: tuple[Coding, ...] = ()  # in which a caller can send batches
    stage: int = 0  # of a caller that is a data worker; one that says none is of the first
    devices: frozenset[str] = frozenset({CPU})  # that it has


def release() -> str:
    """The release of Penstock that runs here."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"


def call(
    sock: socket.socket,
    token: str,
    name: str,
    *,
    same_host: bool = False,
    by_group: bool = False,
    codings: tuple[Coding, ...] = (),
    stage: int = 0,
    devices: Collection[str] = (CPU,),
    seconds: float = HANDSHAKE_SECONDS,
) -> Peer:
    """The caller's side, over within so many seconds.

    ``by_group``: the token is that of the share group. ``codings``: those in which it can send
    batches, if it is told which. ``stage``: of a data worker, and its ``devices``.

    Raises:
        HandshakeError: the listener refused, or failed to prove that it holds the token.
        FrameError: it went away or stalled.
    """
    deadline = time.monotonic() + seconds
    frame.set_timeouts(sock, seconds)
    offer = [] if _nearby(sock) else offered()
    named = [str(coding) for coding in codings]
    options = {"same_host": same_host, "seals": offer, "codings": named}
    if by_group:
        options["group"] = True
    if stage:
        options |= {"stage": stage, "devices": sorted(devices)}
    hello = [PROTOCOL_VERSION, PYTHON, release(), name, secrets.token_bytes(16), options]
    frame.send(sock, HELLO, hello)
    *said, proof = _expect(sock, deadline, CHALLENGE, 7)
    version_there, python, release_there, who, _, kind = said
    _compare(version_there, python, release_there)
    transcript = _transcript(hello, said)
    if not same(proof, _prove(token, b"listener", transcript)):
        frame.send(sock, REFUSED, "you hold another token than I do")
        raise HandshakeError(
            "the other end does not hold this job's token, or what the two said was changed on the "
            "way: it is not of this job"
        )
    frame.send(sock, PROOF, _prove(token, b"caller", transcript))
    _expect(sock, deadline, WELCOME, 0)
    seals = None
    if offer:
        seals = make_seals(chosen([kind]), token, transcript, caller=True)
    return Peer(_text(who), _text(release_there), same_host, seals, by_group)


def answer(sock: socket.socket, token: str, name: str, group_token: str = "") -> Peer:
    """The listener's side; raises as `call` does, and tells the caller why.

    ``group_token``: with which others of the share group may call; empty: they may not.
    """
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    frame.set_timeouts(sock, HANDSHAKE_SECONDS)
    try:
        hello = _expect(sock, deadline, HELLO, 6)
        spoken, python, release_there, who, theirs, options = hello
        _compare(spoken, python, release_there)
        if not isinstance(theirs, bytes) or len(theirs) != 16 or not isinstance(options, dict):
            raise HandshakeError("the other end's nonce is not 16 bytes, or its options no map")
        by_group = bool(options.get("group"))
        if by_group and not group_token:
            raise HandshakeError("a data worker of a share group, in which this job is not")
        token = group_token if by_group else token
        kind = None if _nearby(sock) else chosen(options.get("seals"))
        said = [PROTOCOL_VERSION, PYTHON, release(), name, secrets.token_bytes(16), kind]
        transcript = _transcript(hello, said)
        frame.send(sock, CHALLENGE, [*said, _prove(token, b"listener", transcript)])
        proof = _expect(sock, deadline, PROOF, None)
        if not same(proof, _prove(token, b"caller", transcript)):
            raise HandshakeError("the token of the other end is not this job's")
    except HandshakeError as error:
        _say(sock, str(error))
        raise
    frame.send(sock, WELCOME, [])
    seals = None if kind is None else make_seals(kind, token, transcript, caller=False)
    same_host, codings = bool(options.get("same_host")), read_offer(options.get("codings"))
    stage, devices = _read_stage(options)
    return Peer(
        _text(who), _text(release_there), same_host, seals, by_group, codings, stage, devices
    )


def _read_stage(options: dict[str, Any]) -> tuple[int, frozenset[str]]:
    """What a caller says of its stage; it has proved by then that it holds the token."""
    stage, said = options.get("stage", 0), options.get("devices", [CPU])
    known = [one for one in said if one in (CPU, CUDA)] if isinstance(said, list) else [CPU]
    return (stage if type(stage) is int and 0 <= stage <= MAX_STAGE else 0), frozenset(known)


def _nearby(sock: socket.socket) -> bool:
    """Whether the other end is on this machine, and the kernel alone between the two."""
    return sock.family == socket.AF_UNIX


def _transcript(hello: list[Any], said: list[Any]) -> bytes:
    """A digest of all that both have said; both have their own words from memory."""
    try:
        return hashlib.sha256(msgpack.packb([hello, said])).digest()
    except (ValueError, TypeError) as error:  # such as lists within lists without an end
        raise HandshakeError(f"words that make no sense: {error}") from error


def _prove(token: str, role: bytes, transcript: bytes) -> bytes:
    return hmac.new(derive_key(token, Purpose.HANDSHAKE), role + transcript, "sha256").digest()


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


def _expect(sock: socket.socket, deadline: float, kind: int, fields: int | None) -> Any:
    try:
        received = frame.receive(sock, _nothing, MAX_HEADER_BYTES, deadline)
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
