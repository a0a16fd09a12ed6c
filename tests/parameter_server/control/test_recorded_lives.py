"""The decisions are those that were recorded, answer by answer; see `recorded_lives`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parameter_server.control.recorded_lives import LIVES, Trainer, heeded, recorded

KNOWN = recorded()


@pytest.mark.parametrize("seed", LIVES)
def test_the_same_events_have_the_same_answers(seed: int) -> None:
    trainer = Trainer()
    for number, (call, now, given, said) in enumerate(KNOWN[seed]):
        answer: Any = trainer.play(call, now, given)
        where = f"event {number} of life {seed}: {call}"
        assert heeded(answer["answer"]) == heeded(said["answer"]), where
        assert answer["log"] == said["log"], where
        assert answer["state"] == said["state"], where


def test_the_recordings_have_all_kinds_of_events() -> None:
    calls = {event[0] for log in KNOWN.values() for event in log}
    assert calls == {
        "advance",
        "agent",
        "at_least",
        "cap",
        "pods",
        "restart",
        "server",
        "suspend",
        "worker",
    }
    orders = {
        (event[3]["answer"] or {}).get("order")
        for log in KNOWN.values()
        for event in log
        if event[0] == "server"
    }
    assert orders >= {"idle", "serve", "halt", "freeze", "build", "refused"}
