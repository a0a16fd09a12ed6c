"""What the allocation policies are told about a job: rates from its data queue, and its sizes.

The rates are those of GoldMiner (SIGMOD 2023, section 3.4), measured at the consumer's end of the
data queue over the last interval, in steps per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

STARVED_RATIO: Final = 0.95
"""A job wants a data worker while its queue is filled at less than this part of its emptying."""


@dataclass(frozen=True, slots=True)
class JobRates:
    """One job in one interval.

    `enqueue` is how fast data arrives, `dequeue` how fast the training could take it, `throughput`
    how fast the job trains, `ideal_throughput` how fast it would with all the data it can take.
    `gain` is the throughput that the next data worker is expected to add.
    """

    job: str
    enqueue: float
    dequeue: float
    throughput: float
    ideal_throughput: float
    accelerators: int
    remaining_steps: float
    data_milli_cpu: int
    next_milli_cpu: int
    gain: float
    waiting_seconds: float = 0.0
    """How long the job has wanted a data worker and got none."""
    data_workers: int = 0
    at_once: int = 1
    """Data workers that it is to get in one interval: more than one where a model asks for them."""

    def problem(self) -> str | None:
        """Why the numbers cannot be used; None where they can.

        A job that reports nonsense (NaN, infinity, less than zero) is left as it is: it neither
        gets nor loses data workers until its numbers are sound again.
        """
        rates = {
            "enqueue": self.enqueue,
            "dequeue": self.dequeue,
            "throughput": self.throughput,
            "ideal_throughput": self.ideal_throughput,
            "remaining_steps": self.remaining_steps,
            "gain": self.gain,
        }
        for name, value in rates.items():
            if not math.isfinite(value) or value < 0:
                return f"{name} is {value}: must be a finite number of at least 0"
        if self.next_milli_cpu < 1:
            return f"next_milli_cpu is {self.next_milli_cpu}: must be at least 1"
        return None

    @property
    def starves(self) -> bool:
        """Whether the job waits for data, so that a data worker would help."""
        return self.enqueue < STARVED_RATIO * self.dequeue
