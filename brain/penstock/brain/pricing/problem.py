"""Jobs with the configurations that each may run in, what these cost, and what all may take.

The question that `penstock.brain.pricing.greedy` answers and `penstock.brain.pricing.exact` checks:
one configuration for each job, so that the work of all is as much as possible, or costs as little
as possible. Throughputs of different jobs are added up by a weight of each job (its priority, times
what makes its unit comparable); nothing here knows what a unit of throughput is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.brain.errors import PricingError
from penstock.brain.model.prices import hourly


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What an hour of a core, of a GiB of memory and of an accelerator costs, in one currency."""

    core_hour: float
    gib_hour: float
    accelerator_hour: float

    def __post_init__(self) -> None:
        """Refuse what is no price.

        Raises:
            PricingError: A price is negative or no number.
        """
        for name in ("core_hour", "gib_hour", "accelerator_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PricingError(f"prices.{name} = {value}: must be a number of at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """An amount of each resource."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    accelerators: int = 0

    def cost_per_hour(self, prices: Prices) -> float:
        """What an hour of them costs."""
        return hourly(prices, self.milli_cpu, self.memory_bytes, self.accelerators)

    def amounts(self) -> tuple[int, int, int]:
        """CPU, memory and accelerators, in this order."""
        return self.milli_cpu, self.memory_bytes, self.accelerators


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One configuration of a job: its throughput, in units per second, and what it takes."""

    name: str
    throughput: float
    resources: Resources
    cost_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedJob:
    """A job with its options; `weight` is what one unit of its throughput is worth.

    Of a lower `priority` it comes later to its least configuration. `queue` names its quota.
    """

    name: str
    options: tuple[Option, ...]
    weight: float = 1.0
    priority: int = 0
    queue: str = ""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            PricingError: There is none, or one has a throughput or a cost that is no number.
        """
        if not self.options:
            raise PricingError(f"job {self.name}: options: at least one is needed")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise PricingError(f"job {self.name}: weight = {self.weight}: must be above 0")
        for option in self.options:
            if not (math.isfinite(option.throughput) and option.throughput > 0):
                raise PricingError(
                    f"job {self.name}: option {option.name}: throughput = {option.throughput}: "
                    "must be above 0; leave out what makes no progress"
                )
            if not (math.isfinite(option.cost_per_hour) and option.cost_per_hour >= 0):
                raise PricingError(
                    f"job {self.name}: option {option.name}: cost_per_hour = "
                    f"{option.cost_per_hour}: must be at least 0"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What all jobs may take: `capacity` together, each queue its quota; None: no bound.

    A plan stops to grow at `work`, where that is given, and then costs as little as it can.
    """

    capacity: Resources | None = None
    quotas: Mapping[str, Resources] = field(default_factory=dict)
    cost_per_hour: float | None = None
    work: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """What one job gets: an option, or None while it waits; why, and what came second."""

    job: PricedJob
    option: Option | None
    why: str = ""
    runner_up: Option | None = None
    runner_up_why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What all jobs get, in the order in which they were given.

    `marginal` is the work that the last unit of money bought; None where nothing grew. `reached`
    says whether the work that was wanted is there; true where none was.
    """

    allotments: Sequence[Allotment]
    marginal: float | None
    reached: bool

    @property
    def work(self) -> float:
        """The weighted throughput of all."""
        return math.fsum(
            one.job.weight * one.option.throughput for one in self.allotments if one.option
        )

    @property
    def cost_per_hour(self) -> float:
        """What all of it costs."""
        return math.fsum(one.option.cost_per_hour for one in self.allotments if one.option)

    @property
    def waiting(self) -> Sequence[PricedJob]:
        """The jobs whose least configuration did not fit."""
        return [one.job for one in self.allotments if one.option is None]


def useful(options: Iterable[Option]) -> tuple[Option, ...]:
    """The options that no other beats in every respect, the cheapest first.

    Of two that are equal in everything, the first one stays.
    """
    ordered = sorted(options, key=lambda option: (option.cost_per_hour, -option.throughput))
    kept: list[Option] = []
    for option in ordered:
        if not any(_beats(other, option) for other in kept):
            kept.append(option)
    return tuple(kept)


def _beats(one: Option, other: Option) -> bool:
    amounts = zip(one.resources.amounts(), other.resources.amounts(), strict=True)
    return one.throughput >= other.throughput and all(own <= its for own, its in amounts)
