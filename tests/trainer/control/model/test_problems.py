"""What goes wrong in a job, by where and what: said once, bounded, what is fatal for good."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from penstock.crds.conditions import JobReason
from penstock.crds.job_status import MAX_PROBLEM_MESSAGE, MAX_PROBLEMS, ElasticJobStatus
from penstock.trainer.cluster.job_end import End
from penstock.trainer.control.model.problems import MAX_KNOWN, Problems, as_status
from tests.trainer.control.test_coordinator import finished_by

ZERO = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHECKPOINTS = JobReason.CHECKPOINTS_NOT_WRITTEN
STEP_LOG = JobReason.STEP_LOG_NOT_WRITTEN
SEPARATE = JobReason.SEPARATE_COPIES


def test_a_problem_is_there_until_it_is_cleared_and_logged_once_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = Problems()
    with caplog.at_level(logging.INFO, "penstock.trainer"):
        problems.report("worker-0", CHECKPOINTS, "no space", 5.0)
        problems.report("worker-0", CHECKPOINTS, "no space at all", 9.0)
        [one] = problems.current()
        assert (one.message, one.since) == ("no space at all", 5.0)
        assert len(caplog.messages) == 1
        problems.clear("worker-1", CHECKPOINTS)
        problems.clear("worker-0", STEP_LOG)
        assert len(problems.current()) == 1
        problems.clear("worker-0", CHECKPOINTS)
        problems.clear("worker-0", CHECKPOINTS)
    assert problems.current() == ()
    assert len(caplog.messages) == 2


def test_what_is_fatal_comes_first_and_stays() -> None:
    problems = Problems()
    problems.report("worker-0", CHECKPOINTS, "no space", 1.0)
    assert not problems.current()[0].fatal
    problems.report("trainer", SEPARATE, "2 workers", 2.0, fatal=True)
    problems.clear("trainer", SEPARATE)
    assert problems.current()[0].fatal
    assert [one.reason for one in problems.current()] == [SEPARATE, CHECKPOINTS]


def test_a_status_has_one_entry_for_each_reason_and_counts_the_others() -> None:
    problems = Problems()
    for rank in (2, 0, 1):
        problems.report(f"worker-{rank}", STEP_LOG, f"no step log of {rank}", float(rank))
    problems.report("trainer", SEPARATE, "2 workers", 7.0, fatal=True)
    said = as_status(problems.current(), ZERO)
    assert said == [
        {
            "reason": "SeparateCopies",
            "source": "trainer",
            "message": "trainer: 2 workers",
            "since": "2026-01-01T12:00:07Z",
            "fatal": True,
        },
        {
            "reason": "StepLogNotWritten",
            "source": "worker-0",
            "message": "worker-0: no step log of 0 (and 2 more)",
            "since": "2026-01-01T12:00:00Z",
        },
    ]
    assert ElasticJobStatus.model_validate({"problems": said}).problems is not None


def test_neither_memory_nor_status_grows_beyond_its_bound() -> None:
    problems = Problems()
    for rank in range(MAX_KNOWN + 5):
        problems.report(f"worker-{rank}", STEP_LOG, "x" * 5000, 0.0)
    problems.report("trainer", SEPARATE, "2 workers", 1.0, fatal=True)
    assert len(problems.current()) == MAX_KNOWN + 1
    assert problems.current()[0].fatal
    said = as_status(problems.current(), ZERO)
    assert len(said) <= MAX_PROBLEMS
    assert max(len(one["message"]) for one in said) == MAX_PROBLEM_MESSAGE
    assert said[1]["message"].endswith(f"... (and {MAX_KNOWN - 1} more)")


def test_a_trainer_whose_job_was_refused_is_never_done() -> None:
    trainer, end = finished_by(0, 1), End()
    trainer.books.problems.report("workers", SEPARATE, "2 workers", 0.0, fatal=True)
    assert not end.reached(trainer.books, trainer.now)
    assert not end.reached(trainer.books, trainer.now + 86_400)
