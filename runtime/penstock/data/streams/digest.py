"""What the batches of a stream were, in 63 bits: to tell whether a stream gives the same again.

A stream that lost its maker is begun again by another one, which passes over what the program has
had. That gives each sample once if the stream is the same each time it is begun, and nobody can
know that of a program's own code; so both sides chain a digest over the batches, and compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

WHOLE_BYTES: Final = 64 << 10
"""Of a larger batch only `WINDOWS` of `WINDOW_BYTES` each count: digests must cost nothing."""
WINDOWS: Final = 16
WINDOW_BYTES: Final = 4 << 10
NOTHING: Final = 1
"""The digest of no batches."""
UNKNOWN: Final = 0
"""Of batches of which one could not be read; what it is chained with stays unknown."""


def chain_digest(before: int, structure: bytes, parts: Sequence[Any], size: int) -> int:
    """The digest of the batches before and this one, in 1 .. 2^63 - 1; `UNKNOWN` if that was.

    Args:
        before: the digest of the batches before.
        structure: of the batch, as `penstock.data.transport.batch_codec.Packed` has it.
        parts: its bytes, in one or several buffers: how they are divided does not matter.
        size: of all parts together.
    """
    if before == UNKNOWN:
        return UNKNOWN
    digest = hashlib.blake2b(before.to_bytes(8, "little"), digest_size=8)
    digest.update(structure)
    if size <= WHOLE_BYTES:
        for part in parts:
            digest.update(_bytes(part))
    else:
        for piece in _windows(parts, size):
            digest.update(piece)
    return int.from_bytes(digest.digest(), "little") % ((1 << 63) - 1) or NOTHING


def _bytes(part: Any) -> memoryview:
    view = memoryview(part)
    return view if view.nbytes == 0 else view.cast("B")


def _windows(parts: Sequence[Any], size: int) -> list[memoryview]:
    """Pieces that are evenly spread over the bytes of all parts."""
    starts = [number * (size - WINDOW_BYTES) // (WINDOWS - 1) for number in range(WINDOWS)]
    pieces, first = [], 0
    for part in parts:
        view = memoryview(part)
        if not view.nbytes:
            continue
        view, last = view.cast("B"), first + view.nbytes
        for start in starts:
            low, high = max(start, first), min(start + WINDOW_BYTES, last)
            if low < high:
                pieces.append(view[low - first : high - first])
        first = last
    return pieces
