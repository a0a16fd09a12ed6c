"""A job with a budget, over REST: what it is registered with, and what its plans say and cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.base.enums import Trigger
from tests.api.service import REGISTRATION, Api, api, sample
from tests.api.test_costs import BEGIN, GIB, PRICED
from tests.brain.brains import Clock


async def trained(service: Api, clock: Clock, budget: float | None, speed: float) -> None:
    """A job on one worker of two cores and 2 GiB, for ten minutes."""
    about: dict[str, Any] = {"name": "one", "total_steps": 100_000}
    if budget is not None:
        about["budget"] = budget
    await service.register("one", **about)
    rank = {
        "cpu_cores": 1.5,
        "cpu_limit_cores": 2,
        "memory_bytes": GIB,
        "memory_limit_bytes": 2 * GIB,
    }
    batch = [
        sample(
            BEGIN + 15 * index,
            interval_seconds=15,
            step=int(15 * index * speed),
            steps_per_second=speed,
            world_size=1,
            roles={"worker": {"0": rank}},
        )
        for index in range(1, 41)
    ]
    clock.now = BEGIN + 601
    answer = await service.http.post("/v1/jobs/one/samples", json={"samples": batch})
    assert answer.status_code == 200, answer.text
    clock.now = BEGIN + 660
    await service.brain.sweeper.sweep()


async def newest_plan(service: Api) -> dict[str, Any]:
    await service.brain.planner.plan("one", Trigger.INTERVAL)
    answer = await service.http.get("/v1/jobs/one/plans/current")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(("budget", "grows"), [(None, True), (1e9, True), (5.0, False)])
def test_a_plan_says_what_the_job_will_have_cost_and_none_is_over_the_budget(
    sqlite_url: str, budget: float | None, grows: bool
) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            await trained(service, clock, budget, 10.0)
            assert (await service.http.get("/v1/jobs/one")).json().get("budget") == budget
            plan = await newest_plan(service)
            workers = plan["roles"]["worker"].get("replicas", 1)
            assert (workers > 1) == grows, plan
            said = "by its end it costs" in plan["message"]
            assert said == (budget is not None and grows)
            if said:
                figures = plan["evidence"]["figures"]
                assert figures["cost_low"] <= figures["cost"] <= figures["cost_high"]
                assert figures["budget"] == budget

    asyncio.run(run())


def test_a_job_over_its_budget_is_told_so_with_figure_and_range(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            await trained(service, clock, 5.0, 10.0)
            assert (await service.http.get("/v1/jobs/one")).json()["warning"] == ""
            await service.brain.planner.plan("one", Trigger.INTERVAL)
            said = (await service.http.get("/v1/jobs/one")).json()["warning"]
            assert said.startswith("the job has cost ")
            assert " EUR, all of its budget of 5 EUR: " in said
            assert ") at its end; it trains on with fewer resources" in said
            late = {"samples": [sample(BEGIN + 662, step=7000)]}
            receipt = (await service.http.post("/v1/jobs/one/samples", json=late)).json()
            assert receipt["warning"] == said

    asyncio.run(run())


def test_a_budget_without_prices_is_told_to_change_nothing(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            await trained(service, clock, 5.0, 10.0)
            plan = await newest_plan(service)
            assert plan["roles"]["worker"]["replicas"] > 1
            assert "no prices" in (await service.http.get("/v1/jobs/one")).json()["warning"]

    asyncio.run(run())


@pytest.mark.parametrize("budget", [0, -5, "much"])
def test_a_budget_of_nothing_is_refused(sqlite_url: str, budget: object) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            body = REGISTRATION | {"budget": budget}
            answer = await service.http.put("/v1/jobs/one", json=body)
            assert answer.status_code == 422
            assert "budget" in answer.text

    asyncio.run(run())
