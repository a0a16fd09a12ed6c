"""What resources cost: the one place where an amount of them meets prices; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from penstock.brain.model.spent import GIB, Spent

HOUR: Final = 3600.0


class HourlyPrices(Protocol):
    """What an hour of a core, of a GiB of memory and of an accelerator costs, in one currency."""

    @property
    def core_hour(self) -> float:
        """Of one core."""
        ...

    @property
    def gib_hour(self) -> float:
        """Of one GiB of memory."""
        ...

    @property
    def accelerator_hour(self) -> float:
        """Of one accelerator."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What something costs, and how much of that was idle, or done again; in the currency of the
    prices."""

    cost: float
    idle: float
    repeated: float = 0.0


def cost(
    prices: HourlyPrices, core_hours: float, gib_hours: float, accelerator_hours: float
) -> float:
    """What so many hours of each cost."""
    return (
        core_hours * prices.core_hour
        + gib_hours * prices.gib_hour
        + accelerator_hours * prices.accelerator_hour
    )


def hourly(
    prices: HourlyPrices, milli_cpu: float, memory_bytes: float, accelerators: float
) -> float:
    """What an hour of such resources costs."""
    return cost(prices, milli_cpu / 1000, memory_bytes / GIB, accelerators)


def priced(spent: Spent, prices: HourlyPrices | None) -> Amount | None:
    """What was spent at these prices; None without any."""
    if prices is None:
        return None
    return Amount(
        cost=cost(prices, spent.core_seconds, spent.gib_seconds, spent.accelerator_seconds) / HOUR,
        idle=cost(
            prices,
            spent.idle_core_seconds,
            spent.idle_gib_seconds,
            spent.idle_accelerator_seconds,
        )
        / HOUR,
        repeated=cost(
            prices,
            spent.repeated_core_seconds,
            spent.repeated_gib_seconds,
            spent.repeated_accelerator_seconds,
        )
        / HOUR,
    )
