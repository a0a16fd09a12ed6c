"""Tokens of jobs: derived from a key that is made once."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.controller.execution.tokens import KEY_SECRET, JobTokens
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError
from tests.controller.fake_server import FakeApi, FakeServer


def tokens(server: FakeServer) -> JobTokens:
    return JobTokens(cast("Api", FakeApi(server, lambda _: None)), "ns")


def test_a_job_has_one_token_and_each_job_its_own() -> None:
    server = FakeServer()
    first = asyncio.run(tokens(server).of("uid-1"))
    assert len(bytes.fromhex(first)) == 32
    assert asyncio.run(tokens(server).of("uid-1")) == first, "in another process"
    assert asyncio.run(tokens(server).of("uid-2")) != first
    assert list(server.objects["secrets"]) == [KEY_SECRET]


def test_another_cluster_has_other_tokens() -> None:
    one, other = FakeServer(), FakeServer()
    assert asyncio.run(tokens(one).of("uid-1")) != asyncio.run(tokens(other).of("uid-1"))


def test_of_two_replicas_the_first_makes_the_key() -> None:
    server = FakeServer()
    first = tokens(server)
    late = FakeApi(server, lambda _: None)
    read, answers = late.get, [404]

    async def get_before_it_was_made(*arguments: str, **_: bool) -> dict[str, object]:
        if answers:
            raise ApiRefusedError("not found", code=answers.pop(), reason="NotFound")
        return await read(*arguments)

    late.get = get_before_it_was_made  # type: ignore[method-assign,assignment]  # answers late once
    expected = asyncio.run(first.of("uid-1"))
    assert asyncio.run(JobTokens(cast("Api", late), "ns").of("uid-1")) == expected


@pytest.mark.parametrize("data", [{}, {"key": "no base64!"}, {"key": "c2hvcnQ="}, None])
def test_a_key_that_is_none_is_named(data: dict[str, str] | None) -> None:
    server = FakeServer()
    server.put("secrets", {"metadata": {"name": KEY_SECRET}, "data": data})
    with pytest.raises(ApiRefusedError, match=r"job-key: data\.key is not a key"):
        asyncio.run(tokens(server).of("uid-1"))
