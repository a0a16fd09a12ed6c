"""ShortestRemaining: the job that is done soonest for the cores it holds (GoldMiner 3.4.2)."""

from __future__ import annotations

from typing import ClassVar, Final

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.policies.policy import LEAST_THROUGHPUT, AllocationPolicy

AGEING_SECONDS: Final = 3600.0
"""After waiting this long for a data worker, a job counts as half as long."""


class ShortestRemaining(AllocationPolicy):
    """Smallest n (c + dc) / (t + dt), with ageing, so that no long job is passed over for ever."""

    name: ClassVar[str] = "ShortestRemaining"

    def __init__(self, ageing_seconds: float = AGEING_SECONDS) -> None:
        self._ageing_seconds = ageing_seconds

    def key(self, job: JobRates) -> float:
        """Remaining time with the next data worker times the cores it would hold then, aged."""
        cores = job.data_milli_cpu + job.next_milli_cpu
        remaining = remaining_seconds(job) * cores
        return remaining / (1.0 + job.waiting_seconds / self._ageing_seconds)


def remaining_seconds(job: JobRates) -> float:
    """How long the job would still take with the next data worker."""
    return job.remaining_steps / max(job.throughput + job.gain, LEAST_THROUGHPUT)
