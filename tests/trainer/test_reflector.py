"""How often an API server is asked that ends every watch as soon as it began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx
import pytest

from penstock.trainer.cluster import kube
from penstock.trainer.cluster.kube import KubeClient, KubeError, Reflector


class EnoughError(Exception):
    """The test has seen enough."""


class HastyServer:
    """Lists nothing, and ends each watch at once: in good order, or with an error's code."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.asked = 0

    async def list(self, path: str, query: Mapping[str, str]) -> tuple[list[Any], str]:
        self._count()
        return [], "1"

    async def watch(
        self, path: str, query: Mapping[str, str], version: str
    ) -> AsyncIterator[tuple[str, Any]]:
        self._count()
        if self.code is not None:
            raise KubeError(self.code, "it cannot be")
        for bookmark in ({"metadata": {"resourceVersion": "2"}},):
            yield "BOOKMARK", bookmark

    def _count(self) -> None:
        self.asked += 1
        if self.asked > 100:
            raise EnoughError


@pytest.mark.parametrize("code", [None, httpx.codes.GONE, 0])
def test_pauses_grow_to_a_bound_while_watches_end_at_once(
    code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            raise EnoughError

    # The module's import is replaced.
    monkeypatch.setattr(kube.asyncio, "sleep", pause)  # type: ignore[attr-defined]
    server = HastyServer(code)
    reflector = Reflector(cast("KubeClient", server), "/pods", {}, lambda objects: None)
    with pytest.raises(EnoughError):
        asyncio.run(reflector.run())
    assert len(pauses) == 12
    assert server.asked <= 24
    for seconds, usual in zip(pauses, kube.RETRY_SECONDS, strict=False):
        assert 0.7 * usual <= seconds <= 1.3 * usual
    assert all(7 <= seconds <= 13 for seconds in pauses[4:])
    assert len(set(pauses)) == 12, "pauses of many trainers must not coincide"


def test_a_watch_that_lasted_is_taken_up_at_once_and_from_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_pause(seconds: float) -> None:
        raise AssertionError(f"paused {seconds} s")

    # The module's import is replaced.
    monkeypatch.setattr(kube.asyncio, "sleep", no_pause)  # type: ignore[attr-defined]
    monkeypatch.setattr(kube, "STEADY_SECONDS", 0.0)
    server = HastyServer(None)
    reflector = Reflector(cast("KubeClient", server), "/pods", {}, lambda objects: None)
    with pytest.raises(EnoughError):
        asyncio.run(reflector.run())
