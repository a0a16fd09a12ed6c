"""The errors of the scheduler: one tree, each saying which value broke which rule."""

from __future__ import annotations


class SchedulerError(Exception):
    """Root of the errors of `penstock.scheduler`."""


class InvalidRequestError(SchedulerError, ValueError):
    """A value handed to the scheduler is not what its field allows."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}={value!r}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


class UnknownPolicyError(SchedulerError, LookupError):
    """No policy goes by that name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no policy is called {name!r}; there are {', '.join(known)}")
        self.name = name


class OverCommitError(SchedulerError):
    """A take would have left a node with less than nothing: a bug of the caller."""
