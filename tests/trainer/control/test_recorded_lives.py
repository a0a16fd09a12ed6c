"""The trainer answers to recorded events as it did when they were recorded."""

from __future__ import annotations

import pytest

from tests.trainer.control.recorded_lives import LIVES, Trainer, recorded

KNOWN = recorded()


@pytest.mark.parametrize("seed", LIVES)
def test_the_same_events_have_the_same_answers(seed: int) -> None:
    trainer = Trainer()
    for number, (call, now, given, said) in enumerate(KNOWN[seed]):
        answer = trainer.play(call, now, given)
        where = f"event {number} of life {seed}: {call}"
        assert answer["answer"] == said["answer"], where
        assert answer["log"] == said["log"], where
        assert answer["state"] == said["state"], where


def test_the_recordings_have_all_kinds_of_events_and_answers() -> None:
    events = [event for log in KNOWN.values() for event in log]
    assert {event[0] for event in events} == {
        "advance",
        "agent",
        "expect",
        "journal",
        "learn",
        "lease",
        "pods",
        "refusal_is_shown",
        "restart",
        "session",
        "weigh",
    }
    answers = [(event[0], event[3]["answer"] or {}) for event in events]
    directives = {answer.get("directive") for call, answer in answers if call == "session"}
    assert directives >= {"wait", "join", "train", "regroup", "abandon", "finish", "refused"}
    told = {field for call, answer in answers if call == "agent" for field in answer}
    assert told >= {"superseded", "hung_seconds", "refused", "undecided"}
