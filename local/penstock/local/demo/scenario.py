"""The course of the demo: apply the job, wait for a new plan, kill a worker, wait for the end.

Each look at the cluster makes one `View`, from which the screen is drawn and decisions are made;
nothing is remembered between looks but what the demo itself did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import httpx

from penstock.base.enums import JobState, Role
from penstock.crds import labels
from penstock.crds.conditions import ScaleCondition
from penstock.local.demo.observation.observer import Json, Observer, result_in
from penstock.local.demo.observation.report import (
    Audit,
    JobEnd,
    PlanEntry,
    Report,
    Throughput,
    speed_between,
)

LOOK_EVERY_SECONDS: Final = 0.5
BLIND_TIMEOUT_SECONDS: Final = 20.0
STEADY_SECONDS: Final = 8.0
"""How long the job runs on an adjusted plan before a worker is killed."""

ENDED: Final = (JobState.SUCCEEDED, JobState.FAILED)


class DemoError(Exception):
    """The demo cannot go on; the message says what was seen last."""


@dataclass(frozen=True)
class PodLine:
    """One pod, as ``kubectl get pods`` would show it."""

    name: str
    role: str
    rank: int
    incarnation: int
    phase: str
    ready: bool
    node: str


@dataclass(frozen=True)
class View:
    """The job at one moment; times are seconds since it was applied."""

    seconds: float
    state: str
    message: str
    uid: str
    workers: str
    restarts: int
    pods: tuple[PodLine, ...] = ()
    plans: tuple[PlanEntry, ...] = ()
    speeds: tuple[Throughput, ...] = ()
    step: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class Demo:
    """One run; ``show`` is called with every new view."""

    observer: Observer
    manifest: Json
    timeout_seconds: float
    show: Callable[[View], None]
    kill_a_worker: bool = True
    _began: float = 0.0
    _epoch_seconds: float = 0.0
    _adjusted_at: float | None = None
    _killed: str | None = None
    _notes: list[str] = field(default_factory=list)

    async def run(self) -> Report:
        """Run to the end of the job, or for as long as it may take: the report says which.

        Raises:
            DemoError: The job was never seen.
        """
        self._began = time.monotonic()
        self._epoch_seconds = time.time()
        await self.observer.apply(self.manifest)
        seen = time.monotonic()
        view: View | None = None
        while True:
            try:
                view = await self._look()
                seen = time.monotonic()
            except httpx.HTTPError as error:
                if time.monotonic() - seen > BLIND_TIMEOUT_SECONDS:
                    why = f"the control plane does not answer: {error}"
                    return await self._give_up(view, why)
            else:
                self.show(view)
                if view.state in ENDED:
                    return await self._report(view)
                await self._interfere(view)
            if self._elapsed() > self.timeout_seconds:
                why = f"not ended after {self.timeout_seconds:.0f} s"
                return await self._give_up(view, why)
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    async def _look(self) -> View:
        job = await self.observer.job()
        uid = job["metadata"]["uid"]
        status = job.get("status", {})
        speeds, step = await self._speeds(uid)
        return View(
            seconds=self._elapsed(),
            state=status.get("state", JobState.PENDING.value),
            message=_newest_message(status),
            uid=uid,
            workers=status.get("workers", "0/0"),
            restarts=_restarts(status),
            pods=tuple(pod_line(pod) for pod in await self.observer.pods()),
            plans=await self._plans(uid, speeds),
            speeds=tuple(speeds),
            step=step,
            notes=tuple(self._notes),
        )

    async def _speeds(self, uid: str) -> tuple[list[Throughput], int]:
        try:
            samples = await self.observer.samples(uid)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return [], 0  # the trainer has not registered the job yet
            raise
        speeds = [
            Throughput(
                time_seconds=float(sample["time"]) - self._epoch_seconds,
                samples_per_second=float(sample.get("samples_per_second") or 0.0),
                world_size=int(sample.get("world_size") or 0),
            )
            for sample in samples
        ]
        return speeds, max((int(sample.get("step") or 0) for sample in samples), default=0)

    async def _plans(self, uid: str, speeds: Sequence[Throughput]) -> tuple[PlanEntry, ...]:
        applied = [scale for scale in await self.observer.scales() if is_applied(scale)]
        stages: dict[str, str] = {}
        if applied:
            plans = await self.observer.plans(uid)
            stages = {str(plan["id"]): plan.get("stage") or "" for plan in plans}
        entries: list[PlanEntry] = []
        for scale in applied:
            entry = self._plan_entry(scale, stages)
            if entry.workers and (not entries or entries[-1].workers != entry.workers):
                entries.append(entry)
        ends = [entry.time_seconds for entry in entries[1:]] + [float("inf")]
        starts = [float("-inf")] + [entry.time_seconds for entry in entries]
        return tuple(
            replace(
                entry,
                samples_per_second_before=speed_between(speeds, start, entry.time_seconds),
                samples_per_second_after=speed_between(speeds, entry.time_seconds, end),
            )
            for entry, start, end in zip(entries, starts, ends, strict=False)
        )

    def _plan_entry(self, scale: Json, stages: dict[str, str]) -> PlanEntry:
        spec, metadata = scale["spec"], scale["metadata"]
        plan_id = metadata.get("annotations", {}).get(labels.PLAN, "")
        algorithm = spec.get("algorithm") or {}
        return PlanEntry(
            id=plan_id or metadata["name"],
            time_seconds=round(applied_at(scale) - self._epoch_seconds, 1),
            stage=stages.get(plan_id, ""),
            source=spec["source"],
            reason=spec.get("reason", ""),
            message=spec.get("message", ""),
            algorithm=algorithm.get("name", ""),
            workers=int(spec["roles"].get(Role.WORKER, {}).get("replicas", 0)),
            samples_per_second_before=None,
            samples_per_second_after=None,
        )

    async def _interfere(self, view: View) -> None:
        if len(view.plans) < 2 or not self.kill_a_worker or self._killed is not None:
            return
        wanted = view.plans[-1].workers
        workers = [pod for pod in view.pods if pod.role == Role.WORKER and pod.ready]
        if len(workers) != wanted or wanted < 2:
            self._adjusted_at = None
            return
        if self._adjusted_at is None:
            self._adjusted_at = view.seconds
        measured = any(
            speed.time_seconds > self._adjusted_at and speed.world_size == wanted
            for speed in view.speeds
        )
        if measured and view.seconds - self._adjusted_at > STEADY_SECONDS:
            self._killed = workers[-1].name
            await self.observer.kill_container(self._killed)
            self._notes.append(f"killed {self._killed} with SIGKILL")

    async def _give_up(self, view: View | None, why: str) -> Report:
        """The report as far as it goes."""
        if view is None:
            raise DemoError(why)
        try:
            report = await self._report(view)
        except httpx.HTTPError:  # no log can be read either
            report = self._report_of(view, None)
        return replace(report, gave_up=f"{why}; the job's state is {view.state}")

    async def _report(self, view: View) -> Report:
        return self._report_of(view, await self._audit(view))

    def _report_of(self, view: View, audit: Audit | None) -> Report:
        job = self.manifest["metadata"]
        return Report(
            job=JobEnd(job["name"], job.get("namespace", "default"), view.state, view.message),
            plans=view.plans,
            audit=audit,
            worker_restarts=view.restarts,
            seconds=view.seconds,
        )

    async def _audit(self, view: View) -> Audit | None:
        for pod in view.pods:
            if pod.role == Role.WORKER and (result := result_in(await self.observer.log(pod.name))):
                return Audit(
                    samples_seen=int(result["samples_seen"]),
                    samples_lost=int(result["samples_lost"]),
                    samples_repeated=int(result["samples_repeated"]),
                    accuracy=float(result["accuracy"]),
                )
        return None


def is_applied(scale: Json) -> bool:
    """Whether the controller has carried a Scale out."""
    return _condition(scale, ScaleCondition.APPLIED) is not None


def _condition(item: Json, kind: str) -> Json | None:
    for condition in item.get("status", {}).get("conditions", []):
        if condition["type"] == kind and condition["status"] == "True":
            found: Json = condition
            return found
    return None


def applied_at(scale: Json) -> float:
    """When it did, in seconds since 1970."""
    condition = _condition(scale, ScaleCondition.APPLIED)
    assert condition is not None
    return _seconds(condition["lastTransitionTime"])


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _restarts(status: Json) -> int:
    ranks: dict[str, Any] = status.get("ranks", {}).get(Role.WORKER, {})
    return sum(int(r.get("restarts", 0)) + int(r.get("preemptions", 0)) for r in ranks.values())


def _newest_message(status: Json) -> str:
    conditions = [c for c in status.get("conditions", []) if c.get("message")]
    none: Json = {}
    newest = max(conditions, key=lambda c: str(c["lastTransitionTime"]), default=none)
    return str(newest.get("message", ""))


def pod_line(pod: Json) -> PodLine:
    """What there is to say of a pod."""
    tags = pod["metadata"].get("labels", {})
    status = pod.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    role = tags.get(labels.ROLE, "")
    terminating = "deletionTimestamp" in pod["metadata"]
    return PodLine(
        name=pod["metadata"]["name"],
        role=role,
        rank=int(tags.get(labels.RANK, 0)),
        incarnation=int(tags.get(labels.INCARNATION, 0)),
        phase="Terminating" if terminating else status.get("phase", "Pending"),
        ready=conditions.get("Ready") == "True" and not terminating,
        node=pod["spec"].get("nodeName", ""),
    )
