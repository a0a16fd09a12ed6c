"""Condition InputPartitioned: what the trainer writes into ``status.input``, in a word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.reconcile.model.conditions import MESSAGE_LIMIT, Conditions
from penstock.controller.reconcile.model.observed import MovedStage
from penstock.controller.reconcile.partition_condition import set_input_partitioned
from penstock.crds.conditions import JobCondition, JobReason
from tests.controller.life import Life

Json = dict[str, Any]
KIND = JobCondition.INPUT_PARTITIONED
WORDS = st.text("ab ", max_size=600)
STAGES = st.builds(
    MovedStage,
    WORDS,
    st.sampled_from(["Recording", "Verifying", "On", "FellBack", "OfALaterRelease"]),
    WORDS,
    st.none() | st.integers(0, 1 << 40),
    st.integers(0, 100),
    WORDS,
)


def entry(name: str = "the loader of Images", state: str = "On", **fields: Any) -> Json:
    known = {"name": name, "source": "worker-0", "state": state, "movedPercent": 0}
    return {**known, **fields}


def say(life: Life, *entries: Json) -> None:
    """The trainer writes its field."""
    life.server.edit(
        "elasticjobs",
        "job",
        lambda found: found["status"].update(input={"partition": list(entries)}),
    )
    life.settle()


def running(life: Life, partition: str | None = None) -> None:
    fields = {} if partition is None else {"input": {"partition": partition}}
    life.create_job(workers={"replicas": 1}, **fields)
    life.settle()


def test_a_program_that_declares_nothing_has_nothing_moved_and_that_is_no_event(life: Life) -> None:
    running(life)
    assert life.condition("InputPartitioned") == ("False", "NothingDeclared")
    assert "penstock.data.offload" in life.message("InputPartitioned")
    assert not {"InputPartitioned", "InputAsWritten"} & set(life.events())


def test_never_is_said(life: Life) -> None:
    running(life, "Never")
    assert life.condition("InputPartitioned") == ("False", "PartitionOff")
    assert not {"InputPartitioned", "InputAsWritten"} & set(life.events())


def test_what_moves_is_unknown_until_it_is_proven_and_then_an_event(life: Life) -> None:
    running(life, "Auto")
    assert life.condition("InputPartitioned") == ("Unknown", "StagesNotProven")
    say(life, entry(state="Recording"))
    assert life.message("InputPartitioned") == "the loader of Images: Recording"
    moves: Json = {"prefix": "2 calls move (div, Sequential)", "crossingBytes": 16384}
    say(
        life,
        entry(**moves, movedPercent=12),
        entry("Tokeniser", prefix="Tokeniser"),
        entry("the loader of Validation", "FellBack", why="it draws random numbers"),
    )
    assert life.condition("InputPartitioned") == ("True", "StagesMoved")
    assert life.message("InputPartitioned") == (
        "2 of 3 moved, 16384 bytes cross in each step: the loader of Images: 2 calls move (div, "
        "Sequential); Tokeniser; as written: the loader of Validation: it draws random numbers"
    )
    assert life.events().count("InputPartitioned") == 1
    say(life, entry(state="Verifying", **moves, movedPercent=7))
    assert life.condition("InputPartitioned") == ("True", "StagesMoved"), "a worker has joined"
    say(life, entry(state="FellBack", **moves, movedPercent=7, why="it was written to"))
    assert life.condition("InputPartitioned") == ("False", "StagesFellBack")
    assert life.message("InputPartitioned") == (
        "the program runs as written: the loader of Images: it was written to"
    )
    assert life.events().count("InputPartitioned") == 1
    assert life.events().count("InputAsWritten") == 1


def test_numbers_alone_are_no_event_and_the_trainers_field_is_left_alone(life: Life) -> None:
    running(life, "Auto")
    for percent in (1, 50, 99):
        say(life, entry(crossingBytes=8, movedPercent=percent))
    assert life.events().count("InputPartitioned") == 1
    assert life.status["input"] == {"partition": [entry(crossingBytes=8, movedPercent=99)]}


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_still_says_it(life: Life, state: str) -> None:
    running(life, "Auto")
    say(life, entry())
    for name in life.names("worker"):
        life.end_pod(name, 0)
    if state == "Failed":
        said = {"reason": "SeparateCopies", "message": "two", "source": "trainer", "fatal": True}
        life.server.edit(
            "elasticjobs",
            "job",
            lambda found: found["status"].update(
                problems=[{**said, "since": "2026-01-01T12:00:00Z"}]
            ),
        )
    life.settle()
    assert life.condition(state)[0] == "True"
    assert life.condition("InputPartitioned") == ("True", "StagesMoved")


@given(st.lists(STAGES, max_size=8))
def test_it_is_true_only_of_what_has_moved_and_every_word_is_of_the_catalogue(
    stages: list[MovedStage],
) -> None:
    conditions = Conditions({}, 1, datetime(2026, 1, 1, tzinfo=UTC))
    set_input_partitioned(conditions, None, stages)
    found = conditions.get(KIND)
    assert found is not None
    assert f"{KIND}={found.status}" in JobReason(found.reason).conditions
    assert 0 < len(found.message) < MESSAGE_LIMIT
    any_on = any(one.state == "On" for one in stages)
    all_back = all(one.state == "FellBack" for one in stages)
    assert not any_on or found.status == "True"
    assert not all_back or found.status == "False"
    if found.status == "True":
        moved = [one for one in stages if one.state != "FellBack"]
        assert any(one.state == "On" or one.moved_percent for one in moved)
