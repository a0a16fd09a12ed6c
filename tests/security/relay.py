"""Somebody on the path between two ends of a connection, who reads and changes what goes by."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Self

from penstock.data.transport.handshake import HELLO, REFUSED

TAG_BYTES: Final = 16
_PRELUDE: Final = struct.Struct("<4sBxxxIQ")


@dataclass(frozen=True)
class Passing:
    """A frame that goes by, in the pieces that it has on the wire."""

    caller: bool  # whether it comes from the end that made the connection
    prelude: bytes
    header: bytes
    head_tag: bytes = b""
    body: bytes = b""
    body_tag: bytes = b""

    @property
    def kind(self) -> int:
        """What message it is."""
        return self.prelude[4]

    def __bytes__(self) -> bytes:
        return self.prelude + self.header + self.head_tag + self.body + self.body_tag

    def flipped(self, piece: str, at: int, bit: int = 0) -> Self:
        """The same frame with one bit of a piece changed."""
        changed = bytearray(getattr(self, piece))
        changed[at] ^= 1 << bit
        return replace(self, **{piece: bytes(changed)})


Change = Callable[[Passing], bytes]


@dataclass
class Relay:
    """Passes connections on to ``target``, each frame as ``change`` gives it; keeps all it saw."""

    target: str
    change: Change = bytes
    seen: bytearray = field(default_factory=bytearray)
    raw: bool = False  # passes on what comes without looking for frames
    edit: Callable[[bytes], bytes] = bytes  # of what is raw
    _sockets: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> str:
        """Where it listens."""
        return "{}:{}".format(*self._listener.getsockname()[:2])

    def start(self) -> None:
        """Take connections."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all of them."""
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                listener = socket.create_connection((host, int(port)))
                self._sockets += [caller, listener]
                for source, sink, from_caller in (
                    (caller, listener, True),
                    (listener, caller, False),
                ):
                    threading.Thread(
                        target=self._pass, args=(source, sink, from_caller), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, sink: socket.socket, from_caller: bool) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                if self.raw:
                    data = source.recv(1 << 16)
                    if not data:
                        break
                    self.seen += data
                    sink.sendall(self.edit(data))
                else:
                    passing = _frame(source, from_caller)
                    self.seen += bytes(passing)
                    sink.sendall(self.change(passing))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _frame(source: socket.socket, from_caller: bool) -> Passing:
    prelude = _exactly(source, _PRELUDE.size)
    _, kind, header_bytes, body_bytes = _PRELUDE.unpack(prelude)
    tag = 0 if HELLO <= kind <= REFUSED else TAG_BYTES  # the handshake itself has none
    header, head_tag = _exactly(source, header_bytes), _exactly(source, tag)
    if not body_bytes:
        return Passing(from_caller, prelude, header, head_tag)
    body, body_tag = _exactly(source, body_bytes), _exactly(source, tag)
    return Passing(from_caller, prelude, header, head_tag, body, body_tag)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = source.recv(count, socket.MSG_WAITALL) if count else b""
    if len(found) < count:
        raise EOFError
    return found


@contextmanager
def relaying(target: str, change: Change = bytes, *, raw: bool = False) -> Iterator[Relay]:
    """A relay to an address, for the length of the block."""
    relay = Relay(target, change, raw=raw)
    relay.start()
    try:
        yield relay
    finally:
        relay.close()


@dataclass
class Once:
    """Changes the first frame of a kind, after ``after`` others of it, and no more."""

    kind: int
    change: Change
    after: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, passing: Passing) -> bytes:
        if passing.kind != self.kind or self.done.is_set():
            return bytes(passing)
        if self.after:
            self.after -= 1
            return bytes(passing)
        self.done.set()
        return self.change(passing)


class Swap:
    """Holds a frame of a kind back until the next one of it has gone by."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.done = threading.Event()
        self._held: bytes | None = None

    def __call__(self, passing: Passing) -> bytes:
        if passing.kind != self.kind or self.done.is_set():
            return bytes(passing)
        if self._held is None:
            self._held = bytes(passing)
            return b""
        self.done.set()
        return bytes(passing) + self._held


TAMPERING: Final[dict[str, Change]] = {
    "magic": lambda one: bytes(one.flipped("prelude", 0)),
    "kind": lambda one: bytes(one.flipped("prelude", 4)),
    "padding": lambda one: bytes(one.flipped("prelude", 6)),
    "length of the header": lambda one: bytes(one.flipped("prelude", 8)),
    "length of the body": lambda one: bytes(one.flipped("prelude", 12)),
    "first byte of the header": lambda one: bytes(one.flipped("header", 0)),
    "middle of the header": lambda one: bytes(one.flipped("header", len(one.header) // 2)),
    "last byte of the header": lambda one: bytes(one.flipped("header", -1)),
    "tag of the header": lambda one: bytes(one.flipped("head_tag", 5)),
    "first byte of the body": lambda one: bytes(one.flipped("body", 0)),
    "middle of the body": lambda one: bytes(one.flipped("body", len(one.body) // 2, 6)),
    "last byte of the body": lambda one: bytes(one.flipped("body", -1, 7)),
    "tag of the body": lambda one: bytes(one.flipped("body_tag", -1)),
    "header anew": lambda one: bytes(replace(one, header=bytes(len(one.header)))),
    "body anew": lambda one: bytes(replace(one, body=bytes(len(one.body)))),
    "repeated": lambda one: bytes(one) * 2,
    "left out": lambda _: b"",
    "cut short": lambda one: bytes(one)[:-1],
    "a byte more": lambda one: bytes(one) + b"\0",
}
"""What a relay does to one frame, by name."""
