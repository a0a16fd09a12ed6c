"""The control channel of a group: how its members agree on each step before they reduce gradients.

Every step ends with one small exchange through the group's first member: each member says what it
consumed and whether it wants to leave, and all get the same verdict. The exchange is over plain
sockets rather than a collective of the training framework, because such a collective cannot be
interrupted: a member that stands still would hold all others until a time-out that must be longer
than the slowest step. Here everyone keeps asking `interrupted` while waiting. When the verdict has
come, all members have arrived, and the collective that follows takes only the transfer's time.

The leader greets whoever connects with a nonce, and is answered with a hello that proves, with a
key of the job over that nonce, one of the member's and the hello itself, that it is of the job.
Every message after that has a tag with keys of this connection (`penstock.data.transport.seal`), by
which the member knows its leader too; nothing is unpacked before its tag was right.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from penstock.base.listener import address_of, create_listener, split_address
from penstock.data.errors import FrameError
from penstock.data.keys import Purpose, derive_key
from penstock.data.signature import same
from penstock.data.transport.seal import TAG_BYTES, SealKind, Seals, make_seals
from penstock.job.protocol import PROTOCOL_VERSION

POLL_SECONDS: Final = 0.1
MAX_FRAME_BYTES: Final = 1 << 30
MAX_HELLO_BYTES: Final = 4096
HELLO_SECONDS: Final = 2.0
MAX_NEWCOMERS: Final = 64
MOMENT_SECONDS: Final = 0.25
"""What a newcomer has to say who it is when so many wait that nobody else is accepted."""
_LENGTH: Final = struct.Struct("<I")

Interrupted = Callable[[], bool]
Json = dict[str, Any]


class GroupBrokenError(Exception):
    """The group cannot go on: a member is gone, or the trainer says so.

    ``lost`` names the members, by their index, whose connection ended.
    """

    def __init__(self, message: str, lost: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class GroupEndedError(GroupBrokenError):
    """The trainer ended the group: it knows why, and forms the next one."""


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A connection that has not said yet who it is."""

    channel: Channel
    since: float


class Listener:
    """The listening socket of one session, open for its whole life at one address."""

    def __init__(self, host: str) -> None:
        self._socket = create_listener(host, 0)
        self._socket.setblocking(False)
        self.address = address_of(self._socket, host)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def accept(
        self, token: str, generation: int, size: int, interrupted: Interrupted, timeout: float
    ) -> Leader:
        """Take in the other ``size - 1`` members of a group.

        Connections with another token, generation or version are closed. Nobody who has not said
        who they are holds up others, or gets more memory than a hello needs.

        Raises:
            GroupBrokenError: interrupted, or not all came in time.
        """
        members: dict[int, Channel] = {}
        hellos: dict[int, Json] = {}
        waiting: dict[socket.socket, _Newcomer] = {}
        deadline = time.monotonic() + timeout
        try:
            while len(members) < size - 1:
                _check(interrupted, deadline, f"{len(members) + 1} of {size} members came")
                for connection in self._heard(waiting):
                    newcomer = waiting[connection]
                    try:
                        hello = newcomer.channel.take(MAX_HELLO_BYTES)
                    except GroupBrokenError:
                        waiting.pop(connection).channel.close()
                        continue
                    if hello is None:
                        continue
                    channel, index = waiting.pop(connection).channel, hello.get("index")
                    transcript = _transcript(channel.greeting, hello)
                    proven = _proves(hello.pop("proof", None), token, transcript)
                    if not proven or not _welcome(hello, generation, size) or index in members:
                        channel.close()
                        continue
                    assert isinstance(index, int)
                    channel.peer = index
                    channel.secure(_seals(token, transcript, member=False))
                    members[index], hellos[index] = channel, hello
        except GroupBrokenError:
            for channel in members.values():
                channel.close()
            raise
        finally:
            for newcomer in waiting.values():
                newcomer.channel.close()
        return Leader(members, hellos)

    def _heard(self, waiting: dict[socket.socket, _Newcomer]) -> list[socket.socket]:
        """Accept who comes, end who says nothing for too long; who has said something now."""
        now = time.monotonic()
        while waiting:  # in the order in which they came
            connection, newcomer = next(iter(waiting.items()))
            is_full = len(waiting) >= MAX_NEWCOMERS
            if now - newcomer.since < (MOMENT_SECONDS if is_full else HELLO_SECONDS):
                break
            del waiting[connection]
            newcomer.channel.close()
        listening = [self._socket] if len(waiting) < MAX_NEWCOMERS else []
        heard = _readable([*listening, *waiting])
        if self._socket in heard:
            heard.remove(self._socket)
            self._accept_one(waiting)
        return heard

    def _accept_one(self, waiting: dict[socket.socket, _Newcomer]) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(POLL_SECONDS)  # no descriptors are left, for instance
            return
        channel = Channel(connection)
        try:
            channel.send({"greeting": channel.greeting}, lambda: False, timeout=POLL_SECONDS)
        except GroupBrokenError:
            channel.close()
            return
        waiting[connection] = _Newcomer(channel, time.monotonic())


class Channel:
    """One connection between a member and the leader: framed msgpack, interruptible."""

    def __init__(self, connection: socket.socket, peer: int | None = None) -> None:
        self.peer = peer  # index of the member at the other end, once it is known
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.greeting = secrets.token_bytes(16)  # of a leader to who connected
        self._buffer = bytearray()
        self._seals: Seals | None = None

    def secure(self, seals: Seals) -> None:
        """Have a tag on each message from now on."""
        self._seals = seals

    def send(self, message: Json, interrupted: Interrupted, timeout: float) -> None:
        """Send one message. Raises GroupBrokenError."""
        self.send_packed(msgpack.packb(message), interrupted, timeout)

    def send_packed(self, payload: bytes, interrupted: Interrupted, timeout: float) -> None:
        """Send a message that is packed already. Raises GroupBrokenError."""
        if self._seals is None:
            data = _LENGTH.pack(len(payload)) + payload
        else:
            length = _LENGTH.pack(len(payload) + TAG_BYTES)
            data = self._seals.sending.seal_head(length, payload)
        view = memoryview(data)
        deadline = time.monotonic() + timeout
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                _check(interrupted, deadline, "a member takes nothing")
                _writable(self.socket)
            except OSError as error:
                raise self._ended(str(error)) from error

    def receive(self, interrupted: Interrupted, timeout: float) -> Json:
        """The next message. Raises GroupBrokenError."""
        deadline = time.monotonic() + timeout
        while (message := self.take()) is None:
            if not _readable([self.socket]):
                _check(interrupted, deadline, "a member says nothing")
        return message

    def take(self, most: int = MAX_FRAME_BYTES) -> Json | None:
        """A message if one is there already; never waits. Raises GroupBrokenError.

        ``most``: bytes that it may have; no more than that are taken in.
        """
        ended = False
        try:
            while (room := _LENGTH.size + most - len(self._buffer)) > 0:
                chunk = self.socket.recv(min(room, 1 << 20))
                self._buffer += chunk
                if not chunk:
                    ended = True
                    break
        except BlockingIOError:
            pass  # all that has come is taken
        except OSError as error:
            raise self._ended(str(error)) from error
        message = self._parse(most)
        if message is None and ended:
            raise self._ended("it closed its connection")
        return message

    def _ended(self, why: str) -> GroupBrokenError:
        if self.peer is None:
            return GroupBrokenError(f"a connection ended: {why}")
        return GroupBrokenError(f"member {self.peer} is gone: {why}", lost=(self.peer,))

    def _parse(self, most: int) -> Json | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > most:
            raise GroupBrokenError(f"a frame of {length} bytes; at most {most}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        payload: Any = bytes(self._buffer[_LENGTH.size : end])
        try:
            if self._seals is not None:
                payload = self._seals.receiving.open_head(_LENGTH.pack(length), payload)
            message = msgpack.unpackb(payload, strict_map_key=False)
        except FrameError as error:
            raise self._ended(str(error)) from error
        except (ValueError, TypeError, msgpack.UnpackException) as error:  # a list as a key
            raise GroupBrokenError(f"a message is no msgpack: {error}") from error
        del self._buffer[:end]
        if not isinstance(message, dict):
            raise GroupBrokenError("a message is no map")
        return message

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Leader:
    """The group's first member: gathers from all and answers all alike."""

    def __init__(self, members: dict[int, Channel], hellos: Mapping[int, Json]) -> None:
        self._members = members
        self.hellos = dict(hellos)

    def gather(self, own: Json, interrupted: Interrupted, timeout: float) -> list[Json]:
        """One message of each member, in order, our own first. Raises GroupBrokenError."""
        found: dict[int, Json] = {0: own}
        deadline = time.monotonic() + timeout
        pending = dict(self._members)
        while pending:
            _check(interrupted, deadline, f"members {sorted(pending)} have not arrived")
            by_socket = {channel.socket: index for index, channel in pending.items()}
            for connection in _readable(list(by_socket)):
                index = by_socket[connection]
                message = pending[index].take()
                if message is not None:
                    found[index] = message
                    del pending[index]
        return [found[index] for index in sorted(found)]

    def heard(self) -> tuple[list[tuple[int, Json]], set[int]]:
        """What members have said and nobody has read, as far as it is here; never waits.

        Returns: the messages, each with its member's index; and the members that are gone.
        """
        found: list[tuple[int, Json]] = []
        gone: set[int] = set()
        for index, channel in self._members.items():
            try:
                while (message := channel.take()) is not None:
                    found.append((index, message))
            except GroupBrokenError:
                gone.add(index)  # it will say nothing more
        return found, gone

    def publish(self, message: Json, interrupted: Interrupted, timeout: float) -> None:
        """Send the same message to all. Raises GroupBrokenError."""
        payload: bytes = msgpack.packb(message)
        for channel in self._members.values():
            channel.send_packed(payload, interrupted, timeout)

    def close(self) -> None:
        """Close all connections."""
        for channel in self._members.values():
            channel.close()


def connect(
    address: str,
    hello: Mapping[str, Any],
    token: str,
    interrupted: Interrupted,
    timeout: float,
) -> Channel:
    """Connect to the leader of a group and introduce ourselves.

    Raises:
        GroupBrokenError: interrupted, or the leader cannot be reached in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        _check(interrupted, deadline, f"the leader at {address} cannot be reached")
        try:
            connection = socket.create_connection(split_address(address), timeout=2.0)
            break
        except OSError:
            time.sleep(POLL_SECONDS)
    channel = Channel(connection, peer=0)
    introduction = {"version": PROTOCOL_VERSION, "nonce": secrets.token_bytes(16), **hello}
    try:
        greeting = channel.receive(interrupted, timeout).get("greeting")
        transcript = _transcript(greeting, introduction)
        proof = _proof(token, transcript)
        channel.send({**introduction, "proof": proof}, interrupted, timeout)
        channel.secure(_seals(token, transcript, member=True))
    except GroupBrokenError:
        channel.close()
        raise
    return channel


def _transcript(greeting: object, hello: Json) -> bytes:
    """A digest of what both ends have said; empty where that is no hello of ours."""
    plain = {key: value for key, value in hello.items() if key != "proof"}
    try:
        return hashlib.sha256(msgpack.packb([greeting, plain])).digest()
    except (ValueError, TypeError):
        return b""


def _proof(token: str, transcript: bytes) -> bytes:
    return hmac.new(derive_key(token, Purpose.GROUP), transcript, "sha256").digest()


def _proves(said: object, token: str, transcript: bytes) -> bool:
    return bool(transcript) and same(said, _proof(token, transcript))


def _seals(token: str, transcript: bytes, *, member: bool) -> Seals:
    # Messages are small: AES would be no faster, and would have to be imported.
    return make_seals(SealKind.BLAKE2B, token, transcript, caller=member, purpose=Purpose.GROUP)


def _welcome(hello: Json, generation: int, size: int) -> bool:
    index = hello.get("index")
    return (
        hello.get("version") == PROTOCOL_VERSION
        and hello.get("generation") == generation
        and isinstance(index, int)
        and 0 < index < size
    )


def _check(interrupted: Interrupted, deadline: float, what: str) -> None:
    if interrupted():
        raise GroupEndedError(f"the trainer ended this group ({what})")
    if time.monotonic() > deadline:
        raise GroupBrokenError(f"out of time: {what}")


def _readable(sockets: list[socket.socket]) -> list[socket.socket]:
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        # Only sockets are registered.
        return [key.fileobj for key, _ in selector.select(POLL_SECONDS)]  # type: ignore[misc]


def _writable(connection: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_WRITE)
        selector.select(POLL_SECONDS)
