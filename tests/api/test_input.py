"""Profiles of a job's input over the API: kept, looked up, asked, and decided about."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Storage
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests.api.service import Api, api, run
from tests.brain.brains import Clock
from tests.throughput.programs import STARVING


def with_api(url: str, work: Callable[[Api], Awaitable[None]]) -> None:
    async def run() -> None:
        async with api(url) as service:
            await service.register()
            await work(service)

    asyncio.run(run())


async def put(service: Api, profile: Any = STARVING, uid: str = "uid-1", source: str = "job"):
    body = {"source": source, "content": profile.to_json()}
    answer = await service.http.put(f"/v1/jobs/{uid}/profile", json=body)
    assert answer.status_code == 204, answer.text


def test_before_anything_is_measured_it_says_what_is_missing(database_url: str) -> None:
    async def work(service: Api) -> None:
        for path in ("profile", "input"):
            answer = await service.http.get(f"/v1/jobs/uid-1/{path}")
            assert answer.status_code == 404
            assert answer.json()["type"].endswith("no-profile")
        assert (await service.http.get("/v1/jobs/nobody/input")).status_code == 404

    with_api(database_url, work)


def test_a_profile_is_kept_and_its_input_explained(database_url: str) -> None:
    async def work(service: Api) -> None:
        await put(service)
        kept = (await service.http.get("/v1/jobs/uid-1/profile")).json()
        assert kept["content"]["rate"]["value"] == 18.0
        assert kept["source"] == "job"
        seen = (await service.http.get("/v1/jobs/uid-1/input")).json()
        assert seen["unit"] == "batches/s"
        assert seen["causes"] == {"preparation": 0.6}
        assert min(seen["limits"], key=seen["limits"].get) == "workers"
        decision = seen["decision"]
        assert decision["data_workers"] >= 2
        assert decision["promised_low"] <= decision["promised"] <= decision["promised_high"]
        assert decision["promised"] > 2 * decision["without"]
        assert "bound by workers" in decision["why"]
        assert decision["cut"] == "whole batch"
        kinds = {one["kind"]: one for one in decision["cuts"]}
        assert list(kinds) == ["whole batch", "tail local", "read local"]
        assert kinds["whole batch"]["data_workers"] == decision["data_workers"]
        assert "was not measured" in kinds["tail local"]["why"]
        assert decision["cut_why"].startswith("whole batch pays: ")
        assert seen["cut"] == ""

    with_api(database_url, work)


def test_the_cut_of_the_decision_is_named_where_stages_are_known(database_url: str) -> None:
    stages = (
        StageCost("dataset", "opaque", 0.06, bytes_out=5e6),
        StageCost("ToTensor", "transform", 0.005, bytes_out=20e6),
        StageCost("collate", "collate", 0.002, bytes_out=20e6),
    )
    profile = replace(
        STARVING, stages=stages, step=Measured.given(0.004), cut="from ToTensor on local"
    )
    profile = replace(
        profile, resources=Resources(cores=4, workers=0, network_bytes_per_second=1.25e8)
    )

    async def work(service: Api) -> None:
        await put(service, profile, source="profiler")
        seen = (await service.http.get("/v1/jobs/uid-1/input")).json()
        assert seen["cut"] == "from ToTensor on local"
        assert seen["decision"]["cut"] == "from ToTensor on local"
        assert "tail local (from ToTensor on local) pays: " in seen["decision"]["cut_why"]
        assert "whole batch: it is slower than" in seen["decision"]["cut_why"]
        page = (await service.http.get("/?job=uid-1")).text
        assert "Cuts: tail local (from ToTensor on local) pays" in page

    with_api(database_url, work)


def test_what_if_answers_in_the_order_of_the_questions(database_url: str) -> None:
    async def work(service: Api) -> None:
        await put(service)
        asked = [{"workers": 4}, {"workers": 4, "cores": 8}, {"data_workers": 3}, {}]
        answer = await service.http.post("/v1/jobs/uid-1/whatif", json={"configurations": asked})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        rates = [one["rate"] for one in body["items"]]
        assert rates[0] > 1.5 * rates[3]
        assert rates[1] >= 0.99 * rates[0]
        assert rates[2] > 2 * rates[3]
        assert rates[3] == pytest.approx(18.0, rel=0.05)
        assert body["items"][0]["configuration"]["workers"] == 4

    with_api(database_url, work)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("profile", {"content": {}}),
        ("profile", {"content": {"version": 1}}),
        ("profile", {"content": {**STARVING.to_json(), "batch_size": 0}}),
        ("profile", {"content": {**STARVING.to_json(), "stages": "x"}}),
        ("profile", {"source": "guess", "content": STARVING.to_json()}),
        ("whatif", {"configurations": []}),
        ("whatif", {"configurations": [{"cores": -1}]}),
        ("whatif", {"configurations": [{}] * 65}),
        ("whatif", {"configurations": [{"gpus": 3}]}),
    ],
)
def test_what_cannot_be_is_refused_by_name(database_url: str, path: str, body: Any) -> None:
    async def work(service: Api) -> None:
        await put(service)
        method = "PUT" if path == "profile" else "POST"
        answer = await service.http.request(method, f"/v1/jobs/uid-1/{path}", json=body)
        assert answer.status_code == 422, answer.text
        kept = (await service.http.get("/v1/jobs/uid-1/profile")).json()
        assert kept["content"]["rate"]["value"] == 18.0

    with_api(database_url, work)


def test_a_job_that_has_ended_takes_none(database_url: str) -> None:
    async def work(service: Api) -> None:
        await service.http.post("/v1/jobs/uid-1/finish", json={"state": "Succeeded"})
        answer = await service.http.put(
            "/v1/jobs/uid-1/profile", json={"content": STARVING.to_json()}
        )
        assert answer.status_code == 409

    with_api(database_url, work)


def test_profiles_are_found_by_their_keys_and_those_of_a_kind_are_checked(
    database_url: str,
) -> None:
    async def work(service: Api) -> None:
        await put(service, replace(STARVING, keys={"pipeline": "p", "machine": "m"}))
        await service.register("uid-2")
        faster = replace(STARVING, rate=Measured(36.0, 35.0, 37.0, 1))
        await put(service, faster, "uid-2")
        await put(service, faster, "uid-2")
        found = (await service.http.get("/v1/profiles?pipeline=p")).json()["items"]
        [line] = found
        assert line["job_uid"] == "uid-1"
        assert (line["machine"], line["uses"]) == ("m", 1)
        assert math.isclose(line["last_error"], -0.5, abs_tol=0.05)
        assert "content" not in line or line["content"] is None
        assert len((await service.http.get("/v1/profiles")).json()["items"]) == 2

    with_api(database_url, work)


def test_a_profile_that_answers_nothing_keeps_no_other_job_from_its_own(database_url: str) -> None:
    async def work(service: Api) -> None:
        everybody = replace(STARVING, resources=replace(STARVING.resources, workers=4000))
        await put(service, everybody)
        await service.register("uid-2")
        many = replace(STARVING, resources=replace(STARVING.resources, data_workers=4000))
        await put(service, many, "uid-2")
        assert (await service.http.get("/v1/jobs/uid-2/input")).status_code == 200
        found = (await service.http.get("/v1/profiles")).json()["items"]
        assert {line["job_uid"] for line in found} == {"uid-1", "uid-2"}

    with_api(database_url, work)


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": Measured.given(1e18)},
        {"step": Measured.given(1e-9), "batch_size": 10**9, "processes": 10**6},
        {"storage": Storage(1e-9, cold_bytes_per_second=1e18, hits=0.5)},
        {"resources": Resources(cores=1e5, workers=4096)},
        {"resources": Resources(cores=1e-9, workers=0)},
        {"causes": {"x" * 1000: 1.0}, "cut": "y" * 1000},
        {"stages": (StageCost("z" * 1000, "opaque", 0.11, bytes_out=1e6),) * 63},
    ],
)
def test_whatever_is_taken_is_explained(sqlite_url: str, changes: dict[str, Any]) -> None:
    async def work(service: Api) -> None:
        await put(service, replace(STARVING, **changes))
        for path in ("profile", "input"):
            answer = await service.http.get(f"/v1/jobs/uid-1/{path}")
            assert answer.status_code == 200, answer.text
        ask = {"configurations": [{"cores": 4096, "workers": 1024}, {"workers": 0}]}
        answer = await service.http.post("/v1/jobs/uid-1/whatif", json=ask)
        assert answer.status_code == 200, answer.text

    with_api(sqlite_url, work)


def test_the_schedulers_decisions_about_a_job_are_the_jobs(database_url: str) -> None:
    async def work(service: Api) -> None:
        def decision(number: int, uid: str) -> dict[str, Any]:
            return {
                "id": f"k{number}",
                "time": 100.0 + number,
                "job_uid": uid,
                "reason": "DataStall",
                "message": f"decision {number}",
            }

        snapshot = {
            "time": 200.0,
            "stranded_gpus": 0.0,
            "stranded_cpu_cores": 0.0,
            "nodes": [],
            "allocations": [decision(1, "uid-1"), decision(2, "other"), decision(3, "uid-1")],
        }
        answer = await service.http.put("/v1/cluster/snapshot", json=snapshot)
        assert answer.status_code == 204, answer.text
        page = (await service.http.get("/v1/jobs/uid-1/allocations?limit=1")).json()
        assert [one["message"] for one in page["items"]] == ["decision 3"]
        rest = await service.http.get(
            "/v1/jobs/uid-1/allocations", params={"continue": page["continue"]}
        )
        assert [one["message"] for one in rest.json()["items"]] == ["decision 1"]

    with_api(database_url, work)


def test_what_a_job_waits_for_is_a_metric_until_it_falls_silent(sqlite_url: str) -> None:
    clock = Clock()

    async def main() -> None:
        async with api(sqlite_url, clock=clock) as service:
            await service.register()
            await put(service)
            text = (await service.http.get("/metrics")).text
            assert 'penstock_job_input_stall_ratio{cause="preparation",job="job"' in text
            assert 'penstock_job_input_limit{job="job",namespace="default",resource="workers"}' in (
                text
            )
            assert 'penstock_job_input_rate{job="job",namespace="default"} 18.0' in text
            clock.advance(61)
            assert "penstock_job_input_rate{" not in (await service.http.get("/metrics")).text

    run(main)
