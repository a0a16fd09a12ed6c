"""What workers say that they cannot write: a problem of the job until they can, or are gone.

A worker reports its troubles whole, again and again; those it no longer names are over. Words that
are not known here are a newer session's and pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.base.enums import Role
from penstock.crds.conditions import UNWRITTEN
from penstock.job.protocol import Trouble
from penstock.trainer.control.model.problems import Problems

FORGET_SECONDS: Final = 30.0
"""What a worker cannot write is forgotten when it has not been heard of for so long."""


class WriteProblems:
    """The troubles of one job's workers, kept among its problems."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._seen: dict[int, float] = {}  # ranks that cannot write, and when they said so last

    def hear(self, rank: int, troubles: Sequence[Trouble], now: float) -> None:
        """Take in all that a worker cannot write at present."""
        told = {trouble.reason: trouble.message for trouble in troubles}
        for reason in UNWRITTEN:
            if reason in told:
                self._problems.report(_name_of(rank), reason, told[reason], now)
                self._seen[rank] = now
            else:
                self._problems.clear(_name_of(rank), reason)
        if not told:
            self._seen.pop(rank, None)

    def forget(self, now: float) -> None:
        """Nobody waits for what a process that is gone could not write."""
        gone = [rank for rank, seen in self._seen.items() if now - seen > FORGET_SECONDS]
        for rank in gone:
            del self._seen[rank]
            for reason in UNWRITTEN:
                self._problems.clear(_name_of(rank), reason)


def _name_of(rank: int) -> str:
    return f"{Role.WORKER.in_names}-{rank}"
