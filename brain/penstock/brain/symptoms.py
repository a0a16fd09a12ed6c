"""What one sample shows that should not wait for the next interval: pure and cheap.

A symptom only makes the administrator ask earlier. Whether there is anything to do, and what, is
for the algorithms to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Annotated, Any, Final

from pydantic import Field

from penstock.base.enums import Role, Trigger
from penstock.brain.rank_columns import RankColumns
from penstock.brain.settings import Settings

_LEAST_RANKS: Final = 3
"""Fewer ranks have no median to be slower than."""

Share = Annotated[float, Field(gt=0, le=1)]


class SymptomSettings(Settings):
    """From where on a figure is a symptom."""

    hot_cpu_share: Share = 0.8
    """A parameter server that uses more of its CPU is hot (DLRover, section 4.2)."""
    hot_memory_share: Share = 0.9
    """A parameter server that uses more of its memory is hot."""
    idle_cpu_share: Share = 0.4
    """Parameter servers that together use less of their CPU are idle."""
    straggler_ratio: Annotated[float, Field(gt=1)] = 1.5
    """A worker whose steps take so many times the median is a straggler."""
    stall_share: Share = 0.95
    """An input queue that is filled with less than this share of what could be taken stalls."""


def detect(
    roles: Mapping[Role, RankColumns],
    enqueued_per_second: float | None = None,
    dequeued_per_second: float | None = None,
    settings: SymptomSettings | None = None,
    *,
    ideal_per_second: float | None = None,
) -> tuple[Trigger, ...]:
    """The symptoms of one sample, the most urgent first.

    What is taken from a queue is soon no more than what comes in, so where it is known what the
    training would take without ever waiting (`ideal_per_second`), that is what counts.
    """
    settings = settings or SymptomSettings()
    found = []
    if _straggler(roles.get(Role.WORKER, {}), settings):
        found.append(Trigger.STRAGGLER)
    cpu_shares = _shares(roles.get(Role.PS, {}), "milli_cpu", "milli_cpu_limit")
    memory_shares = _shares(roles.get(Role.PS, {}), "memory_bytes", "memory_limit_bytes")
    if any(share > settings.hot_cpu_share for share in cpu_shares) or any(
        share > settings.hot_memory_share for share in memory_shares
    ):
        found.append(Trigger.HOT_SERVER)
    elif cpu_shares and sum(cpu_shares) / len(cpu_shares) < settings.idle_cpu_share:
        found.append(Trigger.IDLE_SERVERS)
    wanted = dequeued_per_second if ideal_per_second is None else ideal_per_second
    if (
        enqueued_per_second is not None
        and wanted is not None
        and enqueued_per_second < settings.stall_share * wanted
    ):
        found.append(Trigger.DATA_STALL)
    return tuple(found)


def _straggler(workers: RankColumns, settings: SymptomSettings) -> bool:
    times = [value for value in workers.get("step_seconds", ()) if value]
    return len(times) >= _LEAST_RANKS and max(times) > settings.straggler_ratio * median(times)


def _shares(columns: RankColumns, used: str, granted: str) -> list[float]:
    pairs: list[tuple[Any, Any]] = list(
        zip(columns.get(used, ()), columns.get(granted, ()), strict=False)
    )
    return [use / limit for use, limit in pairs if limit]
