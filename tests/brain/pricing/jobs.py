"""Jobs whose options follow Amdahl's law, each with a price."""

from __future__ import annotations

import numpy as np

from penstock.brain.model.spent import GIB
from penstock.brain.pricing.problem import Option, PricedJob, Prices, Resources

PRICES = Prices(core_hour=0.03, gib_hour=0.004, accelerator_hour=2.4)


def amdahl(
    name: str,
    serial: float,
    counts: tuple[int, ...] = (1, 2, 4, 8),
    *,
    accelerators: int = 0,
    weight: float = 1.0,
    priority: int = 0,
    queue: str = "team",
) -> PricedJob:
    """Workers of 4 cores and 8 GiB."""
    options = []
    for count in counts:
        resources = Resources(
            milli_cpu=4000 * count, memory_bytes=8 * GIB * count, accelerators=accelerators * count
        )
        options.append(
            Option(
                name=f"{count}",
                throughput=count / (1 + serial * (count - 1)),
                resources=resources,
                cost_per_hour=resources.cost_per_hour(PRICES),
            )
        )
    return PricedJob(
        name=name, options=tuple(options), weight=weight, priority=priority, queue=queue
    )


def drawn(rng: np.random.Generator, count: int) -> list[PricedJob]:
    """So many that differ in scaling, weight, queue, and in whether they have accelerators."""
    return [
        amdahl(
            f"job-{number}",
            float(rng.uniform(0, 0.4)),
            accelerators=int(rng.random() < 0.4),
            weight=float(rng.uniform(0.5, 2)),
            queue=str(rng.choice(["a", "b"])),
        )
        for number in range(count)
    ]


def cores(count: float) -> Resources:
    """So many cores, and of all else enough."""
    return Resources(milli_cpu=round(1000 * count), memory_bytes=10**15, accelerators=10**6)
