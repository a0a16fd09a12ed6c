"""Devices that claims hand out are read where the cluster serves them, and not missed elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.kube.api import Api, Page
from penstock.kube.errors import ApiRefusedError, ApiUnavailableError
from penstock.scheduler.service.loop import DEVICES_SECONDS, NO_DEVICES_SECONDS, Loop, Options
from penstock.scheduler.service.metrics import Metrics
from tests.scheduler.planner.documents import node
from tests.scheduler.test_devices import claim, slice_of


class Cluster:
    """An API server that knows these two kinds, or does not."""

    def __init__(self, answer: Callable[[str], list[Any]]) -> None:
        self.answer = answer

    async def list(self, resource: str, namespace: None) -> Page:
        return Page(self.answer(resource), "1")


def pauses(answer: Callable[[str], list[Any]], monkeypatch: pytest.MonkeyPatch) -> tuple[Loop, Any]:
    """Read once; the loop, and how long it then waits."""
    seconds: list[float] = []

    async def sleep(pause: float) -> None:
        seconds.append(pause)
        raise asyncio.CancelledError

    async def read() -> Loop:
        loop = Loop(cast("Api", Cluster(answer)), None, Options(), Metrics())
        loop.planner.state.put_node(node("a", "8"))
        monkeypatch.setattr("penstock.scheduler.service.loop.asyncio.sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await loop._read_devices_forever()
        return loop

    return asyncio.run(read()), seconds


def errors(loop: Loop) -> list[dict[str, str]]:
    found = loop.metrics.call_errors.collect()[0].samples
    return [one.labels for one in found if one.name.endswith("_total")]


def test_they_count_as_accelerators_of_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    served: dict[str, list[Any]] = {
        "resourceslices": [slice_of("a", "gpu-0", "gpu-1")],
        "resourceclaims": [claim("a", "gpu-0")],
    }
    loop, waits = pauses(lambda resource: served[resource], monkeypatch)
    columns = loop.planner.state.snapshot.columns
    row = columns.row("a")
    assert columns.total_accelerator_milli[row] == 2000
    assert columns.free_accelerator_milli[row] == 1000
    assert waits == [DEVICES_SECONDS]


def test_a_cluster_without_them_is_asked_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(resource: str) -> list[Any]:
        raise ApiRefusedError(resource, code=404, reason="NotFound")

    loop, waits = pauses(none, monkeypatch)
    assert waits == [NO_DEVICES_SECONDS]
    assert errors(loop) == []


def test_a_server_that_fails_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(resource: str) -> list[Any]:
        raise ApiUnavailableError(resource, code=503, reason="ServiceUnavailable")

    loop, waits = pauses(fails, monkeypatch)
    assert waits == [DEVICES_SECONDS]
    assert errors(loop) == [{"what": "Devices", "reason": "ServiceUnavailable"}]


def test_a_slice_that_cannot_be_read_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, waits = pauses(lambda _: [{"spec": {"driver": "gpu.nvidia.com"}}], monkeypatch)
    assert waits == [NO_DEVICES_SECONDS]
    assert loop.planner.state.snapshot.columns.total_accelerator_milli[0] == 0
