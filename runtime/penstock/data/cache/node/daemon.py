"""The cache of a node: it gives files from memory to programs that have them open.

A program that wants a file has opened it itself, and passes the open file. So nobody is given a
byte that it could not read anyway, and what a file is (device, inode, size, time of its last
change) is what the kernel says of that open file. The daemon reads files that it keeps from there
too: no client can have it hold something else.

Guarantees: a program never needs the daemon. What is full, too large, changed meanwhile or
unreadable is answered with OWN, and the program reads it as it would have. Whoever waits for
somebody else has a time-out (`penstock.data.cache.timeouts`). A read from storage has none, since
the kernel knows of none: where storage hangs so does the thread that reads, as the program's own
would, and nobody waits for it longer than that. Connections are bounded, and those that have not
yet asked for anything, or not yet proved that they are another node's, to a few (`newcomers`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.base.log_limit import LogLimit
from penstock.data.cache import messages
from penstock.data.cache.node.checks import (
    PublicFolders,
    open_below,
    readable_by_all,
    readable_key,
    same_file,
    user_of,
)
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.results import KeptResults
from penstock.data.cache.node.shelves import Held
from penstock.data.cache.observed import TIMED
from penstock.data.cache.peers import Peers
from penstock.data.cache.policy import Key, Verdict
from penstock.data.cache.timeouts import read_in_seconds
from penstock.data.errors import FrameError, HandshakeError
from penstock.data.transport import frame, handshake
from penstock.data.transport.newcomers import Newcomers

logger = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 2048
LOOK_SECONDS: Final = 5.0
"""How often an idle connection looks whether the daemon ends; whoever does not take what it asked
for in so long is gone."""
LONGEST_NAME: Final = 200
"""Of a job, in characters."""

Send = Callable[..., None]
Serve = Callable[[socket.socket, Callable[[], None]], None]
"""Serves a connection; to call what it is given, once it is known to be no stranger's."""


class CacheDaemon:
    """See the module's docstring; `serve` and `serve_peers` each take a thread of their own."""

    def __init__(
        self, contents: Contents, peers: Peers | None = None, *, private: bool = False
    ) -> None:
        """``private``: serve programs of this process's user only, whatever they can open."""
        self.contents = contents
        self.private = private
        self._results = KeptResults(contents, private=private)
        self._public_folders = PublicFolders()
        self.peers = peers
        self._ending = threading.Event()
        self._listeners: list[socket.socket] = []
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._deaf = LogLimit()

    def serve(self, listener: socket.socket) -> None:
        """Serve programs of this node on a Unix socket, until `end`."""
        self._accept(listener, self._serve_client)

    def serve_peers(self, listener: socket.socket) -> None:
        """Serve the daemons of other nodes on TCP, until `end`."""
        self._accept(listener, self._serve_peer)

    def end(self) -> None:
        """Stop serving; who is connected reads its files itself."""
        self._ending.set()
        with self._lock:
            sockets = [*self._listeners, *self._connections]
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if self.peers is not None:
            self.peers.end()

    def _accept(self, listener: socket.socket, serve: Serve) -> None:
        newcomers = Newcomers()
        with self._lock:
            self._listeners.append(listener)
        while not self._ending.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._ending.is_set():
                    return
                self._deaf.log(logger, logging.ERROR, "programs cannot connect: %s", error)
                self._ending.wait(0.1)  # too many open files: some will be closed
                continue
            with self._lock:
                full = len(self._connections) >= MOST_CONNECTIONS or self._ending.is_set()
                if not full:
                    self._connections.add(sock)
            if full:
                sock.close()
                continue
            newcomers.admit(sock)
            thread = threading.Thread(
                target=self._serve_one,
                args=(sock, serve, newcomers),
                name="penstock-cache",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:  # the container may have no more threads
                self._deaf.log(logger, logging.ERROR, "a program is turned away: %s", error)
                self._let_go(sock, newcomers)

    def _serve_one(self, sock: socket.socket, serve: Serve, newcomers: Newcomers) -> None:
        try:
            serve(sock, lambda: newcomers.remove(sock))
        except (FrameError, HandshakeError, OSError) as error:
            logger.debug("a connection ended: %s", error)
        finally:
            self._let_go(sock, newcomers)

    def _let_go(self, sock: socket.socket, newcomers: Newcomers) -> None:
        newcomers.remove(sock)
        with self._lock:
            self._connections.discard(sock)
        sock.close()

    # ------------------------------------------------------------------ programs of this node

    def _serve_client(self, sock: socket.socket, known: Callable[[], None]) -> None:
        frame.set_timeouts(sock, LOOK_SECONDS)

        if self.private and user_of(sock) != os.getuid():
            frame.send(sock, messages.REFUSED, ["the cache is another user's"])
            return

        def send(kind: int, header: Any, *body: Any, descriptors: Sequence[int] = ()) -> None:
            frame.send(sock, kind, header, body, descriptors)

        while not self._ending.is_set():
            try:
                asked = frame.receive(sock, messages.no_body, messages.MAX_HEADER_BYTES)
            except TimeoutError:
                continue
            try:
                values = messages.fields(asked.kind, asked.header)
                known()
                self._answer_client(sock, asked, values, send)
            finally:
                for descriptor in asked.descriptors:
                    os.close(descriptor)

    def _answer_client(
        self, sock: socket.socket, asked: frame.Frame, values: list[Any], send: Send
    ) -> None:
        if asked.kind not in messages.CLIENTS:
            raise FrameError(f"a message of kind {asked.kind} from a client")
        if values[0] != messages.CACHE_PROTOCOL_VERSION:
            send(messages.REFUSED, [f"the cache speaks version {messages.CACHE_PROTOCOL_VERSION}"])
        elif asked.kind == messages.NOTE:
            self._note(values[1], values[2][:LONGEST_NAME])
        elif asked.kind == messages.ENTER:
            self._grant(values[1], values[2], asked.descriptors, send)
        elif asked.kind == messages.STAT:
            send(messages.STAT, self.contents.report())
        elif asked.kind == messages.DROP:
            self._drop(sock, values[1], send)
        elif values[1] not in self.contents.counts:
            send(messages.REFUSED, [f"{values[1]} is not among the paths of this cache"])
        elif len(asked.descriptors) != 1:
            raise FrameError(f"{len(asked.descriptors)} open files where one was due")
        elif asked.kind in (messages.DECODED, messages.KEEP):
            self._results.answer(sock, asked, values, send)
        else:
            _, path, file, number, little = values
            file = messages.read_name(file)
            self._give(asked.descriptors[0], path, file, number, little, send)

    def _note(self, notes: Any, job: str) -> None:
        """Take in what a client has counted; raises FrameError for what is none."""
        try:
            for path, counts in notes.items():
                said = {name: int(number) for name, number in counts.items()}
                if path not in self.contents.counts or min(said.values(), default=-1) < 0:
                    continue
                known = messages.NOTED & said.keys()
                self.contents.note(path, **{name: said[name] for name in known})
                if times := TIMED & said.keys():
                    self.contents.note_times(path, job, {name: said[name] for name in times})
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise FrameError(f"a note that is none: {error}") from error

    def _grant(self, path: str, part: Any, descriptors: Sequence[int], send: Send) -> None:
        """Let a program that has a path's folder open read what all may read below it.

        ``part``: of the arena; None: its index.
        """
        try:
            same = os.path.samestat(os.fstat(descriptors[0]), Path(path).stat())
        except (IndexError, OSError, ValueError):
            same = False
        if not same or path not in self.contents.counts:
            send(messages.REFUSED, [f"{path} is not the folder of this cache"])
            return
        shared = self.contents.shared(path, part)
        if shared is None:
            send(messages.REFUSED, [f"{path} has no part {part} any more"])
            return
        try:
            send(messages.GRANTED, [self.contents.largest], descriptors=(shared,))
        finally:
            os.close(shared)

    def _is_public(self, path: str, file: str, key: Key) -> bool:
        """Whether all who may open a path's folder may read a file below it."""
        if self.private:
            return True
        if not same_file(path, file, key):
            return False
        return readable_by_all(path, file, self._public_folders)

    def _drop(self, sock: socket.socket, path: str | None, send: Send) -> None:
        if user_of(sock) not in (0, os.getuid()):
            send(messages.REFUSED, ["only the user of the cache, and root, may drop what it holds"])
        elif path is not None and path not in self.contents.counts:
            send(messages.REFUSED, [f"{path} is not among the paths of this cache"])
        else:
            self.contents.drop(path)
            send(messages.STAT, self.contents.report())

    def _give(
        self, descriptor: int, path: str, file: str, number: int, little: bool, send: Send
    ) -> None:
        """Answer a program that has a file open, and reads that range of it, or all."""
        contents, own_bytes = self.contents, 0
        key = readable_key(descriptor)
        if key is not None:
            key = key.range(number)
            own_bytes = 0 if number else key.size  # what it reads of a range it says itself
            if key.there and self._answer(key, descriptor, path, file, little, send):
                return
        contents.note(path, misses=1, miss_bytes=own_bytes)
        send(messages.OWN, [contents.thrashes, True])

    def _answer(
        self, key: Key, descriptor: int, path: str, file: str, little: bool, send: Send
    ) -> bool:
        """Answer, unless a program is to read it itself."""
        if little and not self._is_public(path, file, key):
            return False  # to send all of a range for a little of it may take longer than that
        if (held := self.contents.find(key, path)) is not None:
            self._send_held(held, send)
            self.contents.note(path, hits=1, hit_bytes=key.length)
            return True
        if self.peers is not None and self.contents.keeps(key):
            mtime_ns = os.fstat(descriptor).st_mtime_ns
            given = self._give_from_peer(key, mtime_ns, path, file, little, send)
            if given:
                return True
        return self._read_in(key, descriptor, path, file, little, send)

    def _read_in(
        self, key: Key, descriptor: int, path: str, file: str, little: bool, send: Send
    ) -> bool:
        """Have a file read into the cache, by this thread or another, and send it."""
        contents, size = self.contents, key.length
        verdict, held = contents.meet(key, path, self._is_public(path, file, key), little=little)
        if verdict is Verdict.PASS:
            return False
        read = verdict is Verdict.ADMIT
        if verdict is not Verdict.HIT:
            send_or_release(send, contents, held, messages.READING, [])
        if read:
            assert held is not None
            if not contents.read_in(held, descriptor):
                return False
        elif verdict is Verdict.WAIT:
            held = contents.wait(key, read_in_seconds(size))
        if held is None:
            return False
        if read:
            contents.note(path, misses=1, miss_bytes=size)
        else:
            contents.note(path, hits=1, hit_bytes=size)
        self._send_held(held, send)
        return True

    def _send_held(self, held: Held, send: Send) -> None:
        try:
            send(messages.CONTENT, [held.key.length, held.crc], held.view)
        finally:
            self.contents.release(held)

    def _give_from_peer(
        self, key: Key, mtime_ns: int, path: str, file: str, little: bool, send: Send
    ) -> bool:
        """Answer with what the file's home says; False: this node reads it itself."""
        assert self.peers is not None
        if not same_file(path, file, key):
            return False  # it is not there by that name here: others could not check it either
        content, remote = self.peers.fetch(
            path, file, key, mtime_ns, lambda: send(messages.READING, []), little=little
        )
        self.contents.note(path, refused_answers=remote.refused)
        if content is not None:
            if remote.read:
                self.contents.note(path, misses=1, miss_bytes=key.length)
            else:
                self.contents.note(path, hits=1, hit_bytes=key.length, remote_hits=1)
            send(messages.CONTENT, [key.length, None], content)
            return True
        if remote.mine:
            return False
        self.contents.note(path, misses=1, miss_bytes=0 if key.number else key.size)
        send(messages.OWN, [self.contents.thrashes, False])
        return True

    # ------------------------------------------------------------------ other nodes

    def _serve_peer(self, sock: socket.socket, known: Callable[[], None]) -> None:
        assert self.peers is not None
        peer = handshake.answer(sock, self.peers.token, self.peers.name)
        known()
        frame.set_timeouts(sock, LOOK_SECONDS)
        reader = frame.Reader(sock, peer.seals.receiving if peer.seals else None)
        seal = peer.seals.sending if peer.seals else None

        def send(kind: int, header: Any, *body: Any) -> None:
            frame.send(sock, kind, header, body, seal=seal)

        while not self._ending.is_set():
            try:
                asked = reader.receive(messages.no_body)
            except TimeoutError:
                continue
            if asked.kind != messages.FETCH:
                raise FrameError(f"a message of kind {asked.kind} from another node")
            self._give_to_peer(messages.fields(asked.kind, asked.header), send)

    def _give_to_peer(self, values: list[Any], send: Send) -> None:
        """Answer another node, whose file this is the home of."""
        path, file, size, mtime_ns, number, little = values
        try:
            file = messages.read_name(file)
            descriptor = open_below(path, file) if path in self.contents.counts else -1
        except (OSError, ValueError):
            descriptor = -1
        try:
            key = None if descriptor < 0 else readable_key(descriptor)
            if key is None or (key.size, os.fstat(descriptor).st_mtime_ns) != (size, mtime_ns):
                send(messages.OWN, [False, False])  # not here, or another version
                return
            key = key.range(number)
            if not key.there:
                send(messages.OWN, [False, False])
                return
            if (held := self.contents.find(key, path)) is not None:
                self._send_held(held, send)
                return
            public = self._is_public(path, file, key)
            verdict, held = self.contents.meet(key, path, public, little=little)
            if verdict in (Verdict.ADMIT, Verdict.WAIT):
                send_or_release(send, self.contents, held, messages.READING, [])
            if verdict is Verdict.ADMIT and held is not None:
                held = held if self.contents.read_in(held, descriptor) else None
            elif verdict is Verdict.WAIT:
                held = self.contents.wait(key, read_in_seconds(key.length))
            if held is None:
                send(messages.OWN, [False, True])
            else:
                self._send_held(held, send)
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def send_or_release(
    send: Send, contents: Contents, held: Held | None, kind: int, header: Any
) -> None:
    """Say something while a file that is to be read in waits; it is given up if nobody listens."""
    try:
        send(kind, header)
    except BaseException:
        if held is not None:
            contents.abandon(held)
        raise
