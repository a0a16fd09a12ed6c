"""What can go wrong with a call to the Brain; every error says what to do about it."""

from penstock.api.schemas.problems import Problem, ProblemType


class BrainError(Exception):
    """A call to the Brain did not succeed."""


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


_BY_STATUS = {
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
    "BrainError",
    "BrainRefusedError",
    "BrainUnavailableError",
    "ConflictError",
    "NotAllowedError",
    "NotFoundError",
    "PreconditionFailedError",
    "ProblemType",
    "ProtocolError",
    "refusal",
]
