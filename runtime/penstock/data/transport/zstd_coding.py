"""Batches as frames of zstd, by the package ``zstandard``, which is there or not.

Level and window are fixed, so that neither end's memory depends on the batch. The bytes that a
frame says it will become must be those that the message announced, before any memory is taken for
them: what would grow beyond is refused, and no frame grows beyond what a batch may have.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.data.errors import FrameError
from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.dictionary_coding import Coded

CODING: Final = b"zstd"
"""As the coding of a message; no dictionary coding reads so."""
LEVEL: Final = 1
WINDOW_LOG: Final = 21
"""2 MiB, at both ends."""
LEAST_BYTES: Final = 1 << 10


class ZstdEncoder:
    """Encodes one batch after the other; for one thread."""

    def __init__(self) -> None:
        """Raises ImportError: the package is not there."""
        import zstandard

        how = zstandard.ZstdCompressionParameters.from_level(
            LEVEL, window_log=WINDOW_LOG, write_content_size=True
        )
        self._compressor = zstandard.ZstdCompressor(compression_params=how)

    def encode(self, packed: Packed, worth: float) -> Coded | None:
        """The batch in at most ``worth`` of its bytes; None where it needs more."""
        if packed.size < LEAST_BYTES:
            return None
        stream = self._compressor.compressobj(size=packed.size)
        parts: list[Any] = []
        left = int(worth * packed.size)
        for part in packed.parts:
            left -= _keep(parts, stream.compress(part))
            if left < 0:
                return None
        left -= _keep(parts, stream.flush())
        if left < 0:
            return None
        return Coded(CODING, parts, sum(map(len, parts)))


def _keep(parts: list[Any], made: bytes) -> int:
    if made:
        parts.append(made)
    return len(made)


def check(body: memoryview, size: int) -> None:
    """Whether a body says that it becomes exactly ``size`` bytes; before there is memory for them.

    Raises:
        FrameError: it says something else, is no frame, or cannot be decoded here.
    """
    zstd = _module()
    try:
        told = zstd.get_frame_parameters(body)
    except zstd.ZstdError as error:
        raise FrameError(f"a batch that is no frame of zstd: {error}") from error
    if told.content_size != size or told.window_size > 1 << WINDOW_LOG:
        raise FrameError(
            f"a batch of {size} bytes in a frame that is to become {told.content_size}, with a "
            f"window of {told.window_size}: refused"
        )


def decode(body: memoryview, into: memoryview) -> None:
    """Write the batch again; all of ``into`` is written, and nothing behind it.

    Raises:
        FrameError: it is nothing that `ZstdEncoder` makes, or of another length.
    """
    check(body, len(into))
    zstd = _module()
    written = 0
    try:
        with zstd.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).stream_reader(body) as reader:
            while written < len(into):
                got = reader.readinto(into[written:])
                if not got:
                    break
                written += got
            beyond = bool(reader.read(1))
    except zstd.ZstdError as error:
        raise FrameError(f"a batch whose coding cannot be read: {error}") from error
    if written != len(into) or beyond:
        raise FrameError(f"a batch of {len(into)} bytes whose frame has another length")


def _module() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise FrameError("a batch coded with zstd, which was not asked for") from error
    return zstandard
