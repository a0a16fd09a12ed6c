"""What is known of nodes over the API: taken in, listed, overruled, and over one day."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.api.service import Api, api, run
from tests.brain.brains import Clock


def with_api(url: str, work: Callable[[Api, Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(url, clock=clock) as service:
            await service.register()
            await work(service, clock)

    run(main)


async def report(service: Api, *nodes: dict[str, Any], uid: str = "uid-1") -> list[str]:
    answer = await service.http.post(f"/v1/jobs/{uid}/nodes", json={"nodes": list(nodes)})
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["nodes"]
    return found


async def records(service: Api) -> dict[str, dict[str, Any]]:
    answer = await service.http.get("/v1/nodes")
    assert answer.status_code == 200, answer.text
    return {one["node"]: one for one in answer.json()["items"]}


SLOW = {"node": "n1", "verdict": "Slow", "what": "compute", "ratio": 4.0, "compute": 1e9}
GOOD = {"node": "n2", "verdict": "Good", "compute": 4e9, "hardware": "EPYC"}


def test_a_bad_node_is_avoided_for_an_hour_and_then_twice_as_long(database_url: str) -> None:
    async def work(service: Api, clock: Clock) -> None:
        await service.register("uid-2")
        assert await report(service) == []
        assert await report(service, SLOW, GOOD) == ["n1"]
        assert await report(service, SLOW, GOOD) == ["n1"]  # again by the same job
        found = await records(service)
        assert (found["n1"]["avoided"], found["n1"]["times"]) == (True, 1)
        assert found["n1"]["until"] == pytest.approx(clock() + 3600, abs=5)
        assert (found["n2"]["avoided"], found["n2"]["hardware"]) == (False, "EPYC")
        clock.now += 3601
        assert await report(service) == []
        assert await report(service, SLOW, uid="uid-2") == ["n1"]
        assert (await records(service))["n1"]["times"] == 2
        clock.now += 3601
        assert await report(service) == ["n1"]
        assert await report(service, {**SLOW, "verdict": "Good"}, uid="uid-2") == []

    with_api(database_url, work)


def test_a_persons_word_counts_until_it_ends(database_url: str) -> None:
    async def work(service: Api, clock: Clock) -> None:
        await report(service, SLOW)
        body = {"avoid": False, "seconds": 600, "why": "repaired"}
        answer = await service.http.put("/v1/nodes/n1/override", json=body)
        assert answer.json()["avoided"] is False
        assert answer.json()["why"] == "repaired"
        assert await report(service, SLOW) == []
        clock.now += 601
        assert await report(service) == ["n1"]
        body = {"avoid": True, "seconds": 600}
        assert (await service.http.put("/v1/nodes/n9/override", json=body)).status_code == 200
        assert set(await report(service)) == {"n1", "n9"}
        assert (await service.http.delete("/v1/nodes/n9/override")).json()["avoided"] is False
        actions = (await service.http.get("/v1/audit")).json()["items"]
        assert [one["action"] for one in actions[:3]] == ["node.lift", "node.avoid", "node.clear"]
        await service.brain.observe()
        metrics = service.brain.metrics.registry
        assert metrics.get_sample_value("penstock_brain_avoided_nodes") == 1
        said = {"verdict": "Slow"}
        assert metrics.get_sample_value("penstock_brain_node_checks_total", said) == 2

    with_api(database_url, work)


def test_what_is_wrong_is_named(database_url: str) -> None:
    async def work(service: Api, clock: Clock) -> None:
        answer = await service.http.delete("/v1/nodes/nobody/override")
        assert answer.status_code == 404
        assert answer.json()["type"].endswith("node-not-found")
        answer = await service.http.put("/v1/nodes/n/override", json={"avoid": True, "seconds": 0})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "body.seconds"
        answer = await service.http.post("/v1/jobs/other/nodes", json={"nodes": []})
        assert answer.json()["type"].endswith("job-not-found")
        done = await service.http.post("/v1/jobs/uid-1/finish", json={"state": "Succeeded"})
        assert done.status_code == 200
        answer = await service.http.post("/v1/jobs/uid-1/nodes", json={"nodes": [SLOW]})
        assert answer.status_code == 409

    with_api(database_url, work)
