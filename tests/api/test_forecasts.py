"""Forecasts over REST: from jobs that have succeeded, and only those that the caller may see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.service import Api, api
from tests.api.test_costs import BEGIN, PRICED, train
from tests.brain.brains import Clock

ADS = {"model": "wide", "dataset": "clicks", "user": "ann"}


async def finish(service: Api, uid: str, state: str = "Succeeded") -> None:
    answer = await service.http.post(f"/v1/jobs/{uid}/finish", json={"state": state})
    assert answer.status_code == 200, answer.text


async def ask(service: Api, strategy: str = "AllReduce", **changes: Any) -> dict[str, Any]:
    body = {"strategy": strategy, "signature": ADS, **changes}
    answer = await service.http.post("/v1/forecasts", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_job_is_expected_to_take_and_cost_what_those_like_it_did(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            registered = await service.register("probe", name="probe", signature=ADS)
            strategy = registered["strategy"]
            assert (await ask(service, strategy)).get("seconds") is None, "it has not finished"
            await train(service, clock, "one", 2, 300, signature=ADS)
            clock.now = BEGIN + 330
            await service.brain.sweeper.sweep()
            await finish(service, "one")
            found = await ask(service, strategy)
            assert found["seconds"]["value"] == pytest.approx(330, abs=60)
            assert found["seconds"]["jobs"] == 1
            assert found["seconds"].get("low") is None, "of one job no range is known"
            assert found["core_seconds"]["value"] == pytest.approx(2 * 2 * 300, rel=1e-3)
            assert found["cost"]["value"] == pytest.approx(2 * 2 * 300, rel=1e-3)
            assert found["currency"] == "EUR"
            await finish(service, "probe", "Failed")
            assert (await ask(service, strategy))["finished_jobs"] == 1, "what failed says nothing"
            elsewhere = await ask(service, strategy, namespace="team")
            assert (elsewhere["finished_jobs"], elsewhere.get("seconds")) == (0, None)
            others = await ask(service, strategy, signature={"model": "other"})
            assert others.get("seconds") is None

    asyncio.run(run())


def test_a_strategy_that_there_is_not_is_refused(sqlite_url: str) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            body = {"strategy": "Gossip", "signature": ADS}
            answer = await service.http.post("/v1/forecasts", json=body)
            assert answer.status_code == 422
            assert "strategy" in answer.text
            answer = await service.http.post("/v1/forecasts", json={"signature": ADS})
            missing = {"field": "body.strategy", "rule": "Field required"}
            assert answer.json()["errors"] == [missing]

    asyncio.run(run())


@pytest.mark.parametrize("signature", [{}, {"code": "v7"}, {"model": ""}])
def test_a_signature_that_names_nothing_is_refused(
    sqlite_url: str, signature: dict[str, str]
) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            body = {"strategy": "AllReduce", "signature": signature}
            answer = await service.http.post("/v1/forecasts", json=body)
            assert answer.status_code == 422
            assert "say model, dataset or user" in answer.text

    asyncio.run(run())
