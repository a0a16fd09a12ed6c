"""The order in which the Scales of a job count: that in which the controller has decided on them.

When it admits or refuses a Scale, the controller gives it a number, one more than the highest that
the job's Scales have, and writes it with the decision; the newest Scale is the one with the highest
number. The time of a Scale's creation does not decide: a clock that goes back, or two API servers
whose clocks differ, would let an older Scale win for as long as both exist.

What is not decided yet comes after all that is, in the order of its resource version, which API
servers count upwards. Scales without a number that were decided by an earlier release come first,
in the order of creation time and name that counted then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.crds.conditions import ScaleCondition

Position = tuple[int, int, str, str]
"""What Scales of one job are sorted by."""

_BEFORE_NUMBERS: Final = 0
_NUMBERED: Final = 1
_UNDECIDED: Final = 2


def position(
    number: int | None, *, decided: bool, version: str, created: str, name: str
) -> Position:
    """Where a Scale stands among those of its job.

    Args:
        number: what the controller gave it.
        decided: whether it is admitted or refused.
        version: its resource version; decimal, as API servers make them, or it does not count.
        created: when it was created, in a form that sorts by time.
        name: its name.
    """
    if number is not None:
        return _NUMBERED, number, created, name
    if decided:
        return _BEFORE_NUMBERS, 0, created, name
    return _UNDECIDED, int(version) if version.isdecimal() else 0, created, name


def position_of(scale: Mapping[str, Any]) -> Position:
    """Where a Scale stands, as the API server tells of it."""
    metadata, status = scale["metadata"], scale.get("status") or {}
    return position(
        status.get("number"),
        decided=any(
            one.get("type") == ScaleCondition.ADMITTED and one.get("status") in {"True", "False"}
            for one in status.get("conditions") or ()
        ),
        version=str(metadata.get("resourceVersion", "")),
        created=str(metadata.get("creationTimestamp", "")),
        name=str(metadata["name"]),
    )
