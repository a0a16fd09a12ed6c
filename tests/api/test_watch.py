"""The stream of plans: each once, in order, also across a restart of the service."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import httpx
import pytest

from penstock.api import streams
from penstock.base.enums import Strategy
from penstock.base.targets import RoleTarget
from penstock.brain.service import plans
from penstock.brain.service.sample_writer import OverloadedError
from penstock.client import AsyncBrainClient, BrainUnavailableError, NotFoundError, RetryPolicy
from penstock.wire import JobRegistration, Override, Plan
from tests.api.service import REGISTRATION, run, server
from tests.patience import patient

JOB = JobRegistration.model_validate(
    {**REGISTRATION, "roles": {"worker": {"max_replicas": 99}}, "resource_limits": {}}
)
QUICK = RetryPolicy(total_seconds=10, attempt_seconds=5)


def override(replicas: int) -> Override:
    return Override(roles={"worker": RoleTarget(replicas=replicas)})


async def collect(client: AsyncBrainClient, seen: list[int], after: int) -> None:
    async for plan in client.watch_plans("uid-1", after=after):
        seen.append(plan.id)  # noqa: PERF401 - others look at it meanwhile


async def until(seen: list[int], wanted: list[int]) -> None:
    async with asyncio.timeout(patient(10)):
        while seen != wanted:  # noqa: ASYNC110 - it grows in another task
            await asyncio.sleep(0.01)


def test_a_watcher_sees_every_plan_once_and_in_order(sqlite_url: str) -> None:
    async def main() -> None:
        async with server(sqlite_url) as (url, _), AsyncBrainClient(url, retry=QUICK) as client:
            await client.register("uid-1", JOB)
            seen: list[int] = []
            watching = asyncio.create_task(collect(client, seen, 0))
            for replicas in range(2, 12):
                await client.override("uid-1", override(replicas))
            await client.finish("uid-1", "Succeeded")
            await asyncio.wait_for(watching, 10)  # the end of the job ends the stream
            assert seen == list(range(1, 12))

    run(main)


def test_the_stream_resumes_across_a_restart_without_a_gap(sqlite_url: str) -> None:
    async def main() -> None:
        seen: list[int] = []
        async with server(sqlite_url) as (url, _), AsyncBrainClient(url, retry=QUICK) as client:
            await client.register("uid-1", JOB)
            watching = asyncio.create_task(collect(client, seen, 0))
            await client.override("uid-1", override(2))
            await until(seen, [1, 2])
        with suppress(BrainUnavailableError):  # the service stopped
            await asyncio.wait_for(watching, 5)
        async with server(sqlite_url) as (url, _), AsyncBrainClient(url, retry=QUICK) as client:
            await client.override("uid-1", override(3))  # made while nobody watched
            watching = asyncio.create_task(collect(client, seen, seen[-1]))
            await client.override("uid-1", override(4))
            await client.finish("uid-1", "Failed", "enough")
            await asyncio.wait_for(watching, 10)
        assert seen == [1, 2, 3, 4]

    run(main)


def test_a_plan_made_by_another_brain_is_seen_too(postgres_url: str) -> None:
    async def main() -> None:
        async with (
            server(postgres_url) as (first, brain),
            server(postgres_url) as (second, _),
            AsyncBrainClient(first, retry=QUICK) as here,
            AsyncBrainClient(second, retry=QUICK) as there,
        ):
            await here.register("uid-1", JOB)
            seen: list[int] = []
            watching = asyncio.create_task(collect(here, seen, 0))
            await until(seen, [1])
            await brain.plans.notice_changes()
            await there.override("uid-1", override(5))
            await brain.plans.notice_changes()
            await until(seen, [1, 2])
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    run(main)


def test_unknown_jobs_and_bad_ids_are_refused(sqlite_url: str) -> None:
    async def main() -> None:
        async with server(sqlite_url) as (url, _), AsyncBrainClient(url, retry=QUICK) as client:
            with pytest.raises(NotFoundError, match="uid-1"):
                await collect(client, [], 0)
            await client.register("uid-1", JOB)
            async with httpx.AsyncClient(base_url=url) as http:
                answer = await http.get(
                    "/v1/jobs/uid-1/plans/watch", headers={"Last-Event-ID": "x1"}
                )
                assert answer.status_code == 400

    run(main)


def test_events_are_plans_with_their_id(sqlite_url: str) -> None:
    async def main() -> None:
        async with server(sqlite_url) as (url, _), httpx.AsyncClient(base_url=url) as http:
            body = {**REGISTRATION, "strategy": Strategy.ALL_REDUCE.value}
            await http.put("/v1/jobs/uid-1", json=body)
            async with http.stream("GET", "/v1/jobs/uid-1/plans/watch") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                lines = stream.aiter_lines()
                event = {}
                while "data" not in event:
                    name, _, value = (await anext(lines)).partition(": ")
                    event[name] = value
            assert (event["event"], event["id"]) == ("plan", "1")
            assert Plan.model_validate_json(event["data"]).id == 1

    run(main)


def test_a_stream_ends_after_a_while_and_goes_on_with_the_last_id(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 0.2)
    monkeypatch.setattr(plans, "_HEARTBEAT_SECONDS", 0.05)

    async def main() -> None:
        async with server(sqlite_url) as (url, _), AsyncBrainClient(url, retry=QUICK) as client:
            await client.register("uid-1", JOB)
            seen: list[int] = []
            await asyncio.wait_for(collect(client, seen, 0), patient(10))
            await client.override("uid-1", override(2))
            await asyncio.wait_for(collect(client, seen, seen[-1]), patient(10))
            assert seen == [1, 2]

    run(main)


def test_a_caller_has_a_few_streams_of_a_job_and_others_as_well(sqlite_url: str) -> None:
    async def main() -> None:
        async with (
            server(sqlite_url) as (url, _),
            httpx.AsyncClient(base_url=url, timeout=10) as http,
            AsyncExitStack() as stack,
        ):
            for uid in ("uid-1", "uid-2"):
                await http.put(f"/v1/jobs/{uid}", json={**REGISTRATION, "name": uid})
            opened = []
            for _ in range(streams.MOST_PER_JOB):
                held = AsyncExitStack()
                path = "/v1/jobs/uid-1/plans/watch"
                opened.append(await held.enter_async_context(http.stream("GET", path)))
                stack.push_async_callback(held.aclose)
            assert {each.status_code for each in opened} == {200}
            refused = await http.get("/v1/jobs/uid-1/plans/watch")
            assert refused.status_code == 503
            assert "8 times already" in refused.json()["detail"]
            async with http.stream("GET", "/v1/jobs/uid-2/plans/watch") as other:
                assert other.status_code == 200
            await opened[0].aclose()
            async with asyncio.timeout(patient(10)):
                while True:
                    async with http.stream("GET", "/v1/jobs/uid-1/plans/watch") as again:
                        if again.status_code == 200:
                            return
                    await asyncio.sleep(0.05)

    run(main)


def test_no_caller_has_too_many_streams_of_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_PER_CALLER", 3)
    open_ones = streams.Streams()
    for number in range(3):
        open_ones.open("me", f"uid-{number}")
    with pytest.raises(OverloadedError, match="3 jobs already"):
        open_ones.open("me", "uid-3")
    open_ones.open("you", "uid-3")
    open_ones.close("me", "uid-0")
    open_ones.open("me", "uid-3")
