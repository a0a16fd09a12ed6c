"""Transports that behave as a test says, and the same test for both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.client import AsyncBrainClient, BrainClient, RetryPolicy
from tests.patience import patient

Handler = Callable[[httpx.Request], httpx.Response]
QUICK = RetryPolicy(total_seconds=2.0, attempt_seconds=0.5, first_seconds=0.01, most_seconds=0.05)
"""Of tests whose servers do not answer, or at once."""
REAL = RetryPolicy(total_seconds=patient(20.0), attempt_seconds=patient(10.0))
"""Of tests whose server is a real service, which takes the time that it takes."""


class Called:
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        # A response is read once, and belongs to the client that has read it.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


class Either:
    """One of the two clients, called alike: ``either.call("job", "uid-1")``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def call(self, name: str, *args: Any, handler: Handler, **options: Any) -> Any:
        transport = httpx.MockTransport(handler)
        keywords = options.pop("keywords", {})
        options.setdefault("retry", QUICK)
        if self.kind == "sync":
            with BrainClient("http://brain", transport=transport, **options) as client:
                found = getattr(client, name)(*args, **keywords)
                return list(found) if hasattr(found, "__next__") else found

        async def main() -> Any:
            async with AsyncBrainClient("http://brain", transport=transport, **options) as client:
                found = getattr(client, name)(*args, **keywords)
                if hasattr(found, "__anext__"):
                    return [each async for each in found]
                return await found

        return asyncio.run(main())


@pytest.fixture(params=["sync", "async"])
def either(request: pytest.FixtureRequest) -> Either:
    """Both clients, one after the other."""
    return Either(request.param)
