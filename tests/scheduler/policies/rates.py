"""Job rates for tests."""

from __future__ import annotations

from dataclasses import replace

from penstock.scheduler.allocation_job import JobRates

STARVING = JobRates(
    job="job",
    enqueue=0.25,
    dequeue=1.0,
    throughput=0.25,
    ideal_throughput=1.0,
    accelerators=1,
    remaining_steps=1000.0,
    data_milli_cpu=8000,
    next_milli_cpu=8000,
    gain=0.25,
    data_workers=1,
)


def rates(job: str = "job", **changes: float) -> JobRates:
    """A starving job with some numbers changed."""
    # Each test names its own fields.
    return replace(STARVING, job=job, **changes)  # type: ignore[arg-type]
