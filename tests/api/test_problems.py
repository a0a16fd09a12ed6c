"""Bad requests are refused at the edge, with the field, the value and the rule."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from penstock.api.problems import _may_pass
from penstock.wire.problems import ProblemType
from tests.api.service import REGISTRATION, Api, api, run, sample, server


async def refused(service: Api, method: str, path: str, status: int, **options: Any) -> Any:
    answer = await service.http.request(method, path, **options)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] in set(ProblemType)
    assert problem["title"]
    return problem


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"naem": "x"}, "body.naem"),
        ({"strategy": "Ring"}, "body.strategy"),
        ({"name": ""}, "body.name"),
        ({"slots_per_step": 0}, "body.slots_per_step"),
        ({"slots_per_step": 1e400}, "body.slots_per_step"),
        ({"roles": {}}, "body.roles"),
        ({"roles": {"boss": {}}}, "body.roles.boss.[key]"),
        ({"roles": {"worker": {"cpu": "-1"}}}, "body.roles.worker.cpu"),
        ({"roles": {"worker": {"cpu": "lots"}}}, "body.roles.worker.cpu"),
        ({"roles": {"worker": {"min_replicas": 9, "max_replicas": 3}}}, "body.roles.worker"),
        ({"resource_limits": {"cpu": "NaN"}}, "body.resource_limits.cpu"),
        ({"objective": "Deadline"}, "body"),
        ({"deadline_seconds": 1_800_000_000}, "body"),
        ({"objective": "Cheapest", "deadline_seconds": 1_800_000_000}, "body"),
    ],
)
def test_a_bad_registration_names_its_field(
    sqlite_url: str, change: dict[str, Any], field: str
) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            content = json.dumps({**REGISTRATION, **change})
            problem = await refused(
                service,
                "PUT",
                "/v1/jobs/uid-1",
                422,
                content=content,
                headers={"Content-Type": "application/json"},
            )
            assert field in [error["field"] for error in problem["errors"]]
            assert all(error["rule"] for error in problem["errors"])
            assert (await service.http.get("/v1/jobs/uid-1")).status_code == 404

    run(main)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"steps_per_second": float("nan")}, "steps_per_second"),
        ({"steps_per_second": float("inf")}, "steps_per_second"),
        ({"steps_per_second": -1}, "steps_per_second"),
        ({"steps_per_second": 1e300}, "steps_per_second"),
        ({"time": -5}, "time"),
        ({"time": 1_800_000_000_000}, "time"),  # milliseconds
        ({"step": -1}, "step"),
        ({"step": 2**60}, "step"),
        ({"step": 1.5}, "step"),
        ({"world_size": 10**6}, "world_size"),
        ({"roles": {"worker": {"x": {"cpu_cores": 1}}}}, "roles"),
        ({"roles": {"worker": {"4096": {"cpu_cores": 1}}}}, "roles"),
        ({"roles": {"worker": {"0": {"cpu_cores": float("nan")}}}}, "roles"),
        ({"roles": {"worker": {"0": {"cpu_cores": 1, "gpu": 2}}}}, "roles"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_bad_sample_spoils_its_batch_and_nothing_is_half_stored(
    sqlite_url: str, change: dict[str, Any], field: str
) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            body = json.dumps({"samples": [sample(1.8e9), {**sample(1.8e9 + 1), **change}]})
            problem = await refused(
                service,
                "POST",
                "/v1/jobs/uid-1/samples",
                422,
                content=body,
                headers={"Content-Type": "application/json"},
            )
            fields = [error["field"] for error in problem["errors"]]
            assert any(each.startswith(f"body.samples.1.{field}") for each in fields)
            stored = (await service.http.get("/v1/jobs/uid-1/samples")).json()
            assert stored["items"] == []

    run(main)


def test_what_is_no_json_too_large_or_elsewhere(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            json_type = {"Content-Type": "application/json"}
            await refused(service, "PUT", "/v1/jobs/u", 400, content=b"{nope", headers=json_type)
            await refused(
                service, "PUT", "/v1/jobs/u", 413, content=b" " * (2**20 + 1), headers=json_type
            )

            async def chunks() -> Any:
                for _ in range(20):
                    yield b" " * 2**16

            await refused(service, "PUT", "/v1/jobs/u", 413, content=chunks(), headers=json_type)
            form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d says
            untyped = await refused(
                service, "PUT", "/v1/jobs/u", 422, content=json.dumps(REGISTRATION), headers=form
            )
            assert "Content-Type: application/json" in untyped["detail"]
            assert untyped["errors"][0]["value"] == form["Content-Type"]
            await refused(service, "GET", "/v1/nothing", 404)
            await refused(service, "DELETE", "/v1/jobs/u", 405)
            await refused(service, "GET", "/v1/jobs/u", 404)
            await refused(service, "GET", "/v1/jobs?limit=0", 422)
            await refused(service, "GET", "/v1/jobs?limit=501", 422)
            await refused(service, "PUT", f"/v1/jobs/{'u' * 65}", 422, json=REGISTRATION)

    run(main)


@pytest.mark.parametrize(
    "cursor", ["x", "!!", "WzFd", "W10", "bnVsbA", "WyJhIiwiYiJd", "W25hbiwiYSJd", "A" * 390]
)
def test_a_made_up_cursor_is_refused(sqlite_url: str, cursor: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            problem = await refused(service, "GET", f"/v1/jobs?continue={cursor}", 422)
            assert "continue" in problem["detail"]

    run(main)


def test_unknown_fields_deep_in_an_override_are_refused(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            for roles in (
                {"worker": {"replica": 3}},
                {"worker": {"resources": {"cpus": "3"}}},
                {"worker": {"ranks": {"0": {"memory": "1Gi", "disk": "1Gi"}}}},
                {"worker": {}},
                {},
            ):
                await refused(service, "POST", "/v1/jobs/uid-1/plans", 422, json={"roles": roles})
            assert (await service.http.get("/v1/jobs/uid-1")).json()["current_plan"] == 1

    run(main)


def test_a_database_that_fails_is_a_503_that_says_when_to_come_back(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()

            async with service.brain.database.engine.begin() as connection:
                await connection.execute(text("DROP TABLE runs"))
                await connection.execute(text("DROP TABLE plans"))
            answer = await service.http.get("/v1/jobs/uid-1/plans")
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert "plans" not in answer.json()["detail"].replace("it should", "")

    run(main)


def test_the_character_that_no_database_text_holds_is_refused_with_its_field(
    database_url: str,
) -> None:
    nul = "a\0b"

    async def main() -> None:
        async with api(database_url) as service:
            await service.register()
            job = "/v1/jobs/uid-1"
            event = {"time": 1.0, "kind": "OutOfMemory", "role": "worker", "rank": 0, "node": nul}
            override = {"roles": {"worker": {"replicas": 2}}, "message": nul}
            bodies: list[tuple[str, str, dict[str, Any], str]] = [
                ("PUT", "/v1/jobs/uid-2", {**REGISTRATION, "name": nul}, "body.name"),
                (
                    "PUT",
                    "/v1/jobs/uid-2",
                    {**REGISTRATION, "signature": {"model": nul}},
                    "body.signature.model",
                ),
                ("POST", f"{job}/plans", override, "body.message"),
                ("POST", f"{job}/finish", {"state": "Failed", "message": nul}, "body.message"),
                ("POST", f"{job}/samples", {"events": [event]}, "body.events.0.node"),
            ]
            for method, path, body, field in bodies:
                problem = await refused(service, method, path, 422, json=body)
                assert [error["field"] for error in problem["errors"]] == [field]
            for path, field in (
                ("/v1/jobs?namespace=%00", "query.namespace"),
                ("/v1/jobs?user=%00", "query.user"),
                ("/v1/jobs?model=%00", "query.model"),
                ("/?job=%00", "query.job"),
                ("/?namespace=%00", "query.namespace"),
                ("/?phase=%00", "query.phase"),
            ):
                problem = await refused(service, "GET", path, 422)
                assert [error["field"] for error in problem["errors"]] == [field]

    run(main)


def test_a_statement_that_the_database_refuses_is_no_lost_connection(postgres_url: str) -> None:
    async def main() -> None:
        async with api(postgres_url) as service:
            await service.register()
            async with service.brain.database.engine.begin() as connection:
                await connection.execute(text("DROP TABLE plans CASCADE"))
            problem = await refused(service, "GET", "/v1/jobs/uid-1/plans", 500)
            assert "reached" not in problem["title"]

    run(main)


class RefusalError(Exception):
    """A driver's error with an SQLSTATE."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.sqlstate = state


@pytest.mark.parametrize(
    ("state", "later"),
    [("57P01", True), ("53300", True), ("40001", True), ("22021", False), ("42P01", False)],
)
def test_only_what_may_pass_is_to_be_tried_again(state: str, later: bool) -> None:
    assert _may_pass(DBAPIError("SELECT 1", None, RefusalError(state))) is later


def test_a_database_that_was_deleted_or_replaced_is_not_ready(tmp_path: Path) -> None:
    file = tmp_path / "own.sqlite"

    async def main() -> None:
        async with api(f"sqlite+aiosqlite:///{file}") as service:
            await service.register()
            assert (await service.http.get("/readyz")).status_code == 200
            file.rename(tmp_path / "away.sqlite")
            problem = await refused(service, "GET", "/readyz", 503)
            assert "deleted or replaced" in problem["detail"]
            file.write_bytes(b"")
            await refused(service, "GET", "/readyz", 503)
            assert (await service.http.get("/healthz")).status_code == 200
            (tmp_path / "away.sqlite").rename(file)
            assert (await service.http.get("/readyz")).status_code == 200

    run(main)


@pytest.mark.parametrize("path", ["/v1/jobs/uid-1/ledger?sequence=1", "/session"])
def test_a_caller_that_leaves_within_its_request_is_no_fault(
    sqlite_url: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with server(sqlite_url) as (url, _), httpx.AsyncClient(base_url=url) as http:
            await http.put("/v1/jobs/uid-1", json=REGISTRATION)
            method = "POST" if path == "/session" else "PUT"
            host, _, port = url.removeprefix("http://").partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
                "Content-Type: application/octet-stream\r\n\r\nsome"
            )
            writer.write(head.encode())
            await writer.drain()
            await asyncio.sleep(0.2)  # so that the request is being served
            writer.close()
            with caplog.at_level("INFO"):
                assert (await http.get("/healthz")).status_code == 200
                await asyncio.sleep(0.2)

    run(main)
    assert [record for record in caplog.records if record.exc_info] == []
