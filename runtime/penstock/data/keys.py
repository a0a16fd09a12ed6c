"""Keys of a job, each for one purpose, all from the job's token: the token itself is never used.

A job has one secret, its token. Whoever holds that is of the job; but what is made with a key of
one purpose is worth nothing for another, and none of them gives the token or each other: a key is
``HMAC-SHA256(token, purpose)``, the expansion of HKDF (RFC 5869) with the token as its secret. In a
share group it holds the group's token as well, whose keys are made alike and are for the first four
of these purposes, between the data workers of one member and the training of another.

| purpose   | protects                                                                          |
|-----------|-----------------------------------------------------------------------------------|
| PIPELINE  | that a data worker opens (unpickles) pipelines of its own job only                |
| HANDSHAKE | who may open a connection of the data plane, or to a parameter server             |
| FRAMES    | what travels on such a connection, once both nonces of its handshake are mixed in |
| CALL      | who may call the trainer, or the dispatcher, and that a call is not changed       |
| REPLY     | that an answer is the trainer's, and to this call                                 |
| GROUP     | who may join a group of training processes, and what its control channels say    |
"""

from __future__ import annotations

import hmac
from enum import StrEnum


class Purpose(StrEnum):
    """What a key is for; the values are part of the protocol."""

    PIPELINE = "pipeline"
    HANDSHAKE = "handshake"
    FRAMES = "frames"
    CALL = "call"
    REPLY = "reply"
    GROUP = "group"


def derive_key(token: str, purpose: Purpose) -> bytes:
    """The key of 32 bytes that a job with this token has for a purpose."""
    return expand_key(token.encode(), f"penstock {purpose.value}".encode())


def expand_key(key: bytes, info: bytes) -> bytes:
    """A key of 32 bytes out of another, for what ``info`` names: the first block of HKDF-Expand."""
    return hmac.new(key, info + b"\x01", "sha256").digest()
