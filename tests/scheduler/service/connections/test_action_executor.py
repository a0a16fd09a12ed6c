"""What was decided reaches the API server once, and none of it is lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError, ApiUnavailableError
from penstock.scheduler.model.decisions import Reason, WriteScale
from penstock.scheduler.service.connections import action_executor
from penstock.scheduler.service.connections.action_executor import ActionExecutor
from penstock.scheduler.service.metrics import Metrics


class Server:
    """Creates what is not there; the first answers get lost."""

    def __init__(self, lost_answers: int = 0) -> None:
        self.scales: dict[str, Any] = {}
        self.lost_answers = lost_answers

    async def submit(self, resource: str, namespace: str, body: Any) -> None:
        assert (resource, namespace) == ("scales", "default")
        name = body["metadata"]["name"]
        if name in self.scales:
            raise ApiRefusedError("it is there", code=409, reason="AlreadyExists")
        self.scales[name] = body["spec"]["roles"]
        if self.lost_answers:
            self.lost_answers -= 1
            raise ApiUnavailableError("no answer", code=0, reason="Timeout")


def written(server: Server, *ranks: int) -> list[Any]:
    """Ask for one core for each rank in one pass, at one moment; what the server has then."""

    async def run() -> None:
        made = ActionExecutor(cast("Api", server), Metrics(), lambda: 1e9, lambda action: None)
        await asyncio.gather(*(made.write_scale(scale(rank)) for rank in ranks))

    asyncio.run(run())
    return [server.scales[name] for name in sorted(server.scales)]


def scale(rank: int) -> WriteScale:
    roles = {"dataWorker": {"ranks": {str(rank): {"cpu": "1"}}}}
    return WriteScale("uid", "default", "job", roles, Reason.FRAGMENT, "no room")


def test_scales_of_one_job_and_moment_are_all_written_in_their_order() -> None:
    assert written(Server(), 0, 1, 2) == [scale(rank).roles for rank in range(3)]


def test_a_scale_whose_answer_was_lost_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_executor, "_FIRST_PAUSE_SECONDS", 0.0)
    assert written(Server(lost_answers=1), 4) == [scale(4).roles]
