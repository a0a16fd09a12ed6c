"""Plans on their way from the Brain to the API server: the newest counts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.base.enums import Role, Source, Stage
from penstock.base.targets import RoleTarget
from penstock.client import AsyncBrainClient, Tagged
from penstock.job.settings import pod_identity
from penstock.trainer.brain import brain_connection
from penstock.trainer.brain.brain_connection import BrainConnection
from penstock.trainer.cluster.kube import KubeClient, KubeError
from penstock.trainer.cluster.plan_writer import PlanWriter
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.wire import Plan


def plan(number: int) -> Plan:
    return Plan(
        id=number,
        job_uid="u",
        created_seconds=1.7e9 + number,
        source=Source.BRAIN,
        stage=Stage.ADJUST,
        reason="Test",
        message="",
        roles={Role.WORKER: RoleTarget(replicas=number)},
    )


class AwayServer:
    """An API server that is away until it has refused three calls."""

    def __init__(self) -> None:
        self.refused = 0
        self.written: list[int] = []

    async def create_scale(self, scale: Any) -> bool:
        if self.refused < 3:
            self.refused += 1
            raise KubeError(0, "away")
        self.written.append(scale["spec"]["roles"]["worker"]["replicas"])
        return True


class PlanningBrain:
    """Says plan 1, and plan 2 as soon as it is asked again."""

    def __init__(self) -> None:
        self.asked = 0

    async def current_plan(self, uid: str, etag: str | None = None) -> Tagged[Plan] | None:
        self.asked += 1
        newest = min(self.asked, 2)
        return None if etag == f'"{newest}"' else Tagged(plan(newest), f'"{newest}"')


def test_a_newer_plan_takes_the_place_of_one_that_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(brain_connection, "PLAN_SECONDS", 0.01)
    server, planning = AwayServer(), PlanningBrain()
    identity = replace(pod_identity({}), job="j", namespace="default", uid="u")
    coordinator = Coordinator(JobFacts(), identity="t")
    plans = PlanWriter(coordinator, cast("KubeClient", server), identity)
    link = BrainConnection(cast("AsyncBrainClient", planning), "u", coordinator)
    link._registered.set()

    async def main() -> None:
        following = asyncio.create_task(link.follow_plans(plans.apply))
        try:
            async with asyncio.timeout(5):
                while planning.asked < 8:  # noqa: ASYNC110  (the other task changes it)
                    await asyncio.sleep(0.01)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert server.written == [2], "once, and not the plan that it replaced"
    said = [record.getMessage() for record in caplog.records]
    assert sum("plan 2 is not written yet" in text for text in said) == 1
