"""Seals on the frames of one connection, so that nobody on the way can change, repeat or drop one.

Each direction has a key of its own, made in the handshake, and counts its frames. A frame has two
tags of `TAG_BYTES`, one after its header and, if it has a body, one after that: the first also
covers the lengths, so that no memory is taken for a body before it is known who wants it. The
counter is in the nonce of both tags, so a frame that is repeated, left out or out of turn is as
wrong as one that was changed.

Three kinds, of which the handshake chooses one (`offered`, `chosen`):

| kind       | what it is                            | costs an end                        |
|------------|---------------------------------------|-------------------------------------|
| `AES_GMAC` | AES-256-GMAC                          | least, with AES instructions        |
| `BLAKE2B`  | keyed BLAKE2b, where there is no AES  | what `_say_price` measures and logs |
| `AES_GCM`  | AES-256-GCM, hides header and body    | if either end asks for it           |

Invariants: nothing of a frame is given on before its tag was found right; no body is copied, but
for the one copy that hiding it is; a nonce is used once, since a connection that failed to send a
frame is not used again.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from penstock.crds import environment as names
from penstock.data.errors import FrameError, HandshakeError
from penstock.data.keys import Purpose, derive_key, expand_key
from penstock.data.variables import ENCRYPT_FRAMES

logger = logging.getLogger(__name__)

TAG_BYTES: Final = 16
SMALL_BYTES: Final = 16 << 10
"""Pieces that are no larger on average are put together: to copy them costs less than to call."""
PIECE_BYTES: Final = 1 << 20
"""So much is put together, or encrypted, at a time, while a processor's cache still has it."""

_SAYING: Final = threading.Lock()
_HEAD, _BODY = 0, 1
_NONCE: Final = struct.Struct(">IQ")


class SealKind(StrEnum):
    """How frames are sealed; the values are said in the handshake."""

    AES_GMAC = "aes-256-gmac"
    BLAKE2B = "blake2b"
    AES_GCM = "aes-256-gcm"


@dataclass(frozen=True, slots=True)
class Seals:
    """What seals the frames that one end of a connection sends, and opens those that it gets."""

    sending: Seal
    receiving: Seal


class Digest(Protocol):
    """A tag in the making."""

    def update(self, piece: Any, /) -> None:
        """Take the next piece."""

    def digest(self) -> bytes:
        """The tag; once."""


class Seal(ABC):
    """The tags of one direction of one connection; see the module's docstring."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = -1

    def seal_head(self, prelude: bytes, header: bytes) -> bytes:
        """What goes out for the next frame's prelude and header, their tag at the end."""
        self._count += 1
        return prelude + self._closed(prelude, header)

    def seal_body(self, parts: Sequence[Any], size: int) -> Iterator[tuple[list[Any], int]]:
        """What goes out for the body of the same frame and its tag: pieces, and their bytes.

        Each has to be sent before the next is asked for: it may lie in the same memory.
        """
        parts = _joined(parts, size)
        yield [*parts, self._tag(parts)], size + TAG_BYTES

    def open_head(self, prelude: Any, sealed: Any) -> bytes | memoryview:
        """The header of the next frame that came; ``sealed``: all that came after its prelude.

        Raises:
            FrameError: it is not what the other end sent.
        """
        self._count += 1
        return self._opened(prelude, sealed)

    def open_body(self, size: int, arriving: Iterator[memoryview], tag: bytearray) -> None:
        """Have the body of the same frame in the memory where it is received to.

        Args:
            size: its bytes.
            arriving: gives it piece by piece, each as soon as it is there.
            tag: what came after it, as soon as all of it is there.

        Raises:
            FrameError: it is not what the other end sent.
        """
        if size <= PIECE_BYTES:
            found = self._tag(list(arriving))
        else:
            digest = self._digest(_BODY)
            for piece in arriving:
                digest.update(piece)
            found = digest.digest()
        if not hmac.compare_digest(bytes(tag), found):
            raise self._wrong("body")

    def _nonce(self, what: int) -> bytes:
        return _NONCE.pack(what, self._count)

    def _wrong(self, what: str) -> FrameError:
        return FrameError(
            f"the {what} of message {self._count} is not what the other end sent: it was changed "
            "on the way, repeated, or comes out of turn"
        )

    @abstractmethod
    def _closed(self, prelude: bytes, header: bytes) -> bytes:
        """The header as it is sent, and its tag."""

    @abstractmethod
    def _opened(self, prelude: Any, sealed: Any) -> bytes | memoryview:
        """The header, if the tag is right."""

    def _tag(self, parts: Sequence[Any]) -> bytes:
        """The tag of a body."""
        digest = self._digest(_BODY)
        for part in parts:
            digest.update(_flat(part))
        return digest.digest()

    @abstractmethod
    def _digest(self, what: int) -> Digest:
        """What makes the tag of a header or a body that comes in pieces."""


class _Blake2b(Seal):
    def _closed(self, prelude: bytes, header: bytes) -> bytes:
        return header + self._hashed(_HEAD, (prelude, header))

    def _opened(self, prelude: Any, sealed: Any) -> bytes | memoryview:
        header = memoryview(sealed)[:-TAG_BYTES]
        tag = bytes(sealed[-TAG_BYTES:])
        if not hmac.compare_digest(tag, self._hashed(_HEAD, (prelude, header))):
            raise self._wrong("header")
        return header

    def _digest(self, what: int) -> Digest:
        return hashlib.blake2b(self._nonce(what), key=self._key, digest_size=TAG_BYTES)

    def _hashed(self, what: int, parts: Sequence[Any]) -> bytes:
        found = self._digest(what)
        for part in parts:
            found.update(part)
        return found.digest()


class _GmacDigest:
    def __init__(self, context: Any) -> None:
        self._context = context
        self.update = context.authenticate_additional_data

    def digest(self) -> bytes:
        self._context.finalize()
        tag: bytes = self._context.tag
        return tag


class _Gmac(Seal):
    """GCM of nothing, with what is to be sealed as its associated data."""

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        super().__init__(key)
        self._invalid: type[Exception] = InvalidTag
        self._aes = AESGCM(key)
        self._cipher: Callable[[bytes], Any] = lambda nonce: Cipher(
            algorithms.AES(key), modes.GCM(nonce)
        )

    def _closed(self, prelude: bytes, header: bytes) -> bytes:
        return header + self._aes.encrypt(self._nonce(_HEAD), b"", prelude + header)

    def _opened(self, prelude: Any, sealed: Any) -> bytes | memoryview:
        header, tag = memoryview(sealed)[:-TAG_BYTES], bytes(sealed[-TAG_BYTES:])
        try:
            self._aes.decrypt(self._nonce(_HEAD), tag, b"".join((prelude, header)))
        except self._invalid:
            raise self._wrong("header") from None
        return header

    def _tag(self, parts: Sequence[Any]) -> bytes:
        if len(parts) == 1:
            return self._aes.encrypt(self._nonce(_BODY), b"", _flat(parts[0]))
        return super()._tag(parts)

    def _digest(self, what: int) -> Digest:
        return _GmacDigest(self._cipher(self._nonce(what)).encryptor())


class _Gcm(_Gmac):
    """The prelude goes in clear, since it says how much is to be received; all else is hidden."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._room = memoryview(b"")  # what is sent is encrypted to

    def _closed(self, prelude: bytes, header: bytes) -> bytes:
        return self._aes.encrypt(self._nonce(_HEAD), header, prelude)

    def _opened(self, prelude: Any, sealed: Any) -> bytes | memoryview:
        try:
            return self._aes.decrypt(self._nonce(_HEAD), bytes(sealed), bytes(prelude))
        except self._invalid:
            raise self._wrong("header") from None

    def seal_body(self, parts: Sequence[Any], size: int) -> Iterator[tuple[list[Any], int]]:
        context = self._cipher(self._nonce(_BODY)).encryptor()
        if len(self._room) < min(size, PIECE_BYTES):
            self._room = np.empty(min(size, PIECE_BYTES), np.uint8).data
        room, at = self._room, 0
        for part in _joined(parts, size):
            clear = memoryview(_flat(part))
            while clear:
                piece = clear[: len(room) - at]
                at += context.update_into(piece, room[at:])
                clear = clear[len(piece) :]
                if at == len(room):
                    yield [room], at
                    at = 0
        context.finalize()
        yield [room[:at], context.tag], at + TAG_BYTES

    def open_body(self, size: int, arriving: Iterator[memoryview], tag: bytearray) -> None:
        context = self._cipher(self._nonce(_BODY)).decryptor()
        for piece in arriving:
            context.update_into(piece, piece)
        try:
            context.finalize_with_tag(bytes(tag))
        except self._invalid:
            raise self._wrong("body") from None


_CLASSES: Final[dict[SealKind, type[Seal]]] = {
    SealKind.AES_GMAC: _Gmac,
    SealKind.BLAKE2B: _Blake2b,
    SealKind.AES_GCM: _Gcm,
}


def _joined(parts: Sequence[Any], size: int) -> Sequence[Any]:
    """The same bytes in pieces that are worth a call each."""
    if len(parts) < 2 or size > len(parts) * SMALL_BYTES:
        return parts
    each = max(1, len(parts) * PIECE_BYTES // max(size, 1))  # of them make a chunk, about
    return [b"".join(parts[at : at + each]) for at in range(0, len(parts), each)]


def _pieces(parts: Sequence[Any]) -> Iterator[memoryview]:
    """The same bytes in pieces that a processor's cache keeps until they are sent."""
    for part in parts:
        flat = memoryview(_flat(part))
        for at in range(0, len(flat), PIECE_BYTES):
            yield flat[at : at + PIECE_BYTES]


def _flat(part: Any) -> Any:
    """A contiguous buffer of any shape and type as one of bytes."""
    if type(part) is bytes:
        return part
    return np.frombuffer(part, np.uint8) if memoryview(part).nbytes else b""


def offered() -> list[str]:
    """The kinds that this process may use, the best first; to be said in the handshake."""
    hide, hardware = wants_hidden(), _lacking() is None
    if hide and not hardware:
        raise HandshakeError(f"{names.ENCRYPT_FRAMES} is set, but {_lacking()}: frames cannot be")
    if hide:
        return [SealKind.AES_GCM.value]
    best = [SealKind.AES_GMAC.value] if hardware else []
    return [*best, SealKind.BLAKE2B.value, *([SealKind.AES_GCM.value] if hardware else [])]


def chosen(theirs: object) -> SealKind:
    """What is used with an end that offers these kinds.

    Hiding is used where either end asks for it, which it does by offering nothing else.

    Raises:
        HandshakeError: there is nothing that both can do.
    """
    found = theirs if isinstance(theirs, list) else []
    for kind in offered():
        if kind in found:
            if kind == SealKind.BLAKE2B:
                with _SAYING:  # two connections may be the first
                    _say_price()
            return SealKind(kind)
    raise HandshakeError(
        f"frames are sealed by one of {str(found)[:100]} there and of {offered()} here: set "
        f"{names.ENCRYPT_FRAMES} alike in all pods of the job, and have `cryptography` in all"
    )


def wants_hidden() -> bool:
    """Whether this process was told to encrypt what it sends to other machines."""
    return ENCRYPT_FRAMES.now()


def make_seals(
    kind: SealKind,
    token: str,
    transcript: bytes,
    *,
    caller: bool,
    purpose: Purpose = Purpose.FRAMES,
) -> Seals:
    """The two directions of a connection whose ends have said ``transcript`` (a digest)."""
    secret = derive_key(token, purpose)
    by_caller, by_listener = (
        _CLASSES[kind](expand_key(secret, role + kind.value.encode() + transcript))
        for role in (b"caller ", b"listener ")
    )
    return Seals(by_caller, by_listener) if caller else Seals(by_listener, by_caller)


@cache
def _lacking() -> str | None:
    """Why AES is out of the question here, if it is."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401 - whether it is there
    except ImportError:
        return "the package `cryptography` is not installed"
    if sys.platform == "linux":
        flags = _processor_flags()
        if flags and "aes" not in flags:
            return "this processor has no AES instructions"
    return None


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    named = (line for line in lines if line.lower().startswith(("flags", "features")))
    return set(next(named, "").partition(":")[2].split())


@cache
def _say_price() -> None:
    """One line for each process, with what it measured."""
    sample = bytes(4 << 20)
    began = time.thread_time()
    hashlib.blake2b(sample, key=bytes(32)).digest()
    each = (time.thread_time() - began) / len(sample) * 1e9
    logger.warning(
        "frames are sealed by keyed BLAKE2b, for %.2f CPU-seconds per GB at this end: %s",
        each,
        _lacking() or "the other end has no AES",
    )
