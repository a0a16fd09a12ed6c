"""Events are counted, not repeated."""

from __future__ import annotations

import asyncio

from penstock_cluster.events import EventRecorder
from penstock_cluster.registry import Engine

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1"}}


def test_the_same_event_is_counted() -> None:
    async def scenario() -> None:
        async with Engine() as engine:
            api = engine.api()
            recorder = EventRecorder(api, "kubelet", engine.timestamp)
            for _ in range(3):
                await recorder.record(POD, "Pod", "BackOff", "again", warning=True)
            await recorder.record(POD, "Pod", "Started", "once")
            events = {each["reason"]: each for each in (await api.list("events")).items}
            assert events["BackOff"]["count"] == 3
            assert events["BackOff"]["type"] == "Warning"
            assert events["Started"]["involvedObject"]["name"] == "p"

    asyncio.run(scenario())


def test_a_deleted_event_is_recorded_anew_and_a_missing_namespace_is_no_error() -> None:
    async def scenario() -> None:
        async with Engine() as engine:
            api = engine.api()
            recorder = EventRecorder(api, "kubelet", engine.timestamp)
            await recorder.record(POD, "Pod", "BackOff", "again")
            await api.delete_collection("events", "default")
            await recorder.record(POD, "Pod", "BackOff", "again")
            assert len((await api.list("events")).items) == 1
            nowhere = {"metadata": {**POD["metadata"], "namespace": "nowhere"}}
            await recorder.record(nowhere, "Pod", "BackOff", "again")

    asyncio.run(scenario())
