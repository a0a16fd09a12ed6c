"""Who may do what: API tokens, jobs' own tokens, and people of the cluster."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from penstock.api.auth import Permission, UnauthenticatedError, Verb
from penstock.api.auth.cache import TimedCache
from penstock.api.auth.chain import Chain
from penstock.api.auth.kubernetes import KubernetesAuthenticator
from penstock.api.auth.tokens import ApiTokens, hash_of, new_token
from penstock.brain.configuration import ApiToken
from penstock.brain.service.plans import ClusterUnavailableError
from penstock.brain.service.sample_writer import OverloadedError
from penstock.crds.environment import BRAIN_AUDIENCE
from tests.api.service import REGISTRATION, api, run


def tokens(**access: Any) -> tuple[ApiTokens, dict[str, dict[str, str]]]:
    """Tokens by name, and the headers that carry them."""
    made = {name: new_token() for name in access}
    known = [
        ApiToken(name=name, sha256=made[name][1], **options) for name, options in access.items()
    ]
    headers = {name: {"Authorization": f"Bearer {made[name][0]}"} for name in access}
    return ApiTokens(known), headers


class Reviews:
    """An API server that answers reviews, and counts them."""

    def __init__(self) -> None:
        self.statuses: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self.allowed: set[tuple[str, str, str | None]] = set()
        self.uids: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.down = False

    def knows(self, token: str, user: str, *audiences: str, groups: tuple[str, ...] = ()) -> None:
        self.statuses[token, audiences] = {
            "authenticated": True,
            "audiences": list(audiences) or ["https://kubernetes.default.svc"],
            "user": {"username": user, "groups": list(groups)},
        }

    async def review_token(self, token: str, audiences: list[str]) -> dict[str, Any]:
        self.asked += 1
        if self.down:
            raise ClusterUnavailableError("no route to host")
        return self.statuses.get((token, tuple(audiences)), {"error": "unknown token"})

    async def review_access(self, spec: dict[str, Any]) -> bool:
        self.asked += 1
        wanted = spec["resourceAttributes"]
        assert wanted["group"] == "penstock.dev"
        return (spec["user"], wanted["verb"], wanted.get("namespace")) in self.allowed

    async def job_uid(self, namespace: str, name: str) -> str | None:
        return self.uids.get((namespace, name))


def test_no_token_a_wrong_one_and_a_wrong_scheme_are_refused(sqlite_url: str) -> None:
    async def main() -> None:
        known, _ = tokens(ada={"access": "admin"})
        async with api(sqlite_url, authenticator=known) as service:
            for headers in (
                {},
                {"Authorization": "Bearer nonsense"},
                {"Authorization": "Basic YTpi"},
                {"Authorization": "Bearer"},
                {"Authorization": f"Bearer {'x' * 5000}"},
            ):
                answer = await service.http.get("/v1/jobs", headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["type"] == "urn:penstock:problem:unauthenticated"

    run(main)


def test_access_of_api_tokens(sqlite_url: str) -> None:
    async def main() -> None:
        known, headers = tokens(
            reader={"access": "read"},
            writer={"access": "write"},
            admin={"access": "admin"},
            elsewhere={"access": "write", "namespaces": ["other"]},
        )
        async with api(sqlite_url, authenticator=known) as service:
            http = service.http

            async def status(who: str, method: str, path: str, **options: Any) -> int:
                return (
                    await http.request(method, path, headers=headers[who], **options)
                ).status_code

            job, body = "/v1/jobs/uid-1", REGISTRATION
            assert await status("reader", "PUT", job, json=body) == 403
            assert await status("elsewhere", "PUT", job, json=body) == 403
            assert await status("writer", "PUT", job, json=body) == 200
            for who, expected in (("reader", 200), ("writer", 200), ("elsewhere", 403)):
                assert await status(who, "GET", job) == expected
            assert await status("elsewhere", "GET", "/v1/jobs") == 403
            assert await status("elsewhere", "GET", "/v1/jobs?namespace=other") == 200
            assert await status("elsewhere", "GET", "/v1/jobs?namespace=default") == 403
            plan = {"roles": {"worker": {"replicas": 2}}}
            assert await status("reader", "POST", f"{job}/plans", json=plan) == 403
            assert await status("writer", "POST", f"{job}/plans", json=plan) == 201
            assert (await http.get(f"{job}/plans/2", headers=headers["reader"])).json()[
                "author"
            ] == "token:writer"
            algorithm = "/v1/algorithms/cold_create"
            assert await status("writer", "PATCH", algorithm, json={}) == 403
            assert await status("admin", "PATCH", algorithm, json={}) == 200
            assert await status("reader", "GET", algorithm) == 200
            snapshot = {"time": 1, "stranded_gpus": 0, "stranded_cpu_cores": 0, "nodes": []}
            assert await status("writer", "PUT", "/v1/cluster/snapshot", json=snapshot) == 403
            assert await status("admin", "PUT", "/v1/cluster/snapshot", json=snapshot) == 204

    run(main)


def test_a_jobs_token_touches_its_own_job_only(sqlite_url: str) -> None:
    async def main() -> None:
        reviews = Reviews()
        own = "system:serviceaccount:default:job-trainer"
        reviews.knows("own", own, "penstock-brain")
        reviews.knows("other", "system:serviceaccount:default:other-trainer", "penstock-brain")
        reviews.knows("twin", "system:serviceaccount:elsewhere:job-trainer", "penstock-brain")
        reviews.knows("for-the-api-server", own)
        reviews.uids["default", "job"] = "uid-1"
        kubernetes = KubernetesAuthenticator(reviews)
        async with api(sqlite_url, authenticator=kubernetes) as service:
            http = service.http

            async def status(token: str, method: str, path: str, **options: Any) -> int:
                headers = {"Authorization": f"Bearer {token}"}
                return (await http.request(method, path, headers=headers, **options)).status_code

            job = "/v1/jobs/uid-1"
            for stranger in ("other", "twin", "for-the-api-server"):
                assert await status(stranger, "PUT", job, json=REGISTRATION) == 403
            assert await status("own", "PUT", job, json=REGISTRATION) == 200
            assert await status("own", "POST", f"{job}/samples", json={}) == 200
            assert await status("own", "GET", f"{job}/plans/current") == 200
            for stranger in ("other", "twin", "for-the-api-server"):
                assert await status(stranger, "GET", job) == 403
                assert await status(stranger, "POST", f"{job}/samples", json={}) == 403
            assert await status("own", "GET", "/v1/jobs") == 403
            assert await status("own", "PATCH", "/v1/algorithms/cold_create", json={}) == 403
            assert await status("stolen", "GET", job) == 401
            # The uid of another job cannot be taken by naming one's own.
            named = {**REGISTRATION, "name": "other"}
            assert await status("other", "PUT", job, json=named) == 409

    run(main)


def test_people_are_asked_about_and_answers_are_kept_a_minute() -> None:
    async def main() -> None:
        reviews = Reviews()
        reviews.knows("t", "ada@example.org", groups=("team",))
        reviews.allowed = {("ada@example.org", "get", "default")}
        kubernetes = KubernetesAuthenticator(reviews)

        caller = await kubernetes.authenticate("t")
        read = Permission(Verb.GET, namespace="default", name="job")
        assert await caller.may(read)
        assert not await caller.may(Permission(Verb.UPDATE, namespace="default", name="job"))
        asked = reviews.asked
        for _ in range(100):
            caller = await kubernetes.authenticate("t")
            assert await caller.may(read)
        assert reviews.asked == asked

    run(main)


def test_answers_are_forgotten_in_time_and_in_number() -> None:
    now = 0.0
    cache: TimedCache[str, int] = TimedCache(60, 3, lambda: now)
    cache.put("a", 1)
    now = 59.9
    assert cache.get("a") == 1
    now = 60.0
    assert cache.get("a") is None
    for index, key in enumerate("bcde"):
        cache.put(key, index)
    assert (len(cache), cache.get("b"), cache.get("e")) == (3, None, 3)


def test_a_cluster_that_is_away_is_a_503_and_api_tokens_still_work(sqlite_url: str) -> None:
    async def main() -> None:
        reviews = Reviews()
        reviews.down = True
        known, headers = tokens(ada={"access": "read"})
        chain = Chain([known, KubernetesAuthenticator(reviews)])
        async with api(sqlite_url, authenticator=chain) as service:
            answer = await service.http.get("/v1/jobs", headers={"Authorization": "Bearer x"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            answer = await service.http.get("/v1/jobs", headers=headers["ada"])
            assert answer.status_code == 200

    run(main)


def test_only_hashes_of_tokens_are_kept_and_they_can_be_replaced() -> None:
    token, digest = new_token()
    assert len(token) > 40
    assert hash_of(token) == digest
    assert token not in repr(ApiToken(name="x", sha256=digest))

    async def main() -> None:
        known = ApiTokens([ApiToken(name="x", sha256=digest)])
        assert (await known.authenticate(token)).name == "token:x"
        known.replace([])
        with pytest.raises(UnauthenticatedError):
            await known.authenticate(token)

    run(main)


def jwt(audience: object) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"aud": audience}).encode()).rstrip(b"=").decode()
    return f"e30.{claims}.c2lnbmF0dXJl"


def test_a_token_that_says_for_whom_it_is_costs_one_review() -> None:
    async def main() -> None:
        reviews = Reviews()
        ours, theirs = jwt([BRAIN_AUDIENCE]), jwt("https://kubernetes.default.svc")
        reviews.knows(ours, "system:serviceaccount:default:job-trainer", BRAIN_AUDIENCE)
        reviews.knows(theirs, "ada")
        authenticator = KubernetesAuthenticator(reviews)
        assert (await authenticator.authenticate(ours)).name == "job:default/job"
        assert (await authenticator.authenticate(theirs)).name == "ada"
        assert reviews.asked == 2
        for made_up in (jwt(BRAIN_AUDIENCE), jwt(["other"])):
            with pytest.raises(UnauthenticatedError):
                await authenticator.authenticate(made_up)
            with pytest.raises(UnauthenticatedError):
                await authenticator.authenticate(made_up)
        assert reviews.asked == 4

    run(main)


@pytest.mark.parametrize("token", ["", "...", "a.b.c", f"a.{'W' * 4000}.c", jwt(7), "a.W10.c"])
def test_what_is_no_token_is_refused(token: str) -> None:
    async def main() -> None:
        with pytest.raises(UnauthenticatedError):
            await KubernetesAuthenticator(Reviews()).authenticate(token)

    run(main)


def test_made_up_tokens_neither_flood_the_api_server_nor_keep_others_out() -> None:
    class Slow(Reviews):
        def __init__(self) -> None:
            super().__init__()
            self.going_on = self.most = 0
            self.go = asyncio.Event()

        async def review_token(self, token: str, audiences: list[str]) -> dict[str, Any]:
            self.going_on += 1
            self.most = max(self.most, self.going_on)
            if token.startswith("made up"):
                await self.go.wait()
            self.going_on -= 1
            return await super().review_token(token, audiences)

    async def main() -> None:
        clock = [0.0]
        reviews = Slow()
        reviews.knows("good", "ada")
        authenticator = KubernetesAuthenticator(reviews)
        authenticator._callers = TimedCache(60.0, 10, lambda: clock[0])
        await authenticator.authenticate("good")
        flood = [
            asyncio.create_task(authenticator.authenticate(f"made up {number}"))
            for number in range(1000)
        ]
        await asyncio.sleep(0.1)
        clock[0] = 61.0  # it has to be reviewed again
        assert (await authenticator.authenticate("good")).name == "ada"
        reviews.go.set()
        ends = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(end, UnauthenticatedError) for end in ends) == 64
        assert sum(isinstance(end, OverloadedError) for end in ends) == 1000 - 64
        assert reviews.most <= 9
        assert reviews.asked == 2 * 2 + 64 * 2

    run(main)
