"""LeastWork: first the job with the fewest core-seconds left, taking cores back for it (ours).

When CPU is what a cluster lacks, the cores are one server that jobs share, and the mean time in
such a system is shortest when the job with the least *work* left is served first, up to the speed
it can use, and others get what remains. The work left of a job is its remaining steps times the
core-seconds a step costs; unlike the time left, it does not change with what the job holds now.
Three things make the difference to ShortestRemaining:

- The order holds for cores already given, too: a short job that arrives while long ones hold all
  the cores gets theirs (`takes_back`). Data workers are stateless, so that costs a drain and no
  work. Handing out only what is free means waiting for a long job to end.
- A job about to saturate is not passed over because its next worker adds little: its work left is
  small, and finishing it frees accelerators, memory and all of its cores.
- Growth doubles. One worker per interval takes a quarter of an hour to feed a job that needs 30;
  as many as it has already, while its queue is still empty, takes five intervals, and overshoots
  the need by no more than the last step, which the size of that step is cut to.
"""

from __future__ import annotations

from typing import ClassVar

from penstock.scheduler.allocation_job import JobRates
from penstock.scheduler.policies.policy import LEAST_THROUGHPUT, AllocationPolicy


class LeastWork(AllocationPolicy):
    """Smallest n * (core-seconds per step)."""

    name: ClassVar[str] = "LeastWork"
    takes_back: ClassVar[bool] = True

    def key(self, job: JobRates) -> float:
        """Core-milliseconds of pre-processing that the job still needs."""
        produced = max(job.enqueue, job.throughput, LEAST_THROUGHPUT)
        if not job.data_milli_cpu:
            return job.remaining_steps * job.next_milli_cpu / max(job.gain, LEAST_THROUGHPUT)
        return job.remaining_steps * job.data_milli_cpu / produced

    def most_per_interval(self, job: JobRates) -> int:
        """As many as the job has, so that their number doubles."""
        return max(1, job.data_workers)
