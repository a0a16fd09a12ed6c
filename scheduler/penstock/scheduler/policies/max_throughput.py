"""MaxThroughput: the data worker goes where it adds most training per core (GoldMiner 3.4.2)."""

from __future__ import annotations

from typing import ClassVar

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.policies.policy import LEAST_THROUGHPUT, AllocationPolicy


class MaxThroughput(AllocationPolicy):
    """Largest d(t / t_ideal) / dc * g: relative speed gained per core, times the accelerators."""

    name: ClassVar[str] = "MaxThroughput"

    def key(self, job: JobRates) -> float:
        """Minus the scaling efficiency."""
        relative = job.gain / max(job.ideal_throughput, LEAST_THROUGHPUT)
        return -relative / job.next_milli_cpu * job.accelerators
