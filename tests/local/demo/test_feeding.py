"""The second job of the demo: what the scheduler asked for, and the speed before and after."""

from __future__ import annotations

import asyncio
import io
from typing import Any, cast

from rich.console import Console

from penstock.local.demo.feeding import GPU_POD, Feeding, FeedView, settled, steps_of
from penstock.local.demo.observation.observer import Observer
from penstock.local.demo.observation.report import FeedReport, FeedStep, Throughput
from penstock.local.demo.screen import Lines, draw

Json = dict[str, Any]
SPEEDS = [Throughput(float(second), 2.0 if second < 20 else 5.0, 1) for second in range(0, 60, 3)]


def scale(second: int, roles: Json, *, source: str = "Scheduler", applied: bool = True) -> Json:
    condition = {
        "type": "Applied",
        "status": str(applied),
        "lastTransitionTime": f"1970-01-01T00:00:{second:02}Z",
    }
    spec = {"source": source, "roles": roles, "reason": "DataStall", "message": f"at {second}"}
    return {"spec": spec, "status": {"conditions": [condition]}}


DATA = {"replicas": 1, "resources": {"cpu": "1"}}


def test_each_step_has_the_whole_configuration_and_the_speed_on_both_sides() -> None:
    scales = [
        scale(1, {"worker": {"replicas": 1}}, source="Brain"),
        scale(15, {"dataWorker": DATA}),
        scale(30, {"worker": {"resources": {"cpu": "1"}}}),
        scale(40, {"dataWorker": {"replicas": 2}}, applied=False),
    ]
    first, second = steps_of(scales, SPEEDS, 0.0)
    assert (first.data_workers, first.data_worker_cores, first.training_cores) == (1, "1", None)
    assert (second.data_workers, second.training_cores) == (1, "1")
    assert (first.batches_per_second_before, first.batches_per_second_after) == (2.0, 5.0)
    assert second.batches_per_second_before == 5.0


def test_a_change_has_no_effect_at_first() -> None:
    assert settled(SPEEDS, 15.0, 60.0) == 5.0
    assert settled(SPEEDS, 15.0, 24.0) is None


class Course:
    """A job that is tuned and ends once the GPU pod runs."""

    def __init__(self) -> None:
        self.applied: list[str] = []

    async def apply(self, manifest: Json) -> None:
        self.applied.append(manifest["metadata"]["name"])

    async def apply_pod(self, manifest: Json) -> None:
        self.applied.append(manifest["metadata"]["name"])

    async def pod(self, _: str) -> Json:
        return {"spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}

    async def job(self) -> Json:
        state = "Succeeded" if self.looks > 2 else "Running"
        self.looks += 1
        return {"metadata": {"uid": "u"}, "status": {"state": state}}

    looks = 0

    async def scales(self) -> list[Json]:
        return [scale(1, {"worker": {"resources": {"cpu": "1"}}, "dataWorker": DATA})]

    async def samples(self, _: str) -> list[Json]:
        return []

    async def pods(self) -> list[Json]:
        tags = {"penstock.dev/role": "worker"}
        return [{"metadata": {"name": "w", "labels": tags}, "spec": {}}]

    async def log(self, *_: Any) -> str:
        return (
            "epoch 1/9: loss 1.0, accuracy 0.300, 180 images/s, waited for data 63% of the time\n"
            "epoch 2/9: loss 1.0, accuracy 0.700, 400 images/s, waited for data 4% of the time\n"
        )


def test_the_gpu_pod_comes_once_the_tuning_is_over() -> None:
    course = Course()
    notes: list[tuple[str, ...]] = []
    feeding = Feeding(
        cast("Observer", course),
        {"metadata": {"name": "far"}},
        30.0,
        lambda v: notes.append(v.notes),
    )
    feeding._epoch_seconds = 0.0
    report = asyncio.run(feeding.run())
    assert course.applied == ["far", GPU_POD]
    assert (report.images_per_second_before, report.images_per_second_after) == (180, 400)
    assert (report.waited_before, report.waited_after, report.accuracy) == (0.63, 0.04, 0.7)
    assert report.gpu_pod_seconds is not None
    assert report.data_workers_lost == 0
    assert report.faults() == []
    assert "runs on gpu-1" in notes[-1][-1]


def test_each_broken_promise_is_named() -> None:
    nothing = FeedReport("far", "Failed", (), 1.0, None, None, None, None, None, None, 2)
    assert nothing.faults() == [
        "far did not succeed: Failed",
        "far got no data worker",
        "the GPU pod did not start",
        "2 data workers did not hand back their batches",
    ]


def test_lines_and_frames_tell_what_was_asked_for_and_why() -> None:
    step = FeedStep(15.0, "DataStall", "baseline is 2 steps/s", 2, "1", "3")
    view = FeedView(16.0, "Running", "", "u", steps=(step,), speeds=tuple(SPEEDS), notes=("x",))
    out = io.StringIO()
    console = Console(file=out, width=200)
    Lines(console).show(view)
    assert "2 data workers of 1 core, training on 3 cores; DataStall: baseline" in out.getvalue()
    console.print(draw(view))
    assert "5.0 batches/s" in out.getvalue()
