"""Recorded jobs run again on given nodes, with one placement policy or another.

A discrete-event run of what was recorded: jobs come when they came, with the pods that they had,
and train for as long as they trained. Who starts, and on which nodes, is decided by the scheduler's
placement engine and the policy that is asked about. The job that has waited longest is tried first,
and one that does not fit holds up nobody; its pods are placed together or not at all.

Guarantees: no pod is placed where it does not fit; the same arguments give the same answer.

Not looked at: how long pods take to start; that a job elsewhere may be faster or slower; changes of
a job's size while it ran, of which the mean stands; preemption, priorities and quotas.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.capacity.outlook import hold_others
from penstock.scheduler.capacity.workload import HostedNode
from penstock.scheduler.errors import SchedulerError
from penstock.scheduler.fragmentation import of_cluster
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.fgd import typical_requests
from penstock.scheduler.placement.registry import Context, make_policy
from penstock.scheduler.placement.snapshot import Snapshot
from penstock.scheduler.request import (
    ANYWHERE,
    WHOLE_DEVICE_MILLI,
    Constraints,
    Request,
    Toleration,
)

_EVERYWHERE: Final = Constraints(tolerations=(Toleration(operator="Exists"),))
_NEVER: Final = float("inf")


class OutOfTimeError(SchedulerError):
    """A replay was told to stop before it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPods:
    """Pods of one role of a job, of one size."""

    count: int
    milli_cpu: int
    memory_bytes: int
    accelerators: int = 0

    def request(self) -> Request:
        """What one of them asks for. Which nodes it was allowed is not recorded: pods with
        accelerators are taken to tolerate every taint, and others none."""
        return Request(
            milli_cpu=self.milli_cpu,
            memory_bytes=self.memory_bytes,
            accelerators=self.accelerators,
            constraints=_EVERYWHERE if self.accelerators else ANYWHERE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """One job that trained; seconds count from the begin of what is looked at.

    Attributes:
        arrived_seconds: when its trainer was there; below 0: before the begin.
        train_seconds: for which its pods trained; of a job from before the begin, what was left.
        ended: whether it ended meanwhile. Of others it is not known how long they take.
    """

    uid: str
    arrived_seconds: float
    train_seconds: float
    pods: tuple[RecordedPods, ...]
    ended: bool = True

    @property
    def counted(self) -> bool:
        """Whether it came in the time that is looked at; others only take room."""
        return self.arrived_seconds >= 0

    @property
    def comes_seconds(self) -> float:
        """When it comes in the run: those of before are there at its begin."""
        return max(0.0, self.arrived_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One run.

    Attributes:
        waited: seconds until each counted job had all its pods; without those of `never`.
        never: counted jobs that never had all of their pods, though all others had ended.
        stranded_accelerators, free_accelerators: mean over the time that is looked at.
    """

    waited: Mapping[str, float]
    never: frozenset[str]
    stranded_accelerators: float
    free_accelerators: float


def replay(
    nodes: Sequence[HostedNode],
    jobs: Iterable[RecordedJob],
    policy: str,
    span_seconds: float,
    in_time: Callable[[], bool] = lambda: True,
) -> Replayed:
    """The jobs on the nodes, with one placement policy.

    Raises:
        UnknownPolicyError: no placement policy has this name.
        OutOfTimeError: `in_time` said no.
    """
    ordered = sorted(jobs, key=lambda job: job.arrived_seconds)
    run = _Run(nodes, ordered, policy, in_time)
    return run.through(ordered, span_seconds)


@dataclass(frozen=True, slots=True)
class _Gang:
    """The requests of a job, and what they need together."""

    requests: tuple[Request, ...]
    milli_cpu: int
    accelerators: int


class _Run:
    """Nodes, the jobs that train on them, and those that wait."""

    def __init__(
        self,
        nodes: Sequence[HostedNode],
        jobs: Sequence[RecordedJob],
        policy: str,
        in_time: Callable[[], bool],
    ) -> None:
        self._snapshot = snapshot = Snapshot()
        hold_others(snapshot, nodes)
        for one in nodes:
            snapshot.upsert_node(one.node)
        self._gangs = {job.uid: _gang(job) for job in jobs}
        typical = typical_requests(
            request for gang in self._gangs.values() for request in gang.requests
        )
        made = make_policy(policy, Context(np.random.default_rng(0), typical))
        self._placer = Placer(snapshot.columns, made, eligible=snapshot.eligible)
        self._in_time = in_time
        self._waiting: dict[str, RecordedJob] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._number = 0
        self._waited: dict[str, float] = {}
        self._clock = self._stranded = self._free = 0.0

    def through(self, jobs: Sequence[RecordedJob], span_seconds: float) -> Replayed:
        """Run the jobs, which are in the order in which they came, until all have ended."""
        never = self._never()
        come = [job for job in jobs if job.uid not in never]
        index = 0
        while index < len(come) or self._ends:
            if not self._in_time():
                raise OutOfTimeError("the replay takes too long")
            arrives = come[index].comes_seconds if index < len(come) else _NEVER
            now = min(arrives, self._ends[0][0] if self._ends else _NEVER)
            self._look_until(min(now, span_seconds))
            ended = self._end(now)
            fresh = []
            while index < len(come) and come[index].comes_seconds <= now:
                fresh.append(come[index])
                index += 1
            for job in fresh:
                self._waiting[job.uid] = job
                for request in self._gangs[job.uid].requests:
                    self._placer.observe(request)
            # Where nothing has become free, those that did not fit do not fit now.
            self._start(list(self._waiting.values()) if ended else fresh, now)
        self._look_until(span_seconds)
        return Replayed(
            waited=self._waited,
            never=frozenset(
                job.uid
                for job in jobs
                if job.counted and (job.uid in never or job.uid in self._waiting)
            ),
            stranded_accelerators=self._stranded / span_seconds,
            free_accelerators=self._free / span_seconds,
        )

    def _look_until(self, moment: float) -> None:
        """Add up what strands and is free from the last look on, for which it has stayed."""
        seconds = moment - self._clock
        if seconds <= 0:
            return
        columns = self._snapshot.columns
        usable = columns.free_accelerator_milli[columns.schedulable]
        self._stranded += seconds * of_cluster(columns).stranded_accelerators
        self._free += seconds * float(usable.sum()) / WHOLE_DEVICE_MILLI
        self._clock = moment

    def _never(self) -> set[str]:
        """The jobs that do not even fit while nobody else is there."""
        fits: dict[_Gang, bool] = {}
        for gang in self._gangs.values():
            if gang not in fits:
                fits[gang] = self._place("alone", gang)
                self._leave("alone", gang)
        return {uid for uid, gang in self._gangs.items() if not fits[gang]}

    def _end(self, now: float) -> bool:
        any_ended = False
        while self._ends and self._ends[0][0] <= now:
            _, _, uid = heapq.heappop(self._ends)
            self._leave(uid, self._gangs[uid])
            any_ended = True
        return any_ended

    def _start(self, jobs: Iterable[RecordedJob], now: float) -> None:
        """Place those that fit, the one that has waited longest first."""
        columns = self._snapshot.columns
        usable = columns.schedulable
        cpu = int(np.maximum(columns.free_milli_cpu[usable], 0).sum())
        accelerators = int(columns.whole_devices[usable].sum())
        failed: set[_Gang] = set()
        for job in jobs:
            gang = self._gangs[job.uid]
            if gang.milli_cpu > cpu or gang.accelerators > accelerators or gang in failed:
                continue
            if not self._place(job.uid, gang):
                failed.add(gang)
                if not self._in_time():
                    raise OutOfTimeError("the replay takes too long")
                continue
            cpu -= gang.milli_cpu
            accelerators -= gang.accelerators
            del self._waiting[job.uid]
            if job.counted:
                self._waited[job.uid] = now - job.arrived_seconds
            self._number += 1
            heapq.heappush(self._ends, (now + job.train_seconds, self._number, job.uid))

    def _place(self, uid: str, gang: _Gang) -> bool:
        for number, request in enumerate(gang.requests):
            if self._snapshot.place(self._placer, f"{uid}:{number}", request, 0.0) is None:
                for placed in range(number):
                    self._snapshot.release(f"{uid}:{placed}")
                return False
        return True

    def _leave(self, uid: str, gang: _Gang) -> None:
        for number in range(len(gang.requests)):
            self._snapshot.release(f"{uid}:{number}")


def _gang(job: RecordedJob) -> _Gang:
    # The largest pods first: what is left over takes the small ones.
    pods = sorted(job.pods, key=lambda one: (-one.accelerators, -one.milli_cpu, -one.memory_bytes))
    return _Gang(
        requests=tuple(one.request() for one in pods for _ in range(one.count)),
        milli_cpu=sum(one.count * one.milli_cpu for one in pods),
        accelerators=sum(one.count * one.accelerators for one in pods),
    )
