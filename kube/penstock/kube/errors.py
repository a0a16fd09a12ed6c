"""What can go wrong between a process and its cluster.

Two kinds of failed calls matter to whoever acts on a cluster and are told apart: an
`ApiRefusedError` is a definite answer that nothing was done; after an `ApiUnavailableError` nobody
knows whether anything was.
"""

from __future__ import annotations

from typing import Final

_NOT_AS_SEEN: Final = frozenset({404, 409})


class KubeError(Exception):
    """Root of the errors of `penstock.kube`."""


class ConfigurationError(KubeError):
    """The process cannot start; the message says what to do."""


class PortInUseError(KubeError):
    """The address to listen on is taken; the message names it."""


class ApiError(KubeError):
    """A call to the API server that did not succeed.

    ``code`` is the HTTP status, 0 where there was no answer; ``reason`` is the API server's word
    for it.
    """

    def __init__(self, message: str, *, code: int, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class ApiRefusedError(ApiError):
    """The API server answered that it did nothing.

    ``retry_after`` is the number of seconds to wait where the server named one.
    """

    def __init__(
        self, message: str, *, code: int, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message, code=code, reason=reason)
        self.retry_after = retry_after

    @property
    def not_as_seen(self) -> bool:
        """Whether the object is gone, or has changed since it was looked at."""
        return self.code in _NOT_AS_SEEN


class ApiUnavailableError(ApiError):
    """No answer, or one (5xx) that leaves open whether anything was done."""
