"""The Python SDK: `Penstock` for jobs, `BrainClient` for the Brain, each with an async twin.

The objects that go in and come out are those of `penstock.crds` and `penstock.wire`. Every
error on purpose is a `PenstockError`.
"""

from __future__ import annotations

from penstock.client.async_sdk import AsyncPenstock
from penstock.client.brain.async_brain_client import AsyncBrainClient
from penstock.client.brain.brain_client import BrainClient
from penstock.client.brain.calls import LedgerSnapshot, Tagged
from penstock.client.brain.sample_buffer import SampleBuffer
from penstock.client.errors import (
    BrainAddressError,
    BrainError,
    BrainRefusedError,
    BrainUnavailableError,
    ClusterError,
    ClusterRefusedError,
    ClusterUnreachableError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    JobEndedError,
    KubeconfigError,
    NotAllowedError,
    NotFoundError,
    NotInstalledError,
    ObjectConflictError,
    ObjectNotFoundError,
    PenstockError,
    PreconditionFailedError,
    ProtocolError,
    WaitTimeoutError,
)
from penstock.client.retry import RetryPolicy
from penstock.client.sdk import Penstock
from penstock.client.token import TokenFile

__all__ = [
    "AsyncBrainClient",
    "AsyncPenstock",
    "BrainAddressError",
    "BrainClient",
    "BrainError",
    "BrainRefusedError",
    "BrainUnavailableError",
    "ClusterError",
    "ClusterRefusedError",
    "ClusterUnreachableError",
    "ConflictError",
    "ForbiddenError",
    "InvalidObjectError",
    "JobEndedError",
    "KubeconfigError",
    "LedgerSnapshot",
    "NotAllowedError",
    "NotFoundError",
    "NotInstalledError",
    "ObjectConflictError",
    "ObjectNotFoundError",
    "Penstock",
    "PenstockError",
    "PreconditionFailedError",
    "ProtocolError",
    "RetryPolicy",
    "SampleBuffer",
    "Tagged",
    "TokenFile",
    "WaitTimeoutError",
]
