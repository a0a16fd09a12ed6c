"""What the trainer writes into ``status.problems``, and the conditions that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.life import Life

Json = dict[str, Any]

FULL = "worker-0: no checkpoint in /ckpt: No space left on device; make room there"


def problem(reason: str, message: str = FULL, *, fatal: bool = False) -> Json:
    said = {"reason": reason, "message": message, "source": "worker-0"}
    return {**said, "since": "2026-01-01T12:00:00Z", **({"fatal": True} if fatal else {})}


def say(life: Life, *problems: Json) -> None:
    """The trainer writes its field."""
    life.server.edit(
        "elasticjobs", "job", lambda found: found["status"].update(problems=list(problems))
    )


def running(life: Life, **arguments: Any) -> None:
    life.create_job(workers={"replicas": 2}, **arguments)
    life.settle()


def test_storage_is_healthy_while_nobody_complains_and_that_is_no_event(life: Life) -> None:
    running(life)
    assert life.condition("StorageHealthy") == ("True", "NothingUnwritten")
    assert not {"StorageFailing", "StorageRecovered"} & set(life.events())


def test_what_cannot_be_written_is_a_condition_and_an_event_and_so_is_its_end(life: Life) -> None:
    running(life)
    say(life, problem("CheckpointsNotWritten"))
    life.settle()
    assert life.condition("StorageHealthy") == ("False", "CheckpointsNotWritten")
    assert life.message("StorageHealthy") == FULL
    assert life.condition("Running")[0] == "True"
    assert life.events().count("StorageFailing") == 1
    say(life)
    life.settle()
    assert life.condition("StorageHealthy") == ("True", "NothingUnwritten")
    assert life.events().count("StorageFailing") == 1
    assert life.events().count("StorageRecovered") == 1


def test_a_budget_that_is_not_kept_is_told_and_the_job_runs_on(life: Life) -> None:
    running(life)
    over = "the job is expected to cost more than its budget of 25 EUR"
    say(life, problem("BudgetNotKept", over))
    life.settle()
    assert life.condition("Running") == ("True", "BudgetNotKept")
    assert life.message("Running") == over
    assert life.events().count("BudgetNotKept") == 1
    say(life)
    life.settle()
    assert life.condition("Running") == ("True", "EnoughWorkers")


def test_the_worst_gives_the_reason_and_all_are_told(life: Life) -> None:
    running(life)
    say(life, problem("StepLogNotWritten", "no step log"), problem("JournalNotWritten", "none"))
    life.settle()
    assert life.condition("StorageHealthy") == ("False", "JournalNotWritten")
    assert life.message("StorageHealthy") == "none; no step log"


def test_the_controller_leaves_the_trainers_field_alone(life: Life) -> None:
    running(life)
    said = [problem("StepLogNotWritten")]
    say(life, *said)
    life.settle()
    life.restart()
    life.create_scale("one", {"worker": {"replicas": 1}})
    life.settle()
    assert life.status["problems"] == said


def test_a_word_that_this_controller_does_not_know_changes_nothing(life: Life) -> None:
    running(life)
    say(life, problem("OfALaterRelease", fatal=True))
    life.settle()
    assert life.condition("StorageHealthy")[0] == "True"
    assert life.condition("Failed")[0] == "False"


@pytest.mark.parametrize("reason", ["SeparateCopies", "DuplicateRank"])
def test_a_fatal_problem_fails_the_job(life: Life, reason: str) -> None:
    running(life)
    say(life, problem(reason, "2 workers of the job each train alone", fatal=True))
    life.settle()
    assert life.condition("Failed") == ("True", reason)
    assert life.message("Failed") == "2 workers of the job each train alone"
    assert life.condition("Succeeded")[0] == "False"
    assert life.condition("Running") == ("False", "Finished")
    assert life.names() == [], "its pods are ended"
    assert life.events().count("Failed") == 1
    assert "completionTime" in life.status


def test_a_fatal_problem_is_no_success_though_all_programs_exit_with_0(life: Life) -> None:
    running(life)
    for name in ("job-worker-0-0", "job-worker-1-0", "job-trainer-0-0"):
        life.end_pod(name, 0)
    say(life, problem("SeparateCopies", fatal=True))
    life.settle()
    assert life.condition("Failed") == ("True", "SeparateCopies")
    assert life.condition("Succeeded")[0] == "False"
    assert "Succeeded" not in life.events()


def test_a_fatal_problem_fails_a_job_that_was_suspended_meanwhile(life: Life) -> None:
    running(life)
    say(life, problem("SeparateCopies", fatal=True))
    life.edit_spec(lambda spec: spec.update(suspend=True))
    life.settle()
    assert life.condition("Failed") == ("True", "SeparateCopies")
    assert life.names() == []


def test_a_job_that_has_succeeded_stays_so_whatever_is_said_later(life: Life) -> None:
    running(life)
    for name in life.names("worker"):
        life.end_pod(name, 0)
    life.settle()
    assert life.condition("Succeeded")[0] == "True"
    say(life, problem("SeparateCopies", fatal=True))
    life.settle()
    assert life.condition("Succeeded")[0] == "True"
    assert life.condition("Failed")[0] == "False"


def test_what_stands_still_and_what_was_done_about_it_are_conditions_and_events(life: Life) -> None:
    running(life)
    still, ended = problem("TrainingStandsStill", "a"), problem("HungProcessEnded", "b")
    for said, reason in (([still], still), ([still, ended], still), ([ended], ended)):
        say(life, *said)
        life.settle()
        assert life.condition("Running") == ("True", reason["reason"])
        assert life.message("Running") == reason["message"]
    say(life)
    life.settle()
    assert life.condition("Running") == ("True", "EnoughWorkers")
    assert life.events().count("TrainingStandsStill") == 1
    assert life.events().count("HungProcessEnded") == 1
