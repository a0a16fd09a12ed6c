"""Plans over HTTP: tags, keys, overrides, proposals."""

from __future__ import annotations

from penstock.base.enums import Trigger
from penstock.base.targets import RoleTarget
from tests.api.service import api, run, sample
from tests.brain.brains import Clock


def test_the_tag_of_the_current_plan_saves_reading_it_again(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            url = "/v1/jobs/uid-1/plans/current"
            first = await service.http.get(url)
            tag = first.headers["etag"]
            assert (await service.http.get(url, headers={"If-None-Match": tag})).status_code == 304
            weak = {"If-None-Match": f'"0", W/{tag}'}
            assert (await service.http.get(url, headers=weak)).status_code == 304
            other = {"If-None-Match": '"999"'}
            assert (await service.http.get(url, headers=other)).status_code == 200
            bad = await service.http.get(url, headers={"If-None-Match": "999"})
            assert bad.status_code == 400

    run(main)


def test_targets_are_spelt_as_in_a_scale(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            roles = {
                "worker": {
                    "replicas": 2,
                    "resources": {"cpu": "250m"},
                    "ranks": {"1": {"memory": "1Gi", "minIncarnation": 3, "avoidNodes": ["n1"]}},
                }
            }
            made = await service.http.post(
                "/v1/jobs/uid-1/plans", json={"roles": roles, "message": "why not"}
            )
            assert made.status_code == 201
            plan = (await service.http.get("/v1/jobs/uid-1/plans/current")).json()
            assert plan["roles"] == roles
            assert RoleTarget.model_validate(plan["roles"]["worker"]).replicas == 2
            assert (plan["source"], plan["author"]) == ("User", "anonymous")

    run(main)


def test_if_match_and_the_key_are_honoured(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            url, body = "/v1/jobs/uid-1/plans", {"roles": {"worker": {"replicas": 2}}}
            tag = (await service.http.get(f"{url}/current")).headers["etag"]
            headers = {"If-Match": tag, "Idempotency-Key": "a-key"}
            first = await service.http.post(url, json=body, headers=headers)
            assert first.status_code == 201
            again = await service.http.post(url, json=body, headers=headers)
            assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
            stale = await service.http.post(url, json=body, headers={"If-Match": tag})
            assert stale.status_code == 412
            assert stale.json()["type"] == "urn:penstock:problem:precondition-failed"
            unknown = await service.http.post(url, json=body, headers={"If-Match": '"abc"'})
            assert unknown.status_code == 412
            many = await service.http.post(url, json={"roles": {"worker": {"replicas": 9}}})
            assert many.status_code == 422
            assert many.json()["errors"] == [
                {"field": "roles.worker.replicas", "rule": "the spec allows 1 to 4", "value": 9}
            ]
            other = {"roles": {"worker": {"replicas": 3}}}
            reused = await service.http.post(url, json=other, headers={"Idempotency-Key": "a-key"})
            assert reused.status_code == 409
            assert reused.json()["type"] == "urn:penstock:problem:idempotency-conflict"
            fresh = await service.http.post(
                url, json=other, headers={"If-Match": first.headers["etag"]}
            )
            assert fresh.status_code == 201

    run(main)


def test_a_pin_is_shown_and_lifted(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            url = "/v1/jobs/uid-1"
            nothing = await service.http.delete(f"{url}/override")
            assert nothing.json()["type"] == "urn:penstock:problem:no-override"
            body = {"policy": "Pin", "roles": {"worker": {"replicas": 3}}}
            await service.http.post(f"{url}/plans", json=body)
            assert (await service.http.get(url)).json()["pinned_by"] == 2
            lifted = await service.http.delete(f"{url}/override")
            assert lifted.status_code == 200
            assert lifted.json()["reason"] == "OverrideLifted"
            assert (await service.http.get(url)).json()["pinned_by"] is None

    run(main)


def test_a_proposal_says_what_and_why_and_changes_nothing(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await service.register()
            before = (await service.http.get("/v1/jobs/uid-1")).json()
            for _ in range(10):
                clock.advance(15)
                await service.http.post(
                    "/v1/jobs/uid-1/samples",
                    json={"samples": [sample(clock.now, steps_per_second=20.0)]},
                )
            url = "/v1/jobs/uid-1/plans/propose"
            plan = (await service.http.post(url, json={})).json()["plan"]
            assert plan["algorithm"]["name"] == "scale_allreduce"
            assert plan["roles"]["worker"]["replicas"] == 2
            assert plan["prediction"]["steps_per_second"] > 0
            capped = {"limits": {"cpu": "500m"}}
            assert (await service.http.post(url, json=capped)).json()["plan"] is None
            named = (await service.http.post(url, json={"algorithm": "cold_create"})).json()
            assert [run["algorithm"]["name"] for run in named["runs"]] == ["cold_create"]
            other = (await service.http.post(url, json={"algorithm": "optimize_ps"})).json()
            [run_of_it] = other["runs"]
            assert (other["plan"], run_of_it["outcome"]) == (None, "NoPlan")
            assert run_of_it["detail"] == (
                "optimize_ps is for ParameterServer; the job is AllReduce"
            )
            unknown = await service.http.post(url, json={"algorithm": "nobody"})
            assert unknown.status_code == 404
            assert "cold_create" in unknown.json()["detail"]
            after = (await service.http.get("/v1/jobs/uid-1")).json()
            assert after["current_plan"] == before["current_plan"]

    run(main)


def test_what_came_of_a_plan(sqlite_url: str) -> None:
    async def main() -> None:

        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await service.register()
            for speed in (9.0, 10.0, 11.0, 500.0, 10.0):
                clock.advance(15)
                await service.http.post(
                    "/v1/jobs/uid-1/samples",
                    json={"samples": [sample(clock.now, steps_per_second=speed)]},
                )
            await service.brain.planner.plan("uid-1", Trigger.STRAGGLER)
            plan = (await service.http.get("/v1/jobs/uid-1/plans/1")).json()
            assert plan["outcome"]["settled_seconds"] == clock.now - 60
            assert plan["outcome"]["steps_per_second"] == 10.5  # median after it settled
            assert (await service.http.get("/v1/jobs/uid-1/plans/2")).status_code == 404

    run(main)


def test_algorithms_are_changed_while_the_brain_runs(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            listed = (await service.http.get("/v1/algorithms")).json()["items"]
            names = [each["name"] for each in listed]
            assert {"cold_create", "history_create", "scale_allreduce"} <= set(names)
            url = "/v1/algorithms/cold_create"
            assert (await service.http.get(url)).json()["params"]["servers"] != 3
            changed = await service.http.patch(url, json={"params": {"servers": 3}})
            assert changed.json()["params"]["servers"] == 3
            assert "servers" in changed.json()["params_schema"]["properties"]
            for body in (
                {"params": {"srevers": 3}},
                {"params": {"servers": -1}},
                {"params": {"srevers": 3}, "enabled": False},
                {"shade": True},
            ):
                assert (await service.http.patch(url, json=body)).status_code == 422
            assert (await service.http.get(url)).json()["params"]["servers"] == 3
            assert (await service.http.patch("/v1/algorithms/nobody", json={})).status_code == 404
            await service.http.patch(url, json={"enabled": False})
            await service.http.patch("/v1/algorithms/history_create", json={"enabled": False})
            job = await service.register()
            assert job["current_plan"] is None
            missing = await service.http.get("/v1/jobs/uid-1/plans/current")
            assert missing.json()["type"] == "urn:penstock:problem:no-plan"
            assert "no initial plan" in missing.json()["detail"]
            audit = (await service.http.get("/v1/audit")).json()["items"]
            assert [entry["action"] for entry in audit] == ["configure-algorithm"] * 3
        async with api(sqlite_url) as service:  # another Brain, or the same after a restart
            assert (await service.http.get(url)).json()["params"]["servers"] == 3
            assert not (await service.http.get(url)).json()["enabled"]

    run(main)
