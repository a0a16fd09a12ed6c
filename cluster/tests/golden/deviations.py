"""Where the embedded cluster answers otherwise than the recorded server, and why.

The list is exact: a difference that is not here fails the replay, and so does an entry whose
difference is gone. ``at`` are the places that may differ, e.g. ``body.details`` or ``headers``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    scenario: str
    steps: tuple[int, ...]
    at: tuple[str, ...]
    reason: str


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "request-errors",
        (39,),
        ("body.message",),
        "The message of the refusal gives the size of the write in the encoding of etcd, which the "
        "embedded cluster does not have; the status, the reason and the limit are the same.",
    ),
)


def listed(scenario: str, step: int) -> list[Deviation]:
    """The deviations that are listed for a step."""
    return [entry for entry in DEVIATIONS if entry.scenario == scenario and step in entry.steps]
