"""Data workers that a group of like jobs asks for, by the rule that the Brain plans with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.sim.report.goals import Goal, at_most
from penstock.throughput.decision.share_group import demand

MEMBERS: Final = (1, 2, 4, 8, 16, 64)
JUDGED: Final = 8
RATE: Final = 1.92
"""Batches a second that a job takes: M4 of tf.data service."""
WORKER_RATE: Final = 0.06
"""That a data worker makes: 32 feed a job."""
_GOAL: Final = 1.1


@dataclass(frozen=True, slots=True)
class DemandRow:
    """Data workers of a group: as planned, what the sum of its members would be, and a member's."""

    members: int
    planned: int
    summed: int
    most_of_one: int


def demands() -> list[DemandRow]:
    """Groups of identical jobs."""
    alone = sum(demand({"job-0": RATE}, WORKER_RATE).values())
    rows = []
    for members in MEMBERS:
        parts = demand({f"job-{one}": RATE for one in range(members)}, WORKER_RATE)
        rows.append(
            DemandRow(members, sum(parts.values()), members * alone, max(parts.values()))
        )  # fmt: skip
    return rows


def goals(rows: list[DemandRow]) -> list[Goal]:
    """Eight ask for no more than one."""
    by_members = {row.members: row.planned for row in rows}
    ratio = by_members[JUDGED] / by_members[1]
    return [at_most(f"demand of {JUDGED} like members by that of one", _GOAL, ratio)]
