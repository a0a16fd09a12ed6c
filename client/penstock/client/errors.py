"""What can go wrong with a call to the Brain or the cluster; every error says what to do about it.

Everything that this package raises on purpose is a `PenstockError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.wire.problems import Problem, ProblemType


class PenstockError(Exception):
    """What the client was asked for did not come about; the message says why and what to do."""


class ClusterError(PenstockError):
    """A call to the Kubernetes API did not succeed."""


class KubeconfigError(ClusterError):
    """There is no kubeconfig, or it does not say how to reach a cluster."""


class ClusterUnreachableError(ClusterError):
    """The API server did not answer, or not in time. The call may be repeated."""


class ClusterRefusedError(ClusterError):
    """The API server understood the call and refused it.

    Attributes:
        code: the HTTP status.
        fields: what is wrong with the object, ``(field, rule)``; empty where it is something else.
    """

    def __init__(self, message: str, *, code: int, fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.fields = tuple(fields)


class ObjectNotFoundError(ClusterRefusedError):
    """404: there is no such object."""


class NotInstalledError(ObjectNotFoundError):
    """404: the cluster does not serve the resource at all, or not in this version."""


class ForbiddenError(ClusterRefusedError):
    """401 or 403: the cluster does not know the caller, or the caller may not do this."""


class InvalidObjectError(ClusterRefusedError):
    """400 or 422: the object breaks a rule; `fields` says which."""


class ObjectConflictError(ClusterRefusedError):
    """409: an object of that name exists, or the object has changed since it was read."""


class JobEndedError(PenstockError):
    """The job has ended, or was deleted, and what was waited for cannot come about any more."""


class WaitTimeoutError(PenstockError):
    """What was waited for did not come about in the time allowed; it may still."""


class BrainError(PenstockError):
    """A call to the Brain did not succeed."""


class BrainAddressError(BrainError):
    """Nobody said where the Brain is, and it could not be found."""


class BrainUnavailableError(BrainError):
    """The Brain could not be reached, or could not serve the call, within the time allowed.

    The call may be repeated later: every call of the client is idempotent.
    """

    def __init__(self, what: str, *, attempts: int, seconds: float, cause: str) -> None:
        self.attempts = attempts
        self.seconds = seconds
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(
            f"{what}: the Brain did not answer, tried {times} in {seconds:.1f} s; last: {cause}"
        )


class BrainRefusedError(BrainError):
    """The Brain understood the call and refused it; repeating it as it is will not help."""

    def __init__(self, what: str, problem: Problem) -> None:
        self.problem = problem
        fields = "; ".join(f"{each.field}: {each.rule}" for each in problem.errors)
        super().__init__(
            f"{what}: {problem.status} {problem.title}: {problem.detail}"
            + (f" ({fields})" if fields else "")
        )

    @property
    def type(self) -> str:
        """The stable type of the problem; compare it with `ProblemType`."""
        return self.problem.type


class NotFoundError(BrainRefusedError):
    """404: no such job, plan, ledger or algorithm."""


class NotAllowedError(BrainRefusedError):
    """401 or 403: the token is missing, unknown or may not do this."""


class ConflictError(BrainRefusedError):
    """409: the job has ended, the ledger is older than the stored one, or a key was used twice."""


class PreconditionFailedError(BrainRefusedError):
    """412: the plan has changed since it was read. Read it again and decide again."""


class ProtocolError(BrainError):
    """The answer is not one that this version of the client understands."""


_BY_STATUS: Final = {
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
}


def refusal(what: str, problem: Problem) -> BrainRefusedError:
    """The error for a problem that the Brain sent."""
    return _BY_STATUS.get(problem.status, BrainRefusedError)(what, problem)


__all__ = [
    "BrainAddressError",
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
    "NotAllowedError",
    "NotFoundError",
    "NotInstalledError",
    "ObjectConflictError",
    "ObjectNotFoundError",
    "PenstockError",
    "PreconditionFailedError",
    "ProblemType",
    "ProtocolError",
    "WaitTimeoutError",
    "refusal",
]
