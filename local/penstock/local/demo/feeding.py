"""The demo's second job: it waits for its data, and is given data workers until a GPU pod comes.

What is shown is what the scheduler asked for (Scales, with its reasons), what the job measured
(the queue of its data) and what the training script itself printed. The course: apply the job, wait
until its tuning has come to an end or for `PATIENCE_SECONDS`, apply a pod that asks for an
accelerator and for cores that data workers use, and wait for the end of the job.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

import httpx

from penstock.base.enums import JobState, Role
from penstock.local.demo.observation.observer import Json, Observer
from penstock.local.demo.observation.report import FeedReport, FeedStep, Throughput
from penstock.local.demo.scenario import (
    BLIND_TIMEOUT_SECONDS,
    ENDED,
    LOOK_EVERY_SECONDS,
    DemoError,
    PodLine,
    applied_at,
    is_applied,
    pod_line,
)

PATIENCE_SECONDS: Final = 60.0
"""How long the tuning may take before the GPU pod comes."""

QUIET_SECONDS: Final = 30.0
"""A tuning that has asked for nothing more for so long has come to an end."""

EFFECT_SECONDS: Final = 11.0
"""How old a change is when the queue's figures are all of the time after it."""

GPU_POD: Final = "incoming"
_EPOCH: Final = re.compile(r"accuracy ([\d.]+), (\d+) images/s, waited for data (\d+)%")
_LOG_LINES: Final = 5000


@dataclass(frozen=True)
class FeedView:
    """The job at one moment; times are seconds since it was applied."""

    seconds: float
    state: str
    message: str
    uid: str
    pods: tuple[PodLine, ...] = ()
    steps: tuple[FeedStep, ...] = ()
    speeds: tuple[Throughput, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Feeding:
    """One run; ``show`` is called with every new view."""

    observer: Observer
    manifest: Json
    timeout_seconds: float
    show: Callable[[FeedView], None]
    _began: float = 0.0
    _epoch_seconds: float = 0.0
    _pod_applied: float | None = None
    _pod_started: float | None = None
    _notes: list[str] = field(default_factory=list)

    async def run(self) -> FeedReport:
        """Run to the end of the job, or for as long as it may take.

        Raises:
            DemoError: The job cannot be seen.
        """
        self._began, self._epoch_seconds = time.monotonic(), time.time()
        await self.observer.apply(self.manifest)
        seen = time.monotonic()
        while True:
            try:
                view = await self._look()
                seen = time.monotonic()
                self.show(view)
                if view.state in ENDED or view.seconds > self.timeout_seconds:
                    return await self._report(view)
                await self._interfere(view)
            except httpx.HTTPError as error:
                if time.monotonic() - seen > BLIND_TIMEOUT_SECONDS:
                    raise DemoError(f"the control plane does not answer: {error}") from error
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def _look(self) -> FeedView:
        job = await self.observer.job()
        status = job.get("status", {})
        speeds = await self._speeds(job["metadata"]["uid"])
        return FeedView(
            seconds=time.monotonic() - self._began,
            state=status.get("state", JobState.PENDING.value),
            message=str(status.get("message", "")),
            uid=job["metadata"]["uid"],
            pods=tuple(pod_line(pod) for pod in await self.observer.pods()),
            steps=steps_of(await self.observer.scales(), speeds, self._epoch_seconds),
            speeds=tuple(speeds),
            notes=tuple(self._notes),
        )

    async def _speeds(self, uid: str) -> list[Throughput]:
        """Batches per second, as the job's queue measured them."""
        try:
            samples = await self.observer.samples(uid)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return []  # the trainer has not registered the job yet
            raise
        return [
            Throughput(
                time_seconds=float(sample["time"]) - self._epoch_seconds,
                samples_per_second=float(sample["queue"]["dequeued_per_second"]),
                world_size=1,
            )
            for sample in samples
            if sample.get("queue")
        ]

    async def _interfere(self, view: FeedView) -> None:
        if self._pod_applied is None:
            if not self._is_tuned(view):
                return
            await self.observer.apply_pod(gpu_pod())
            self._pod_applied = view.seconds
            asked = "an accelerator and 2 cores"
            self._notes.append(f"pod {GPU_POD} arrives: it asks for {asked}")
        elif self._pod_started is None:
            pod = await self.observer.pod(GPU_POD)
            if pod["status"].get("phase") == "Running":
                self._pod_started = view.seconds
                waited = self._pod_started - self._pod_applied
                node = pod["spec"].get("nodeName", "")
                self._notes.append(f"pod {GPU_POD} runs on {node} after {waited:.1f} s")

    @staticmethod
    def _is_tuned(view: FeedView) -> bool:
        if not view.steps:
            return view.seconds > PATIENCE_SECONDS
        last = view.steps[-1]
        settled = view.seconds - last.time_seconds
        return (
            (settled > 1.3 * EFFECT_SECONDS and last.training_cores is not None)
            or settled > QUIET_SECONDS
            or view.seconds > PATIENCE_SECONDS
        )

    async def _report(self, view: FeedView) -> FeedReport:
        log = ""
        for pod in view.pods:
            if pod.role == Role.WORKER:
                log = await self.observer.log(pod.name, _LOG_LINES)
        epochs = [
            (float(accuracy), int(speed), int(waited))
            for accuracy, speed, waited in _EPOCH.findall(log)
        ]
        fastest = max(epochs, key=lambda epoch: epoch[1], default=None)
        waited = None
        if self._pod_applied is not None and self._pod_started is not None:
            waited = round(self._pod_started - self._pod_applied, 1)
        return FeedReport(
            name=self.manifest["metadata"]["name"],
            state=view.state,
            steps=view.steps,
            seconds=view.seconds,
            images_per_second_before=epochs[0][1] if epochs else None,
            images_per_second_after=fastest[1] if fastest else None,
            waited_before=epochs[0][2] / 100 if epochs else None,
            waited_after=fastest[2] / 100 if fastest else None,
            accuracy=epochs[-1][0] if epochs else None,
            gpu_pod_seconds=waited,
            data_workers_lost=len(re.findall(r"data worker \S+ is lost", log)),
        )


def steps_of(
    scales: Sequence[Json], speeds: Sequence[Throughput], epoch_seconds: float
) -> tuple[FeedStep, ...]:
    """What the scheduler asked for, in this order, with the speed under each."""
    steps: list[FeedStep] = []
    workers, cores, training = 0, "", None
    for scale in scales:
        spec = scale["spec"]
        if spec["source"] != "Scheduler" or not is_applied(scale):
            continue
        data = spec["roles"].get(Role.DATA_WORKER.value, {})
        workers = data.get("replicas", workers)
        cores = data.get("resources", {}).get("cpu", cores)
        asked = spec["roles"].get(Role.WORKER.value, {})
        training = asked.get("resources", {}).get("cpu", training)
        steps.append(
            FeedStep(
                time_seconds=round(applied_at(scale) - epoch_seconds, 1),
                reason=spec.get("reason", ""),
                message=spec.get("message", ""),
                data_workers=int(workers),
                data_worker_cores=cores,
                training_cores=training,
                moved=len(data.get("ranks", {})),
            )
        )
    begins = [0.0, *(step.time_seconds for step in steps)]
    ends = [*begins[1:], float("inf")]
    measured = [settled(speeds, begin, end) for begin, end in zip(begins, ends, strict=True)]
    return tuple(
        replace(step, batches_per_second_before=before, batches_per_second_after=after)
        for step, before, after in zip(steps, measured, measured[1:], strict=False)
    )


def settled(speeds: Sequence[Throughput], begin: float, end: float) -> float | None:
    """The speed between two changes, once the first one had its effect; None where none was."""
    within = [one for one in speeds if begin <= one.time_seconds < end and one.samples_per_second]
    full = [one.samples_per_second for one in within if one.time_seconds >= begin + EFFECT_SECONDS]
    return median(full) if full else None


def gpu_pod() -> Json:
    """A pod that needs an accelerator, and more cores than data workers leave beside it.

    It meets the restricted Pod Security Standard, wherever the demo runs.
    """
    live = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    limits = {"cpu": "2", "memory": "64Mi", "nvidia.com/gpu": 1}
    container = {
        "name": "main",
        "image": "penstock/examples:latest",
        "command": ["sh", "-c", live],
        "resources": {"limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": GPU_POD},
        "spec": {
            "preemptionPolicy": "Never",  # so that it is the planner that makes room
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
