"""Results of functions that programs have a node's cache keep beside files.

A program has made them, and the daemon cannot tell whether they are right. So they are given only
to programs of the same user that name the same function, by a digest in which the secret of their
job is; and as files are, to whoever has the file open.
"""

from __future__ import annotations

import hashlib
import socket
import zlib
from collections.abc import Callable
from typing import Any

from penstock.data.cache import messages
from penstock.data.cache.index import part_of
from penstock.data.cache.node.checks import readable_key, user_of
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.policy import Key, Verdict
from penstock.data.errors import FrameError
from penstock.data.transport import frame


class KeptResults:
    """See the module's docstring."""

    def __init__(self, contents: Contents, *, private: bool) -> None:
        """``private``: all programs are one user's, who may read all that is kept."""
        self._contents = contents
        self._private = private

    def answer(
        self, sock: socket.socket, asked: frame.Frame, values: list[Any], send: Callable[..., None]
    ) -> None:
        """Give a result (DECODED), or take one (KEEP).

        Raises:
            FrameError: the program asks for nothing that there is.
        """
        _, path, digest, *more = values
        if not 0 < len(digest) <= 64:
            raise FrameError("a digest that is none")
        of = readable_key(asked.descriptors[0])
        if asked.kind == messages.DECODED:
            key = None if of is None else _key(of, digest, user_of(sock), 0)
            self._give(key, of, path, more[0], send)
            return
        size, crc = more
        if size < 1:
            raise FrameError(f"a result of {size} bytes")
        if of is not None:
            self._take(sock, _key(of, digest, user_of(sock), size), crc, path, send)
        send(messages.OWN, [False, True])

    def _give(
        self, key: Key | None, of: Key | None, path: str, parts: Any, send: Callable[..., None]
    ) -> None:
        held = self._contents.find(key, path, any_size=True) if key is not None else None
        if held is None:
            self._contents.note(path, misses=1, miss_bytes=of.size if of is not None else 0)
            send(messages.OWN, [False, False])
            return
        try:
            self._contents.note(path, hits=1, hit_bytes=held.key.size)
            if not self._private:
                send(messages.CONTENT, [held.key.size, held.crc], held.view)
                return
            number, start = part_of(held.place)
            part = held.shelf.arena.descriptor(number)
            new = () if part is None or number in parts else (part,)
            send(messages.PLACE, [number, start, held.key.size, held.crc], descriptors=new)
        finally:
            self._contents.release(held)

    def _take(
        self, sock: socket.socket, key: Key, crc: int, path: str, send: Callable[..., None]
    ) -> None:
        contents = self._contents
        verdict, held = contents.meet(key, path, False)
        if held is None:
            return
        if verdict is not Verdict.ADMIT:
            contents.release(held)
            return

        def place(size: int) -> memoryview:
            if size != key.size:
                raise FrameError(f"{size} bytes of a result of {key.size}")
            return held.view

        try:
            send(messages.READING, [])
            came = frame.receive(sock, place, messages.MAX_HEADER_BYTES)
            if came.kind != messages.CONTENT or zlib.crc32(held.view) != crc:
                raise FrameError("a result that is not what its program says")
        except BaseException:
            contents.abandon(held)
            raise
        if contents.note_stored(held, crc):
            contents.release(held)


def _key(of: Key, digest: bytes, user: int, size: int) -> Key:
    """What a function makes of a file, as a piece of which each version of the file is one."""
    piece = hashlib.blake2b(repr((of.file, user)).encode(), key=digest, digest_size=16).digest()
    version = hashlib.blake2b(repr((of.size, of.changed_ns)).encode(), digest_size=8).digest()
    device, inode, when = (
        int.from_bytes(part, "little") >> 1 for part in (piece[:8], piece[8:], version)
    )
    return Key(device, inode, size, when)
