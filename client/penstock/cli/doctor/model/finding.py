"""What one check found: pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended; the words are printed, so that colours are not needed."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: which one, as in the documentation.
        said: what was found, with the value at fault.
        cure: what to do about it; empty only where nothing is wrong.
    """

    check: str
    verdict: Verdict
    said: str
    cure: str = ""

    def __post_init__(self) -> None:
        if self.verdict in (Verdict.WARNING, Verdict.FAULT) and not self.cure:
            raise ValueError(f"{self.check}: a finding without a cure helps nobody")


def ok(check: str, said: str) -> Finding:
    return Finding(check, Verdict.OK, said)


def skipped(check: str, said: str) -> Finding:
    """What could not be looked at, and why."""
    return Finding(check, Verdict.SKIPPED, said)


def warning(check: str, said: str, cure: str) -> Finding:
    return Finding(check, Verdict.WARNING, said, cure)


def fault(check: str, said: str, cure: str) -> Finding:
    return Finding(check, Verdict.FAULT, said, cure)
