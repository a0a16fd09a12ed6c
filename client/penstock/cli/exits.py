"""Exit codes of the commands, and which error leads to which: the only place that says so."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self


class Exit(IntEnum):
    """What a command ends with.

    Attributes:
        meaning: one sentence for the documentation.
    """

    _value_: int
    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        """Each member is written as (code, meaning)."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = (0, "done")
    FAILED = (1, "failed: the job failed, the doctor found a fault, or the message says what")
    USAGE = (2, "the command line or the manifest is wrong")
    NOT_FOUND = (3, "there is no such job, or the cluster has no Penstock")
    NOT_ALLOWED = (4, "the caller is not known, or may not do this")
    UNREACHABLE = (5, "the cluster or the Brain does not answer, or none is named")
    TIMED_OUT = (6, "what was waited for did not come about in time")


INTERRUPTED: Final = 130
"""Ended by Ctrl-C, as a shell counts it."""


def in_words() -> str:
    """All codes in one line, for ``--help``."""
    return "; ".join(f"{code.value} {code.meaning}" for code in Exit)


def exit_for(error: Exception) -> Exit | None:
    """The code for an error that was meant to be; None for a fault of the program itself."""
    from penstock.client import errors

    match error:
        case errors.ObjectNotFoundError() | errors.NotFoundError():
            return Exit.NOT_FOUND
        case errors.ForbiddenError() | errors.NotAllowedError():
            return Exit.NOT_ALLOWED
        case (
            errors.KubeconfigError()
            | errors.ClusterUnreachableError()
            | errors.BrainUnavailableError()
            | errors.BrainAddressError()
        ):
            return Exit.UNREACHABLE
        case errors.InvalidObjectError() | UsageError():
            return Exit.USAGE
        case errors.WaitTimeoutError():
            return Exit.TIMED_OUT
        case errors.PenstockError():
            return Exit.FAILED
        case _:
            return None


class UsageError(Exception):
    """What was asked for makes no sense; the message says which option or field, and the rule."""
