"""What the stages of a job's input do, from the reports of its data workers."""

from __future__ import annotations

from penstock.data.protocol import WorkerReport
from penstock.trainer.brain.stage_rates import WINDOW_SECONDS, StageRates
from penstock.wire.samples import QueueSample, Sample, SampleBatch, StageSample

SECOND = frozenset({"s"})


def report(name: str, batches: int, busy: float) -> WorkerReport:
    return WorkerReport(name=name, batches=batches, busy_share=busy)


def run(rates: StageRates, seconds: int, start: int = 0, *, second: bool = True) -> None:
    """Two data workers make 3 batches a second each, the accelerated one 6, at changing shares."""
    for now in range(start, start + seconds):
        busy = 0.5 + 0.5 * (now % 2)
        reports = [report("a", 3 * now, busy), report("b", 3 * now, 0.5)]
        if second:
            reports.append(report("s", 6 * now, 0.25))
        rates.note(reports, SECOND, float(now))


def test_each_stage_is_added_up_over_the_window() -> None:
    rates = StageRates()
    run(rates, 200)
    first, second = rates.stages() or ()
    assert (first.made_per_second, second.made_per_second) == (6.0, 6.0)
    assert abs(first.busy_share - 0.625) < 0.02
    assert second.busy_share == 0.25
    assert rates._seen[-1][0] - rates._seen[0][0] <= WINDOW_SECONDS + 1


def test_one_stage_is_none() -> None:
    rates = StageRates()
    run(rates, 60, second=False)
    assert rates.stages() is None
    assert not rates._seen


def test_what_was_before_somebody_came_or_left_does_not_count() -> None:
    rates = StageRates()
    run(rates, 60)
    run(rates, 3, 60, second=False)
    assert rates.stages() is None
    run(rates, 4, 63)
    assert rates.stages() is None, "not for long enough"
    run(rates, 4, 67)
    assert rates.stages() is not None


def test_a_stage_without_workers_makes_nothing() -> None:
    rates = StageRates()
    for now in range(10):
        rates.note([report("s", now, 1.0)], SECOND, float(now))
    assert rates.stages() == [
        StageSample(made_per_second=0.0, busy_share=0.0),
        StageSample(made_per_second=1.0, busy_share=1.0),
    ]


def test_a_brain_of_the_release_before_does_not_hear_of_stages() -> None:
    stages = [StageSample(made_per_second=1.0, busy_share=1.0)] * 2
    queue = QueueSample(enqueued_per_second=1.0, dequeued_per_second=1.0, stages=stages)
    batch = SampleBatch(samples=[Sample(time=1.0, step=1, steps_per_second=1.0, queue=queue)])
    [plain] = batch.for_release_before().samples
    assert plain.queue == queue.model_copy(update={"stages": None})
    bare = SampleBatch(samples=[Sample(time=1.0, step=1, steps_per_second=1.0)])
    assert bare.for_release_before() == bare
