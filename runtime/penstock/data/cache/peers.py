"""The caches of other nodes: each file is kept by one of them, its home (`homes`).

A home that is gone, slow, or answers with other bytes than it says is never waited for longer than
`penstock.data.cache.timeouts` says: the file is then read from storage, as without a cache. Who
does not answer at all takes no part until it does again; its files have other homes meanwhile.
Every answer carries its length and a checksum, and what does not fit is refused and counted; one
that breaks off says nothing of its sender but that it is gone. Connections are those of the data
plane: both ends prove that they hold the token.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.listener import split_address
from penstock.base.log_limit import LogLimit
from penstock.data.cache import messages
from penstock.data.cache.homes import home_of
from penstock.data.cache.policy import Key
from penstock.data.cache.timeouts import (
    CONNECT_SECONDS,
    PEER_ANSWER_SECONDS,
    UNANNOUNCED_SECONDS,
    answer_seconds,
    fetch_seconds,
)
from penstock.data.errors import ConnectionLostError, DataError, FrameError, HandshakeError
from penstock.data.transport import frame, handshake
from penstock.data.transport.seal import Seal

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
SLOW_ANSWERS: Final = 3
"""After so many in a row a peer takes no part."""
LOOK_SECONDS: Final = 1.0
"""How often those who take no part are tried, and names are resolved again."""
KEPT_CONNECTIONS: Final = 16
"""To one peer; more are made when needed and closed afterwards."""


@dataclass(slots=True)
class Remote:
    """How it went with a file's home."""

    mine: bool = False  # this node is its home, or its home is full: it may be kept here
    read: bool = False  # the home had to read it from storage
    refused: int = 0  # answers that were not what they said


@dataclass(slots=True)
class _Question:
    """One file that is asked for, of however many homes."""

    header: list[Any]
    length: int
    deadline: float
    reading: Callable[[], None]
    remote: Remote = field(default_factory=Remote)
    announced: bool = False

    @property
    def left(self) -> float:
        """Seconds until nobody waits any more."""
        return max(0.0, self.deadline - time.monotonic())

    def announce(self) -> None:
        """Tell the program, once, that it takes longer."""
        if self.announced:
            return
        self.announced = True
        try:
            self.reading()
        except (FrameError, OSError) as error:
            raise _UselessError from error  # there is nobody any more who wants the file


class _Connection:
    """One connection to a peer; one question at a time."""

    def __init__(self, address: str, token: str, name: str) -> None:
        self.sock = socket.create_connection(split_address(address), timeout=CONNECT_SECONDS)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = handshake.call(self.sock, token, name, seconds=CONNECT_SECONDS)
        except BaseException:
            self.sock.close()
            raise
        self._reader = frame.Reader(self.sock, peer.seals.receiving if peer.seals else None)
        self._seal: Seal | None = peer.seals.sending if peer.seals else None

    def ask(self, header: list[Any]) -> None:
        """Send a question."""
        try:
            frame.send(self.sock, messages.FETCH, header, seal=self._seal)
        except ConnectionLostError as error:
            raise ConnectionError(str(error)) from error

    def wait(self, seconds: float) -> None:
        """Wait until an answer begins.

        Raises:
            TimeoutError: none did in time.
            ConnectionError: the other end closed the connection.
        """
        frame.set_timeouts(self.sock, seconds)
        try:
            begun = self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            raise TimeoutError("no answer") from None
        if not begun:
            raise ConnectionError("the other end closed the connection")

    def receive(self, size: int, seconds: float) -> frame.Frame:
        """The next frame of the answer, with a body of so many bytes or none, all of it in time.

        Raises:
            TimeoutError: it has not come, or not all of it.
            ConnectionError: the other end went away.
            FrameError: it is none.
        """

        def allocate(body: int) -> memoryview:
            if body != size:
                raise FrameError(f"an answer of {body} bytes for a file of {size}")
            return memoryview(bytearray(body))

        deadline = time.monotonic() + seconds
        try:
            return self._reader.receive(allocate, deadline)
        except ConnectionLostError as error:
            if time.monotonic() >= deadline:
                raise TimeoutError(str(error)) from error
            raise ConnectionError(str(error)) from error


class _Peer:
    """What is known of one of the others."""

    def __init__(self) -> None:
        self.idle: list[_Connection] = []
        self.alive = True
        self.slow = 0


class Peers:
    """See the module's docstring; any thread may `fetch`."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        token: str,
        answer_seconds: float = PEER_ANSWER_SECONDS,
    ) -> None:
        """``name``: HOST:PORT of this daemon, as the others call it; ``addresses``: of all.

        A host name may stand for several, as that of a headless Service does.
        """
        self.name = name
        self.token = token
        self._refusals = LogLimit()
        self._known: dict[str, set[str]] = {address: set() for address in addresses}
        """What each address stands for, as far as is known."""
        self._answer_seconds = answer_seconds
        self._peers: dict[str, _Peer] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._look()
        threading.Thread(target=self._keep, name="penstock-cache-peers", daemon=True).start()

    def end(self) -> None:
        """Close all connections."""
        self._ending.set()
        with self._lock:
            for peer in self._peers.values():
                _close(peer.idle)

    @property
    def live(self) -> list[str]:
        """Who takes part now, this daemon included."""
        with self._lock:
            return [self.name, *(name for name, peer in self._peers.items() if peer.alive)]

    def fetch(
        self,
        path: str,
        file: str,
        key: Key,
        mtime_ns: int,
        reading: Callable[[], None],
        *,
        little: bool = False,
    ) -> tuple[memoryview | None, Remote]:
        """A file from its home; None: it is to be read from storage, see `Remote.mine`.

        ``mtime_ns``: when it was last written to, which is the same on all nodes. ``reading`` is
        called, once at most, when it may take long: when the home has to read the
        file, is to be connected to first, or has many bytes to send. ``little``: only a little of a
        range is wanted.
        """
        item = f"{path}/{file}" + (f"#{key.number}" if key.number else "")
        header = [path, messages.written(file), key.size, mtime_ns, key.number, little]
        deadline = time.monotonic() + fetch_seconds(key.length, self._answer_seconds)
        question = _Question(header, key.length, deadline, reading)
        remote = question.remote
        for _ in range(ATTEMPTS):  # of one that has just died, the files have other homes
            home = home_of(item, self.live)
            if home is None or home == self.name:
                remote.mine = True
                break
            try:
                return self._ask(home, question), remote
            except _UselessError:
                break
            except _LostError:
                if question.left <= 0:
                    break
        return None, remote

    def _ask(self, home: str, question: _Question) -> memoryview | None:
        connection = self._connect(home, question)
        kept, length, remote = False, question.length, question.remote
        in_time = min(answer_seconds(length, self._answer_seconds), question.left)
        try:
            if in_time > UNANNOUNCED_SECONDS:
                question.announce()
            connection.ask(question.header)
            connection.wait(in_time)
            # Once an answer has begun, whatever is wrong with it is wrong with the answer.
            answer = connection.receive(length, in_time)
            if answer.kind == messages.READING:
                remote.read = True
                question.announce()
                answer = connection.receive(length, question.left)
            values = messages.fields(answer.kind, answer.header)
            if answer.kind == messages.OWN:
                kept, remote.mine = True, values[1]
                return None
            if answer.kind != messages.CONTENT:
                raise FrameError(f"a message of kind {answer.kind} where a file was due")
            size, crc = values
            if size != length or len(answer.body) != size or zlib.crc32(answer.body) != crc:
                raise FrameError("a file that is not what the answer says it is")
            kept = True
            return answer.body
        except TimeoutError as error:
            self._note_slow(home)
            raise _UselessError from error
        except OSError as error:
            self._forget_idle(home)  # they are as old, and likely as dead
            raise _LostError from error
        except FrameError as error:
            remote.refused += 1
            text = "the cache at %s: %s; its answer is not used"
            self._refusals.log(logger, logging.WARNING, text, home, error)
            raise _UselessError from error
        finally:
            self._give_back(home, connection, kept)

    def _connect(self, home: str, question: _Question) -> _Connection:
        with self._lock:
            peer = self._peers.get(home)
            if peer is not None and peer.idle:
                return peer.idle.pop()
        question.announce()
        try:
            return _Connection(home, self.token, self.name)
        except (OSError, DataError) as error:
            self._note_lost(home, error)
            raise _LostError from error

    def _give_back(self, home: str, connection: _Connection, kept: bool) -> None:
        with self._lock:
            peer = self._peers.get(home)
            if kept and peer is not None and len(peer.idle) < KEPT_CONNECTIONS:
                peer.slow = 0
                peer.idle.append(connection)
                return
        connection.sock.close()

    def _forget_idle(self, home: str) -> None:
        with self._lock:
            peer = self._peers.get(home)
            if peer is not None:
                _close(peer.idle)

    def _note_slow(self, home: str) -> None:
        with self._lock:
            peer = self._peers.get(home)
            if peer is None:
                return
            peer.slow += 1
            if peer.slow < SLOW_ANSWERS:
                return
        self._note_lost(home, "it does not answer in time")

    def _note_lost(self, home: str, why: object) -> None:
        with self._lock:
            peer = self._peers.get(home)
            if peer is None or not peer.alive:
                return
            peer.alive = False
            _close(peer.idle)
        logger.warning("the cache at %s takes no part until it is back: %s", home, why)

    def _keep(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            self._look()
            with self._lock:
                lost = [name for name, peer in self._peers.items() if not peer.alive]
            for name in lost:
                try:
                    connection = _Connection(name, self.token, self.name)
                except (OSError, HandshakeError, FrameError):
                    continue
                with self._lock:
                    if (peer := self._peers.get(name)) is not None:
                        peer.alive, peer.slow = True, 0
                        peer.idle.append(connection)
                logger.info("the cache at %s takes part again", name)

    def _look(self) -> None:
        """See who there is; those who were there stay as they are."""
        for address in self._known:
            there = resolve(address)
            if there is not None:  # else it is not known who left: nobody is taken to have
                self._known[address] = there
        found = set().union(*self._known.values()) - {self.name}
        with self._lock:
            for name in found - self._peers.keys():
                self._peers[name] = _Peer()
            for name in self._peers.keys() - found:
                _close(self._peers.pop(name).idle)


class _LostError(Exception):
    """The peer is not there."""


class _UselessError(Exception):
    """The peer is there, and of no use for this file."""


def resolve(address: str) -> set[str] | None:
    """HOST:PORT of every address that a name stands for; None where nobody says."""
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    hosts = {str(place[4][0]) for place in found}
    return {f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts}


def _close(connections: list[_Connection]) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sock.close()
    connections.clear()
