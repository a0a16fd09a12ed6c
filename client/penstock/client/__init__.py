"""Typed client of the Brain: `BrainClient` and `AsyncBrainClient`.

The objects that go in and come out are those of `penstock.api.schemas`.
"""

from penstock.client.asynchronous import AsyncBrainClient
from penstock.client.buffer import SampleBuffer
from penstock.client.calls import LedgerSnapshot, Tagged
from penstock.client.errors import (
    BrainError,
    BrainRefusedError,
    BrainUnavailableError,
    ConflictError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    ProtocolError,
)
from penstock.client.retry import RetryPolicy
from penstock.client.sync import BrainClient
from penstock.client.token import TokenFile

__all__ = [
    "AsyncBrainClient",
    "BrainClient",
    "BrainError",
    "BrainRefusedError",
    "BrainUnavailableError",
    "ConflictError",
    "LedgerSnapshot",
    "NotAllowedError",
    "NotFoundError",
    "PreconditionFailedError",
    "ProtocolError",
    "RetryPolicy",
    "SampleBuffer",
    "Tagged",
    "TokenFile",
]
