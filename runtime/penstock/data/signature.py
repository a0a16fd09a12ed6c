"""Signatures with a job's token, so that only members of the job are believed."""

from __future__ import annotations

import hashlib
import hmac


def sign(token: str, blob: bytes | memoryview) -> bytes:
    """The signature of a pipeline."""
    return hmac.new(
        token.encode(), b"penstock pipeline" + hashlib.sha256(blob).digest(), "sha256"
    ).digest()


def signed(token: str, blob: bytes | memoryview, signature: object) -> bool:
    """Whether the signature is the one that `sign` gives."""
    return same(signature, sign(token, blob))


def same(proof: object, wanted: bytes) -> bool:
    """Whether a proof that a peer sent is the wanted one, in the same time for every answer."""
    return isinstance(proof, bytes) and hmac.compare_digest(proof, wanted)
