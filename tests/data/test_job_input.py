"""From what training processes report to a profile of their job."""

from __future__ import annotations

from penstock.data.job_input import JobInput
from penstock.data.protocol import ConsumerReport, InputTotals, MakingTotals


def report(name: str, seconds: float, workers: int = 2, **changes: object) -> ConsumerReport:
    made = MakingTotals(batches=int(18 * seconds), seconds=2 * seconds, cpu_seconds=1.9 * seconds)
    totals = InputTotals(
        seconds=seconds,
        taken=int(18 * seconds),
        waited_seconds=0.6 * seconds,
        cpu_seconds=0.2 * seconds,
        batch_bytes=1000,
        cores=4,
        local_workers=workers,
        local=made,
    )
    return ConsumerReport(name=name, address="h:1", input=totals, **changes)


def test_a_profile_is_of_the_last_half_minute_and_of_those_who_were_there() -> None:
    books = JobInput()
    assert books.profile(1.0) is None
    for second in range(0, 60, 3):
        books.note([report("a", second), report("b", second)], 0, float(second))
    profile = books.profile(1.0)
    assert profile is not None
    assert (profile.processes, round(profile.rate.value), round(profile.stalled, 2)) == (2, 18, 0.6)


def test_when_somebody_comes_it_begins_anew() -> None:
    books = JobInput()
    for second in range(0, 30, 3):
        books.note([report("a", second)], 0, float(second))
    books.note([report("a", 31)], 1, 31.0)
    assert books.profile(1.0) is None
    for second in range(34, 60, 3):
        books.note([report("a", second)], 1, float(second))
    profile = books.profile(2.0)
    assert profile is not None
    assert (profile.resources.data_workers, profile.resources.data_worker_cores) == (1, 2.0)


def test_a_training_process_that_begins_again_is_not_measured_across_its_end() -> None:
    books = JobInput()
    for second in range(0, 20, 3):
        books.note([report("a", 100 + second)], 0, float(second))
    for second in range(20, 29, 3):
        books.note([report("a", second - 20)], 0, float(second))
    assert books.profile(1.0) is None
