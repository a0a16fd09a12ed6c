"""Whether a process that stands still is ended, by ``failurePolicy.onHang``; pure.

To end one that works costs more than to wait for one that hangs, so that much has to agree:

- it has stood still for longer than its usual pause by `HangPolicy.after_seconds`, not counting
  what it waited for a core as far as `detector` excuses it, and was looked at within the last
  `FRESH_SECONDS`;
- it is stopped, waits for a lock, a file or the network, or all processes of a launched world wait
  for one another. Who waits for data or for a checkpoint may have slow storage, which another start
  makes no faster; of one whose stack cannot be read, nothing is known;
- its machine says that it does not move: it and what it has started use no CPU, read and write
  nothing, and its main thread is not woken (`penstock.trainer.standstill.stack.movement`).

Guarantees: each rank is ended at most `HangPolicy.most` times, failures of other kinds included;
afterwards it is named, and nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.base.enums import OnHang
from penstock.trainer.standstill.detector import Standing
from penstock.trainer.standstill.stack import Kind

FRESH_SECONDS: Final = 5.0
"""What was seen earlier says nothing of now."""
AGAIN_SECONDS: Final = 120.0
"""Until one that moves is looked at again: each time, all stacks are written to the logs."""
AFTER_SECONDS: Final = 60.0
MOST: Final = 3

_ENDED: Final = frozenset({Kind.STOPPED, Kind.WAITS})
"""Kinds of which another start may help; and `Kind.COLLECTIVE` of all processes of a world."""
_LEFT: Final = {
    Kind.DATA: "slow storage looks the same, and another start makes it no faster",
    Kind.CHECKPOINT: "slow storage looks the same, and another start would lose what it saves",
    Kind.COLLECTIVE: "none of those who wait is known to be the cause",
    Kind.LOOPS: "it computes",
    Kind.UNKNOWN: "what it is at is not known",
}


@dataclass(frozen=True, slots=True)
class HangPolicy:
    """What a job wants to be done.

    Attributes:
        response: what follows.
        after_seconds: beyond the longest pause so far.
        most: how often each rank may fail or be ended.
    """

    response: OnHang = OnHang.REPORT
    after_seconds: float = AFTER_SECONDS
    most: int = MOST


@dataclass(frozen=True, slots=True)
class Hang:
    """One process that stands still, and what its rank has been through.

    Attributes:
        standing: the process, as it was looked at last.
        whole_world: whether all processes of a world that agents launch stand still.
        able: whether its agent can end it.
        ended: how often a process of its rank was ended so before.
        failures: of its rank, as they count against ``maxRestarts``.
    """

    standing: Standing
    whole_world: bool = False
    able: bool = True
    ended: int = 0
    failures: int = 0


class Step(StrEnum):
    """What to do about it now."""

    WAIT = "wait"  # it is too early
    LOOK = "look"  # it has to be looked at anew
    LEAVE = "leave"  # it is named, and not ended
    END = "end"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and for people why a process is left alone."""

    step: Step
    why: str = ""


def judge(hang: Hang, policy: HangPolicy, now: float) -> Verdict:
    """What is to be done about one process; ``now``: by the clock of `Standing.at`."""
    if policy.response is OnHang.REPORT:
        return Verdict(Step.LEAVE)
    if why := _obstacle(hang, policy):
        return Verdict(Step.LEAVE, why)
    one = hang.standing
    seen = now - one.at
    if one.paused + seen < one.usual + policy.after_seconds:
        return Verdict(Step.WAIT)
    if one.moves:
        return Verdict(Step.LEAVE, one.moves) if seen < AGAIN_SECONDS else Verdict(Step.LOOK)
    return Verdict(Step.END if seen <= FRESH_SECONDS else Step.LOOK)


def _obstacle(hang: Hang, policy: HangPolicy) -> str:
    """Why it is not ended, however long it stands still; "" where nothing speaks against it."""
    kind = hang.standing.kind
    if kind not in _ENDED and not (kind is Kind.COLLECTIVE and hang.whole_world):
        return _LEFT[kind]
    if not hang.able:
        return "its agent cannot: the job's image has an older release"
    if max(hang.ended, hang.failures) >= policy.most:
        return (
            f"its rank was ended so {hang.ended} times and failed {hang.failures} times, and "
            f"failurePolicy.maxRestarts is {policy.most}"
        )
    return ""
