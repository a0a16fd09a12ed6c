"""Who waits for a Scale bears a restart of the API server, and says what became of it in time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.cli.exits import Exit, exit_for
from penstock.cli.scale import _outcome
from penstock.client import ClusterUnreachableError, WaitTimeoutError, waiting
from tests.client.embedded import condition

Json = dict[str, Any]


class Session:
    """A session whose cluster gives these answers, the last one for ever."""

    namespace = "default"

    def __init__(self, *answers: Json | Exception) -> None:
        self._answers = list(answers)
        self.cluster = self

    def send(self, _: Any, *, seconds: float) -> Json:
        assert seconds > 0
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


AWAY = ClusterUnreachableError("the API server does not answer")


def scale(*conditions: Json) -> Json:
    return {"metadata": {"name": "s"}, "spec": {}, "status": {"conditions": list(conditions)}}


def outcome(session: Session, seconds: float) -> tuple[Json, str]:
    # A plain dict stands for the Scale.
    return _outcome(session, scale(), time.monotonic() + seconds)  # type: ignore[arg-type]


def test_a_restart_is_borne() -> None:
    applied = scale(condition("Applied"))
    assert outcome(Session(AWAY, AWAY, applied), 20) == (applied, "applied")


def test_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AWAY_SECONDS", 0.0)
    with pytest.raises(ClusterUnreachableError) as caught:
        outcome(Session(AWAY), 20)
    assert exit_for(caught.value) == Exit.UNREACHABLE


def test_not_for_longer_than_was_asked_for() -> None:
    with pytest.raises(WaitTimeoutError, match="scale s is not applied"):
        outcome(Session(AWAY), 0.1)
