"""What other nodes would do, over REST: from what the scheduler pushed and the Brain measured."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.brain.registry import AlgorithmSettings
from penstock.scheduler.capacity.wire import written
from penstock.scheduler.capacity.workload import PodGroup, WaitingJob, Workload
from tests.api.service import Api, api
from tests.api.test_costs import BEGIN, PRICED, train
from tests.api.test_forecasts import finish
from tests.brain.brains import Clock
from tests.scheduler.capacity.clusters import cluster, hosted, pods

ADS = {"model": "wide", "dataset": "clicks"}


async def push(service: Api, workload: Workload, now: float = BEGIN) -> None:
    sent = written(workload, now, "stranding")
    answer = await service.http.put(
        "/v1/cluster/workload", json=sent.model_dump(mode="json", exclude_defaults=True)
    )
    assert answer.status_code == 204, answer.text


async def ask(service: Api, **question: Any) -> dict[str, Any]:
    answer = await service.http.post("/v1/cluster/whatif", json=question)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refused(sqlite_url: str, path: str, question: dict[str, Any], said: str) -> None:
    """A question about a cluster that is known is told what is wrong with it."""
    async with api(sqlite_url, clock=Clock(BEGIN)) as service:
        await push(service, two_nodes())
        answer = await service.http.post(path, json=question)
        assert answer.status_code == 422, answer.text
        assert said in answer.text


def two_nodes(*groups: PodGroup) -> Workload:
    return cluster([hosted("a", 8, 2), hosted("b", 8, 2)], *groups)


def test_a_running_job_that_loses_a_node_is_slower_later_and_cheaper_by_the_hour(
    sqlite_url: str,
) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            await train(service, clock, "runs", 4, 300, total_steps=1010)
            await push(service, two_nodes(pods("runs", 2, on="a"), pods("runs", 2, on="b")))
            found = await ask(service, fail_node="a")
            [job] = found["jobs"]
            assert (job["name"], job["effect"], job["lost"]) == ("runs", "Shrinks", {"worker": 2})
            before, after = job["before"], job["after"]
            assert before["steps_per_second"]["value"] == pytest.approx(2.0)
            assert after["steps_per_second"]["value"] == pytest.approx(1.0)
            assert after["steps_per_second"]["low"] < 1.0
            assert after["steps_per_second"]["high"] >= 2.0, "two may make nearly as much as four"
            assert before["remaining_seconds"]["value"] == pytest.approx(500)
            assert after["remaining_seconds"]["value"] == pytest.approx(1000)
            assert after["cost_per_hour"] == pytest.approx(before["cost_per_hour"] / 2)
            assert after["remaining_cost"]["value"] == pytest.approx(
                before["remaining_cost"]["value"]
            )
            assert found["removed"] == ["a"]
            assert found["nodes_per_hour"] < 0
            assert found["currency"] == "EUR"
            assert any("bounds" in note for note in found["notes"])

    asyncio.run(run())


def test_a_speed_is_known_when_the_planner_takes_it_as_measured(sqlite_url: str) -> None:
    strict = AlgorithmSettings(params={"enough_samples": 1000})
    settings = PRICED.model_copy(update={"algorithms": {"scale_allreduce": strict}})

    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=settings) as service:
            await train(service, clock, "runs", 4, 300, total_steps=1010)
            await push(service, two_nodes(pods("runs", 2, on="a"), pods("runs", 2, on="b")))
            [job] = (await ask(service, fail_node="a"))["jobs"]
            assert job["before"].get("steps_per_second") is None
            assert job["note"], "why there is no figure"

    asyncio.run(run())


def test_a_waiting_job_that_starts_has_the_forecast_of_those_like_it(sqlite_url: str) -> None:
    async def run() -> None:
        clock = Clock(BEGIN)
        async with api(sqlite_url, clock=clock, settings=PRICED) as service:
            await train(service, clock, "past", 2, 300, signature=ADS)
            clock.now = BEGIN + 330
            await service.brain.sweeper.sweep()
            await finish(service, "past")
            strategy = (await service.http.get("/v1/jobs/past")).json()["strategy"]
            known = WaitingJob(
                uid="waits", namespace="default", name="later", strategy=strategy, signature=ADS
            )
            workload = two_nodes(pods("full", 2, on="a"), pods("full", 2, on="b"), pods("waits", 2))
            jobs = {**workload.jobs, "waits": known}
            await push(service, Workload(nodes=workload.nodes, pods=workload.pods, jobs=jobs))
            found = await ask(service, nodes=1)
            [job] = found["jobs"]
            assert (job["name"], job["effect"]) == ("later", "Starts")
            assert job["forecast_seconds"]["value"] == pytest.approx(330, abs=60)
            assert job["forecast_cost"]["value"] > 0
            assert (found["added"], found["unchanged_jobs"]) == (["new-1"], 1)
            assert found["shape"]["accelerators"] == {"nvidia.com/gpu": 2}
            assert found["after"]["accelerators"] == 6

    asyncio.run(run())


def test_a_job_without_history_says_so_and_has_no_figures(sqlite_url: str) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN + 600)) as service:
            await push(service, two_nodes(pods("full", 2, on="a"), pods("new", 4)))
            [job] = (await ask(service, nodes=1))["jobs"]
            assert job["effect"] == "Grows", "two of its workers fit without the node"
            assert job["note"].startswith("no history")
            assert job["before"].get("steps_per_second") is None
            found = await ask(service, nodes=1, shape={"milli_cpu": 4000, "memory_bytes": 2**36})
            assert found["jobs"] == []
            assert any("600 s ago" in note for note in found["notes"])
            assert any("no prices" in note for note in found["notes"])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({}, "either for nodes or for fail_node"),
        ({"nodes": 1, "fail_node": "a"}, "either for nodes or for fail_node"),
        ({"nodes": 0}, "changes nothing"),
        ({"nodes": 9999}, "nodes"),
        ({"nodes": -3}, "2 nodes of that shape"),
        ({"fail_node": "z"}, "no node has this name"),
        ({"fail_node": "a", "shape": {"milli_cpu": 1}}, "shape is of nodes that come or go"),
        ({"nodes": 1, "shape": {"memory_bytes": 5}}, "a node without CPU runs no pod"),
        ({"nodes": 1, "shape": {"milli_cpu": -5}}, "milli_cpu"),
        ({"nodes": 1, "shape": {"milli_cpu": 5, "accelerators": {"gpu": 500}}}, "at most 128"),
    ],
)
def test_what_makes_no_sense_is_refused(
    sqlite_url: str, question: dict[str, Any], said: str
) -> None:
    asyncio.run(refused(sqlite_url, "/v1/cluster/whatif", question, said))


def test_before_the_scheduler_has_shown_its_pods_nothing_is_told(sqlite_url: str) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            answer = await service.http.post("/v1/cluster/whatif", json={"nodes": 1})
            assert answer.status_code == 404
            assert answer.json()["type"] == "urn:penstock:problem:no-workload"
            assert "penstock doctor" in answer.text

    asyncio.run(run())


def test_an_older_picture_does_not_take_the_place_of_a_newer_one(sqlite_url: str) -> None:
    async def run() -> None:
        async with api(sqlite_url, clock=Clock(BEGIN)) as service:
            await push(service, two_nodes(), BEGIN)
            await push(service, cluster([hosted("old")]), BEGIN - 60)
            assert (await ask(service, fail_node="b"))["before"]["nodes"] == 2

    asyncio.run(run())
