"""``top`` where there are more jobs than it looks at: those that run come first."""

from __future__ import annotations

from typing import Any

from penstock.cli.top import MOST_JOBS, look
from tests.client.embedded import condition, job

Json = dict[str, Any]


class Session:
    """A session whose cluster has these jobs, and whose Brain knows no samples."""

    namespace = "default"

    def __init__(self, jobs: list[Json]) -> None:
        self.cluster = self.brain = self
        self._jobs = jobs

    def list(self, *_: Any) -> list[Json]:
        return self._jobs

    def samples(self, *_: Any, **__: Any) -> list[Any]:
        return []


def stored(name: str, *conditions: Json) -> Json:
    document = job(name)
    document["metadata"] |= {"namespace": "default", "uid": name}
    return {**document, "status": {"conditions": list(conditions)}}


def test_jobs_that_run_are_not_hidden_by_those_that_wait() -> None:
    waiting = [stored(f"a-{number:04d}") for number in range(1000)]
    ended = stored("b", condition("Succeeded"))
    running = stored("z", condition("Running"))
    session: Any = Session([*waiting, ended, running])
    found, left_out = look(session, "", False)
    assert len(found) == MOST_JOBS
    assert "z" in [each.name for each in found]
    assert left_out == 1001 - MOST_JOBS
