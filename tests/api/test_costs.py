"""Bills over REST: each moment once, by job, user and namespace, and only for who may look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.brain.configuration import BrainSettings, PriceSettings
from tests.api.service import Api, api, sample
from tests.brain.brains import START, Clock

GIB = 1024**3
BEGIN = START - START % 600 + 600
PRICED = BrainSettings(
    prices=PriceSettings(core_hour=3600, gib_hour=0, accelerator_hour=0, currency="EUR")
)


async def train(
    service: Api, clock: Clock, uid: str, pods: int, seconds: int, **registered: Any
) -> None:
    """A job whose pods have two cores and use half of one, sampled every 15 s."""
    await service.register(uid, name=uid, **registered)
    ranks = {
        str(rank): {
            "cpu_cores": 0.5,
            "cpu_limit_cores": 2,
            "memory_bytes": GIB,
            "memory_limit_bytes": 2 * GIB,
        }
        for rank in range(pods)
    }
    times = [BEGIN + 15 * (index + 1) - 1 for index in range(seconds // 15)]
    for start in range(0, len(times), 40):
        batch = [
            sample(time, interval_seconds=15, roles={"worker": ranks}, world_size=pods)
            for time in times[start : start + 40]
        ]
        clock.now = max(clock.now, batch[-1]["time"] + 1)
        answer = await service.http.post(f"/v1/jobs/{uid}/samples", json={"samples": batch})
        assert answer.status_code == 200, answer.text


def test_bills_add_up_to_what_the_pods_had(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            await train(service, clock, "one", 3, 1500, signature={"user": "ann"})
            await train(service, clock, "two", 1, 300, namespace="team", signature={"user": "bob"})
            await train(service, clock, "three", 2, 300, signature={"user": "ann"})
            clock.now = BEGIN + 1560
            await service.brain.sweeper.sweep()
            pod_seconds = 3 * 1500 + 300 + 2 * 300

            # Ten minutes are summed up by now for the first part, and minutes are there for all.
            for by in ("job", "user", "namespace"):
                bill = (await service.http.get("/v1/costs", params={"by": by})).json()
                assert bill["currency"] == "EUR"
                assert bill["total"]["pod_seconds"] == pytest.approx(pod_seconds, rel=1e-3)
                assert bill["total"]["core_seconds"] == pytest.approx(2 * pod_seconds, rel=1e-3)
                assert bill["total"]["idle_core_seconds"] == pytest.approx(1.5 * pod_seconds)
                assert bill["total"]["cost"] == pytest.approx(2 * pod_seconds, rel=1e-3)
                for name in ("core_seconds", "gib_seconds", "cost", "idle_cost"):
                    parts = sum(line[name] for line in bill["lines"])
                    assert parts == pytest.approx(bill["total"][name], rel=1e-6)
            jobs = (await service.http.get("/v1/costs", params={"limit": 2})).json()
            assert [line["job"] for line in jobs["lines"]] == ["one", "three"]
            assert jobs["left_out"] == 1
            users = (await service.http.get("/v1/costs?by=user")).json()["lines"]
            assert {line["user"]: line["pod_seconds"] for line in users} == pytest.approx(
                {"ann": 5100, "bob": 300}
            )
            team = (await service.http.get("/v1/costs?namespace=team")).json()
            assert [line["job"] for line in team["lines"]] == ["two"]
            span = {"start": BEGIN, "end": BEGIN + 600}
            part = (await service.http.get("/v1/costs", params=span)).json()
            assert part["total"]["pod_seconds"] == pytest.approx(3 * 600 + 300 + 600)

    asyncio.run(run())


def test_without_prices_there_are_seconds_only(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock) as service:
            await train(service, clock, "one", 1, 300)
            clock.now = BEGIN + 330
            await service.brain.sweeper.sweep()
            bill = (await service.http.get("/v1/costs")).json()
            assert bill["currency"] is None
            assert bill["total"]["cost"] is None
            assert bill["total"]["core_seconds"] == pytest.approx(600)
            await service.brain.configure(PRICED)
            bill = (await service.http.get("/v1/costs")).json()
            assert bill["total"]["cost"] == pytest.approx(600), "prices are taken over live"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("start=200&end=100", "start = 200: must be before end = 100"),
        (f"start=0&end={START}", "at most 92 days"),
        ("end=0", "must be before end = 0"),
        ("by=team", "by"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(sqlite_url: str, query: str, said: str) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            answer = await service.http.get(f"/v1/costs?{query}")
            assert answer.status_code == 422
            assert said in answer.text

    asyncio.run(run())
