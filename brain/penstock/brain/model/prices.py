"""What was spent, in money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.brain.configuration import PriceSettings
from penstock.brain.model.spent import Spent

HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What something costs, and how much of that was idle; in the currency of the prices."""

    cost: float
    idle: float


def priced(spent: Spent, prices: PriceSettings | None) -> Amount | None:
    """What was spent at these prices; None without any."""
    if prices is None:
        return None
    return Amount(
        cost=(
            spent.core_seconds * prices.core_hour
            + spent.gib_seconds * prices.gib_hour
            + spent.accelerator_seconds * prices.accelerator_hour
        )
        / HOUR,
        idle=(
            spent.idle_core_seconds * prices.core_hour
            + spent.idle_gib_seconds * prices.gib_hour
            + spent.idle_accelerator_seconds * prices.accelerator_hour
        )
        / HOUR,
    )
