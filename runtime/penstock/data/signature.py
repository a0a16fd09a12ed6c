"""Signatures with a key of the job, so that only members of the job are believed.

The key is derived from the job's token for this purpose alone (`penstock.data.keys`): whoever can
make calls, or speak on a connection, cannot by that sign what a data worker unpickles.
"""

from __future__ import annotations

import hashlib
import hmac

from penstock.data.keys import Purpose, derive_key


def sign(token: str, blob: bytes | memoryview) -> bytes:
    """The signature of a pipeline."""
    key = derive_key(token, Purpose.PIPELINE)
    return hmac.new(key, hashlib.sha256(blob).digest(), "sha256").digest()


def signed(token: str, blob: bytes | memoryview, signature: object) -> bool:
    """Whether the signature is the one that `sign` gives."""
    return same(signature, sign(token, blob))


def same(proof: object, wanted: bytes) -> bool:
    """Whether a proof that a peer sent is the wanted one, in the same time for every answer."""
    return isinstance(proof, bytes) and hmac.compare_digest(proof, wanted)
