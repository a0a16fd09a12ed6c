"""One message on a socket: a small header and the raw bytes of all its tensors, in one frame.

A frame is ``magic | kind | header length | body length``, then the header (msgpack), then the body.
A batch of 141 tensors is one frame: its cost is that of its bytes, not of its tensors. The sender
gathers the tensors from where they lie and the receiver reads the body into memory that it chose,
so neither end copies within the process.

On a connection to another machine header and body are each followed by a tag
(`penstock.data.transport.seal`), and what a `Reader` gives was checked.

Invariants: nothing is allocated before both lengths are checked; every wait is bounded by the
socket's own time-out (`set_timeouts`), which covers `CHUNK_BYTES` at a time, so that a peer that
stalls or trickles ends in a FrameError; after any FrameError the connection cannot be used again.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from penstock.data.errors import ConnectionLostError, FrameError, TooLargeError
from penstock.data.transport.seal import PIECE_BYTES, TAG_BYTES, Seal

MAGIC: Final = b"PNS1"
MAX_HEADER_BYTES: Final = 64 << 20
MAX_BODY_BYTES: Final = 1 << 30
CHUNK_BYTES: Final = 8 << 20
BUFFER_BYTES: Final = 16 << 10
IOV_MAX: Final = 1000

Allocate = Callable[[int], memoryview]
"""Gives the memory that a body of so many bytes goes to."""

_PRELUDE: Final = struct.Struct("<4sBxxxIQ")
_SHORTEST_SECONDS: Final = 0.001  # none at all would be for ever
_TIMEVAL: Final = struct.Struct("ll")
_CONTROL_BYTES: Final = socket.CMSG_SPACE(4 * array.array("i").itemsize)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that has arrived whole."""

    kind: int
    header: Any
    body: memoryview
    descriptors: tuple[int, ...] = ()  # open files that came with it; the receiver closes them


def set_timeouts(sock: socket.socket, seconds: float) -> None:
    """Make the kernel end any wait on this blocking socket after so long.

    Python's own time-outs cost a ``poll`` for every call and rule out MSG_WAITALL.
    """
    set_send_timeout(sock, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))


def set_send_timeout(sock: socket.socket, seconds: float) -> None:
    """As `set_timeouts`, for what is sent only: the other end may be silent for ever."""
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(seconds))


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return _TIMEVAL.pack(whole, int((seconds - whole) * 1e6))


def send(
    sock: socket.socket,
    kind: int,
    header: Any,
    body: Sequence[Any] = (),
    descriptors: Sequence[int] = (),
    size: int | None = None,
    seal: Seal | None = None,
) -> int:
    """Send one frame; returns its bytes. Descriptors go over Unix sockets only, and unsealed.

    ``body``: contiguous buffers, such as bytes and NumPy arrays; ``size``: their bytes, if known.
    ``seal``: of the connection, if it has one.

    Raises:
        TooLargeError: header or body is beyond the limit; nothing was sent.
        ConnectionLostError: the peer went away or does not take what it is sent.
    """
    total = 0
    try:
        for parts, count in outgoing(kind, header, body, size, seal):
            if descriptors and not total:
                rights = array.array("i", descriptors).tobytes()
                head, *rest = parts
                sent = sock.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                if left := count - sent:  # else it may have been answered, and closed
                    send_all(sock, [head[sent:], *rest], left)
            else:
                send_all(sock, parts, count)
            total += count
    except OSError as error:
        raise lost_while_sending(error) from error
    return total


def outgoing(
    kind: int,
    header: Any,
    body: Sequence[Any] = (),
    size: int | None = None,
    seal: Seal | None = None,
) -> Iterator[tuple[list[Any], int]]:
    """What goes out for one frame: pieces, and their bytes; the first begins with its head.

    Each has to be sent, or copied, before the next is asked for: it may lie in the same memory.
    See `send` for the arguments.

    Raises:
        TooLargeError: header or body is beyond the limit.
    """
    packed: bytes = msgpack.packb(header)
    if size is None:
        size = sum(map(_bytes_of, body))
    if len(packed) > MAX_HEADER_BYTES or size > MAX_BODY_BYTES:
        raise TooLargeError(
            f"a message of {len(packed) + size} bytes; a header has at most {MAX_HEADER_BYTES} and "
            f"a body at most {MAX_BODY_BYTES}: use smaller batches"
        )
    prelude = _PRELUDE.pack(MAGIC, kind, len(packed), size)
    if seal is not None:
        return _sealed(seal, prelude, packed, body, size)
    head = prelude + packed
    return iter([([head, *body], len(head) + size)])


def _sealed(
    seal: Seal, prelude: bytes, header: bytes, body: Sequence[Any], size: int
) -> Iterator[tuple[list[Any], int]]:
    head = seal.seal_head(prelude, header)
    if not size:
        yield [head], len(head)
        return
    before = [head]
    for parts, count in seal.seal_body(body, size):
        yield [*before, *parts], count + sum(map(len, before))
        before = []


def lost_while_sending(error: OSError) -> ConnectionLostError:
    """What is said of a peer that could not be sent a message."""
    return ConnectionLostError(_lost("while a message was sent to it", error))


def _bytes_of(part: Any) -> int:
    return len(part) if type(part) is bytes else memoryview(part).nbytes


def send_all(sock: socket.socket, parts: list[Any], total: int) -> None:
    """Send buffers of together so many bytes, waiting for the peer to take them.

    Raises:
        OSError: it went away, or takes nothing within the socket's time-out.
    """
    if len(parts) <= IOV_MAX and (sent := sock.sendmsg(parts)) == total:
        return
    sent = sent if len(parts) <= IOV_MAX else 0
    at = 0
    while at < len(parts):
        left = _bytes_of(parts[at])
        if sent >= left:
            sent -= left
            at += 1
            continue
        if sent:
            parts[at] = memoryview(parts[at]).cast("B")[sent:]
        sent = sock.sendmsg(parts[at : at + IOV_MAX])


def receive(
    sock: socket.socket,
    allocate: Allocate,
    max_header_bytes: int = MAX_HEADER_BYTES,
    deadline: float | None = None,
) -> Frame:
    """Wait for one frame; its body goes to the memory that ``allocate`` gives for its length.

    ``max_header_bytes``: what is taken of somebody who is not known yet; ``deadline``: when, by the
    monotonic clock, the last of it has to be there, whatever the socket's own time-out.

    Raises:
        FrameError: the peer went away, stalled, or sent something else.
        TimeoutError: nothing at all came within the socket's time-out.
    """
    taken: list[int] = []
    try:
        return _receive(sock, allocate, max_header_bytes, deadline, taken)
    except BaseException:
        for descriptor in taken:
            os.close(descriptor)
        raise


def _receive(
    sock: socket.socket,
    allocate: Allocate,
    max_header_bytes: int,
    deadline: float | None,
    taken: list[int],
) -> Frame:
    """As `receive`; ``taken``: gets the descriptors that come, whatever comes after them."""
    prelude = bytearray(_PRELUDE.size)
    _wait_until(sock, deadline)
    try:
        if sock.family == socket.AF_UNIX:
            got, control, _, _ = sock.recvmsg_into([prelude], _CONTROL_BYTES, socket.MSG_WAITALL)
            taken.extend(_descriptors_in(control))
        else:
            got = sock.recv_into(prelude, 0, socket.MSG_WAITALL)
    except BlockingIOError:
        raise TimeoutError("nothing arrived") from None
    except OSError as error:
        raise ConnectionLostError(_lost("between two messages", error)) from error
    if got == 0:
        raise ConnectionLostError("the other end closed the connection")
    if got < len(prelude):
        raise ConnectionLostError(
            f"the other end stalled or went away after {got} bytes of a message"
        )
    kind, header_bytes, body_bytes = _checked(
        *_PRELUDE.unpack(prelude), max_header_bytes=max_header_bytes
    )
    header = bytearray(header_bytes)
    body = allocate(body_bytes) if body_bytes else memoryview(b"")
    views = [memoryview(header), body] if body_bytes else [memoryview(header)]
    _receive_into(sock, views, deadline)
    return Frame(kind, _content(header), body, tuple(taken))


def _wait_until(sock: socket.socket, deadline: float | None) -> None:
    if deadline is not None:
        set_timeouts(sock, max(deadline - time.monotonic(), _SHORTEST_SECONDS))


class Reader:
    """Takes frames from a socket that nobody else reads from any more.

    A small frame, or the beginning of a large one, comes with one system call: each of them is
    a chance for the program's threads to take the interpreter, and to keep it for 5 ms.
    """

    def __init__(self, sock: socket.socket, seal: Seal | None = None) -> None:
        """``seal``: of what the other end sends, if the connection has one."""
        self._sock = sock
        self._seal = seal
        self._passes_descriptors = sock.family == socket.AF_UNIX
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._stop = 0  # what is in it
        self._descriptors: tuple[int, ...] = ()
        self._deadline: float | None = None

    def receive(self, allocate: Allocate, deadline: float | None = None) -> Frame:
        """As the function `receive`."""
        self._deadline = deadline
        if self._stop - self._start < _PRELUDE.size:
            self._fill()
        prelude = self._buffer[self._start : self._start + _PRELUDE.size]
        self._start += _PRELUDE.size
        kind, header_bytes, body_bytes = _checked(*_PRELUDE.unpack(prelude))
        if self._seal is not None:
            lengths = header_bytes, body_bytes
            content, body = self._unseal(self._seal, bytes(prelude), lengths, allocate)
        else:
            header = bytearray(header_bytes)
            body = allocate(body_bytes) if body_bytes else memoryview(b"")
            self._read([memoryview(header), body])
            content = memoryview(header)
        descriptors: tuple[int, ...] = ()
        if self._start == self._stop:  # the kernel ends what it gives after a descriptor's message
            descriptors, self._descriptors = self._descriptors, ()
        return Frame(kind, _content(content), body, descriptors)

    def _unseal(
        self, seal: Seal, prelude: bytes, lengths: tuple[int, int], allocate: Allocate
    ) -> tuple[memoryview, memoryview]:
        """Header and body of a frame, both found to be what the other end sent."""
        header_bytes, body_bytes = lengths
        sealed = bytearray(header_bytes + TAG_BYTES)
        self._read([memoryview(sealed)])
        header = memoryview(seal.open_head(prelude, sealed))
        if not body_bytes:
            return header, memoryview(b"")
        body, tag = allocate(body_bytes), bytearray(TAG_BYTES)
        seal.open_body(body_bytes, self._arriving(body, tag), tag)
        return header, body

    def _arriving(self, body: memoryview, tag: bytearray) -> Iterator[memoryview]:
        """Fill the body piece by piece, and the tag with the last."""
        for at in range(0, len(body), PIECE_BYTES):
            piece = body[at : at + PIECE_BYTES]
            last = at + PIECE_BYTES >= len(body)
            self._read([piece, memoryview(tag)] if last else [piece])
            yield piece

    def _read(self, views: list[memoryview]) -> None:
        """Fill the views, first with what has come already."""
        rest = []
        for view in views:
            here = min(len(view), self._stop - self._start)
            if here:
                view[:here] = self._buffer[self._start : self._start + here]
                self._start += here
            if here < len(view):
                rest.append(view[here:])
        if rest:
            _receive_into(self._sock, rest, self._deadline)

    def _fill(self) -> None:
        """Have a whole prelude: wait for anything, then for what is missing of it.

        A prelude that has begun is completed by itself: what follows it would come in one piece
        with it, and a descriptor that it brought could not be told from one of theirs.
        """
        kept = self._stop - self._start
        self._buffer[:kept] = self._buffer[self._start : self._stop]
        self._start, self._stop = 0, kept
        try:
            if not kept:
                self._take(self._buffer, 0)
            if self._stop < _PRELUDE.size:
                self._take(self._buffer[self._stop : _PRELUDE.size], socket.MSG_WAITALL)
        except BlockingIOError:
            if not self._stop:
                raise TimeoutError("nothing arrived") from None
        except OSError as error:
            raise ConnectionLostError(_lost("between two messages", error)) from error
        if not self._stop:
            raise ConnectionLostError("the other end closed the connection")
        if self._stop < _PRELUDE.size:
            raise ConnectionLostError(
                f"the other end stalled or went away after {self._stop} bytes of a message"
            )

    def _take(self, view: memoryview, flags: int) -> None:
        _wait_until(self._sock, self._deadline)
        if self._passes_descriptors:
            got, control, _, _ = self._sock.recvmsg_into([view], _CONTROL_BYTES, flags)
            self._descriptors += _descriptors_in(control)
        else:
            got = self._sock.recv_into(view, 0, flags)
        self._stop += got


def _checked(
    magic: bytes,
    kind: int,
    header_bytes: int,
    body_bytes: int,
    *,
    max_header_bytes: int = MAX_HEADER_BYTES,
) -> tuple[int, int, int]:
    if magic != MAGIC:
        raise FrameError(
            f"the other end does not speak this protocol: a message begins with {MAGIC!r}, not "
            f"{bytes(magic)!r}"
        )
    if header_bytes > max_header_bytes or body_bytes > MAX_BODY_BYTES:
        raise FrameError(
            f"a message that claims {header_bytes} + {body_bytes} bytes; at most "
            f"{max_header_bytes} + {MAX_BODY_BYTES} are taken"
        )
    return kind, header_bytes, body_bytes


def _content(header: bytearray | memoryview) -> Any:
    try:
        return msgpack.unpackb(header, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:  # such as a list as a key
        raise FrameError(f"a message whose header is no msgpack: {error}") from error


def _descriptors_in(control: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    found = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return tuple(found)


def _receive_into(
    sock: socket.socket, views: list[memoryview], deadline: float | None = None
) -> None:
    """Fill the views, waiting for at most CHUNK_BYTES at a time."""
    wanted = sum(map(len, views))
    while wanted:
        _wait_until(sock, deadline)
        if wanted <= CHUNK_BYTES:
            window = views
        else:
            window, room = [], CHUNK_BYTES
            for view in views:
                window.append(view[:room])
                room -= len(window[-1])
                if not room:
                    break
        try:
            got = sock.recvmsg_into(window, 0, socket.MSG_WAITALL)[0]
        except OSError as error:
            raise ConnectionLostError(
                _lost(f"{wanted} bytes before the end of a message", error)
            ) from error
        if got < sum(map(len, window)):
            raise ConnectionLostError(
                f"the other end stalled or went away {wanted - got} bytes before the end of a "
                "message"
            )
        wanted -= got
        views = after(views, got)


def after(views: list[memoryview], count: int) -> list[memoryview]:
    rest = []
    for view in views:
        if count < len(view):
            rest.append(view[count:])
        count = max(0, count - len(view))
    return rest


def _lost(when: str, error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return f"the other end stalled {when}"
    return f"the other end went away {when} ({error})"
