"""Which ways of coding a batch a connection may use: what the job says, and what both ends can do.

A data worker names the codings that it knows in its handshake, where a release that knows of none
sees only a word more. Whoever takes its batches answers with a message (CODINGS), and only to those
who named some: so releases with and without it work together, each as the older of the two does.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from typing import Final, NamedTuple

from penstock.base.enums import Compression


class Coding(StrEnum):
    """One way of coding a batch."""

    DICTIONARY = "dictionary"
    ZSTD = "zstd"


MAX_CODINGS: Final = 8
_MAX_NAME: Final = 20
INSTALL: Final = "pip install 'penstock[zstd]' in the job's image"


class Allowed(NamedTuple):
    """What a data worker may do to batches for one training process.

    ``always``: whether the link binds or not; there is one coding then.
    """

    codings: tuple[Coding, ...] = (Coding.DICTIONARY,)
    always: bool = False


UNTOLD: Final = Allowed()
"""What a data worker does that is told nothing: as all did before they were told."""


@cache
def offered() -> tuple[Coding, ...]:
    """The codings that this process knows; nothing is imported for it."""
    if find_spec("zstandard") is None:
        return (Coding.DICTIONARY,)
    return (Coding.DICTIONARY, Coding.ZSTD)


def read_offer(said: object) -> tuple[Coding, ...]:
    """What the other end offers, of what is known here; nothing where it says nothing sensible."""
    if not isinstance(said, list) or len(said) > MAX_CODINGS:
        return ()
    names = {name for name in said if isinstance(name, str) and len(name) <= _MAX_NAME}
    return tuple(coding for coding in Coding if coding in names)


def allow(
    compression: Compression, here: Iterable[Coding], there: Iterable[Coding]
) -> tuple[Allowed, str]:
    """What is allowed where the job says ``compression``, and what to tell its user, if anything.

    Args:
        compression: as the job has it.
        here: codings that whoever takes the batches knows.
        there: those that the data worker knows.
    """
    if compression is Compression.NONE:
        return Allowed(()), ""
    ours, theirs = set(here), set(there)
    if compression is Compression.AUTO:
        return Allowed(tuple(one for one in Coding if one in ours & theirs)), ""
    for able, who in ((ours, "this process"), (theirs, "a data worker")):
        if Coding.ZSTD not in able:
            return Allowed(()), (
                f"compression: Zstd: {who} has no package zstandard, so that batches are sent as "
                f"they are: {INSTALL}"
            )
    return Allowed((Coding.ZSTD,), always=True), ""


def read_allowed(names: object, always: object) -> Allowed:
    """What a training process allows; names that are not known here are passed over."""
    codings = read_offer(names)
    return Allowed(codings, always is True and len(codings) == 1)
