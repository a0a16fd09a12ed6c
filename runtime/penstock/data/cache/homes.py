"""Which of several caches keeps a file: weighted rendezvous hashing, without a table: pure.

Everybody who knows who is there knows where a file is; nothing is looked up that could be lost or
out of date. A file goes to the cache with the highest score for it. So one that joins takes its
share from all others, one that leaves gives its share to all others, and nothing else moves.
(Thaler and Ravishankar, 1998; the weights are those of Schindler et al.: ``-weight / ln(hash)``.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Final

_RANGE: Final = float(1 << 53)


def home_of(item: str | bytes, daemons: Mapping[str, float] | Iterable[str]) -> str | None:
    """The daemon that keeps an item; None where there is none.

    Args:
        item: what names it everywhere alike.
        daemons: their names; with weights, such as bytes, where they differ. A weight of 0 gets
            nothing.

    Raises:
        ValueError: a weight that is negative or no number.
    """
    name = item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item
    weights = daemons.items() if isinstance(daemons, Mapping) else ((one, 1.0) for one in daemons)
    best, highest = None, 0.0
    for daemon, weight in weights:
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight of {daemon}: {weight}; a number from 0")
        score = weight * _score(name, daemon)
        # The name decides between equals, so that the order in which they are given never does.
        if weight and (best is None or (score, daemon) > (highest, best)):
            best, highest = daemon, score
    return best


def _score(item: bytes, daemon: str) -> float:
    digest = hashlib.blake2b(item, digest_size=8, key=_key_of(daemon)).digest()
    drawn = ((int.from_bytes(digest, "big") >> 11) + 0.5) / _RANGE  # within 0 and 1, never either
    return -1.0 / math.log(drawn)


def _key_of(daemon: str) -> bytes:
    name = daemon.encode()
    return name if len(name) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.sha256(name).digest()
