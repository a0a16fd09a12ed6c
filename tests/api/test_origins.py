"""From where the service may be used: its own page, this machine, and by nobody without a token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import ValidationError

from penstock.api.app import build_app
from penstock.api.auth.anonymous import Anonymous
from penstock.api.auth.tokens import ApiTokens, new_token
from penstock.brain.configuration import ApiToken, BrainSettings
from tests.api.service import api, run
from tests.brain.brains import open_brain


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),  # no browser
        ({"Origin": "http://brain"}, 303),
        ({"Origin": "https://brain"}, 303),  # TLS ends before the service
        ({"Origin": "https://public.example"}, 303),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://brain.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://brain", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_no_other_site_logs_anybody_in_or_out(
    sqlite_url: str, headers: dict[str, str], status: int
) -> None:
    async def main() -> None:
        token, digest = new_token()
        known = ApiTokens([ApiToken(name="ada", sha256=digest)])
        settings = BrainSettings(public_url="https://public.example")
        async with api(sqlite_url, authenticator=known, settings=settings) as service:
            answer = await service.http.post("/session", data={"token": token}, headers=headers)
            assert answer.status_code == status
            assert ("set-cookie" in answer.headers) is (status == 303)
            left = await service.http.post("/session/end", headers=headers)
            assert left.status_code == status

    run(main)


@pytest.mark.parametrize(
    ("public", "secure"),
    [("", False), ("http://public.example", False), ("https://public.example", True)],
)
def test_the_cookie_is_for_https_where_browsers_have_that(
    sqlite_url: str, public: str, secure: bool
) -> None:
    async def main() -> None:
        token, digest = new_token()
        known = ApiTokens([ApiToken(name="ada", sha256=digest)])
        settings = BrainSettings(public_url=public)
        async with api(sqlite_url, authenticator=known, settings=settings) as service:
            answer = await service.http.post("/session", data={"token": token})
            assert ("secure" in answer.headers["set-cookie"].lower()) is secure

    run(main)


@pytest.mark.parametrize(
    "url", ["brain.example.org", "https://a/b", "https://a?b", "ftp://a", "https://u@a", "https://"]
)
def test_a_public_address_is_a_scheme_and_a_host(url: str) -> None:
    with pytest.raises(ValidationError):
        BrainSettings(public_url=url)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8477", 200),
        ("127.0.0.1", 200),
        ("localhost:1", 200),
        ("[::1]:8477", 200),
        ("public.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8477", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_a_service_without_tokens_is_called_by_addresses_of_this_machine(
    sqlite_url: str, host: str, status: int
) -> None:
    async def main() -> None:
        settings = BrainSettings(public_url="https://public.example")
        async with open_brain(sqlite_url, settings=settings) as brain:
            app = build_app(brain, Anonymous(), local_only=True)
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app), base_url="http://brain"
            ) as http:
                for path in ("/", "/v1/jobs", "/healthz"):
                    answer = await http.get(path, headers={"Host": host})
                    assert answer.status_code == status

    run(main)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_nothing_of_a_stranger_s_body_is_read(sqlite_url: str, method: str) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 10_000
            yield b" " * 10_000

    async def main() -> None:
        async with open_brain(sqlite_url) as brain:
            app = build_app(brain, ApiTokens([]))
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app), base_url="http://brain"
            ) as http:
                answer = await http.request(method, "/v1/jobs/uid-1", content=body())
                assert answer.status_code == 401
                assert answer.json()["type"] == "urn:penstock:problem:unauthenticated"

    run(main)
    assert read == 0
