"""Fair: the job that is furthest from the speed it could have (GoldMiner 3.4.2)."""

from __future__ import annotations

from typing import ClassVar

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.policies.policy import LEAST_THROUGHPUT, AllocationPolicy


class Fair(AllocationPolicy):
    """Smallest (t + dt) / t_ideal."""

    name: ClassVar[str] = "Fair"

    def key(self, job: JobRates) -> float:
        """Relative speed with the next data worker."""
        return (job.throughput + job.gain) / max(job.ideal_throughput, LEAST_THROUGHPUT)
