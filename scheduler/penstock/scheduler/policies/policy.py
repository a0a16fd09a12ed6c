"""What an allocation policy is: a key per job; the job with the smallest key is served first."""

from __future__ import annotations

from typing import ClassVar, Final

from penstock.scheduler.allocation_job import JobRates

LEAST_THROUGHPUT: Final = 1e-12
"""Stands for no throughput at all, in steps per second, where one divides by it."""


class AllocationPolicy:
    """Base of the allocation policies.

    `takes_back` says whether the policy takes data workers from one job for another one that has
    the smaller key; the policies of the paper only hand out what is free.
    """

    name: ClassVar[str]
    takes_back: ClassVar[bool] = False

    def key(self, job: JobRates) -> float:
        """The smaller, the sooner the job gets the next data worker."""
        raise NotImplementedError

    def most_per_interval(self, job: JobRates) -> int:
        """How many data workers the job may get in one interval: one, as in the paper."""
        return 1
