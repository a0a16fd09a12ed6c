"""The report says what was measured, and names whatever was not as promised."""

from __future__ import annotations

from dataclasses import replace

from penstock.local.demo.observation.observer import result_in
from penstock.local.demo.observation.report import (
    Audit,
    JobEnd,
    PlanEntry,
    Report,
    Throughput,
    speed_between,
)

SPEEDS = [Throughput(float(second), 100.0 + second, 1) for second in range(10)]


def plan(workers: int) -> PlanEntry:
    return PlanEntry("p", 1.0, "Create", "Brain", "NoHistory", "why", "a", workers, None, 5.0)


def report(state: str = "Succeeded", lost: int = 0, plans: int = 2, restarts: int = 1) -> Report:
    return Report(
        job=JobEnd("digits", "default", state, "said the last line"),
        plans=tuple(plan(workers) for workers in range(1, plans + 1)),
        audit=Audit(samples_seen=100, samples_lost=lost, samples_repeated=0, accuracy=0.97),
        worker_restarts=restarts,
        seconds=61.23,
    )


def test_speed_is_the_median_within_the_span() -> None:
    assert speed_between(SPEEDS, 2.0, 5.0) == 103.0
    assert speed_between(SPEEDS, 20.0, 30.0) is None


def test_pauses_do_not_count_as_speed() -> None:
    speeds = [Throughput(1.0, 0.0, 0), Throughput(2.0, 50.0, 1)]
    assert speed_between(speeds, 0.0, 3.0) == 50.0


def test_a_good_report_has_no_faults() -> None:
    assert report().faults() == []


def test_each_broken_promise_is_named() -> None:
    assert report(state="Failed").faults() == ["the job ended as Failed: said the last line"]
    assert report(lost=3).faults() == ["3 samples were lost"]
    assert report(plans=1).faults() == ["the plan was never adjusted"]
    assert report(restarts=0).faults() == ["no killed worker was replaced"]


def test_who_gave_up_says_so_instead_of_an_end() -> None:
    given_up = replace(report(state="Running"), gave_up="not ended after 600 s")
    assert given_up.faults() == ["not ended after 600 s"]


def test_json_has_the_documented_fields() -> None:
    document = report().as_json()
    assert document["job"] == {
        "name": "digits",
        "namespace": "default",
        "state": "Succeeded",
        "message": "said the last line",
    }
    assert document["samples_lost"] == 0
    assert document["worker_restarts"] == 1
    assert document["seconds"] == 61.2


def test_the_last_result_in_a_log_counts() -> None:
    log = 'x\npenstock-result {"accuracy": 0.5}\n2026 penstock-result {"accuracy": 0.9}\nbye\n'
    assert result_in(log) == {"accuracy": 0.9}
    assert result_in("nothing here") is None
