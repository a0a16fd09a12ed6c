"""The pods of a job under Penstock: between the controller's decisions and the machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.base.enums import TRAINER_ROLE, EventKind, Objective, Role
from penstock.brain.registry import Registry
from penstock.controller.reconcile.model.observed import ContainerState, Pod
from penstock.crds.conditions import JobCondition, ScaleCondition
from penstock.scheduler.request import Request
from penstock.sim.week.at_once import AtOnce
from penstock.sim.week.brain_view import BrainView, PastJobs
from penstock.sim.week.job_objects import BEGIN, JobObjects, job_spec, moment
from penstock.sim.week.trainer_looks import TrainerLooks
from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.bills import Given
from penstock.sim.week.world.cluster import Cluster, PlacedPod
from penstock.sim.week.world.jobs import WeekJob
from penstock.sim.week.world.outcome import Counts, JobOutcome
from penstock.sim.week.world.training import Training

_LEAST_CORES: Final = 2.0
_MOST_AT_ONCE: Final = 1000
"""Looks of the controller at one job at one moment; more do not end."""
_PS: Final = Role.PS.value
_WORKER: Final = Role.WORKER.value


class ElasticPods(ABC):
    """A job's objects and pods; what the trainer does is said by who derives from it."""

    def __init__(
        self,
        job: WeekJob,
        cluster: Cluster,
        assumed: Assumptions,
        ended: Callable[[JobOutcome], None],
        *,
        registry: Registry,
        past: PastJobs,
        counts: Counts,
    ) -> None:
        self._job, self._cluster, self._assumed, self._ended = job, cluster, assumed, ended
        self._clock = cluster.clock
        self._past, self._counts = past, counts
        milli_cpu = round(1000 * _quota(job, assumed))
        objective = Objective.CHEAPEST if assumed.cheapest else None
        self._training = Training(
            job,
            self._clock,
            assumed,
            done=self._done,
            broken=self._program_fails,
            pod_fails=self._pod_fails,
        )
        self._objects = JobObjects(job.name, job_spec(milli_cpu, objective), self._clock.now, self)
        self._brain = BrainView(
            job,
            milli_cpu,
            round(1000 * assumed.pod_cores),
            registry,
            past,
            counts,
            lambda: self._training.steps,
            objective,
        )
        self._looks = TrainerLooks(self._clock, self._brain, self._trainer_looks)
        self.given = Given()
        """What the job's pods held, by the end of each."""
        self._placed: dict[str, PlacedPod] = {}
        self._created: list[PlacedPod] = []
        self._holders: dict[int, str] = {}
        """The pods that hold the parameters, by rank; empty before the training begins."""
        self._moving_until: float | None = None
        self._server_lost = False
        self._started: float | None = None
        self._killed = float("inf")
        self._over = False
        self._due = False
        self._alarm = float("inf")
        self._at_once = AtOnce(job.name, _MOST_AT_ONCE)

    def _look(self) -> None:
        """The controller looks at the job soon, once for all that happens at this moment."""
        if not self._due and not self._over:
            self._due = True
            self._clock.at(self._clock.now, self._reconcile)

    def _reconcile(self) -> None:
        self._due = False
        if self._over:
            return
        self._at_once.look(self._clock.now)
        self._objects.reconcile(self._clock.now)
        created, self._created = self._created, []
        # The pods with which the training begins are placed together.
        groups = [[pod] for pod in created] if self._holders or not created else [created]
        for group in groups:
            self._cluster.submit(group)
        requeue = self._objects.requeue
        if requeue is not None:
            when = (requeue - BEGIN).total_seconds()
            if not self._clock.now < self._alarm <= when:
                self._alarm = when
                self._clock.at(when, self._alarmed)
        for scale in list(self._objects.scales.values()):
            if scale.is_true(ScaleCondition.FAILED):
                self._brain.withdrawn(scale.name)
                self._looks.wake()
            elif scale.status_of(ScaleCondition.PREPARED) == "Unknown":
                self._consent(scale.name)
        for kind in (JobCondition.SUCCEEDED, JobCondition.FAILED):
            status, reason = self._objects.condition(kind)
            if status == "True":
                self._end("" if kind is JobCondition.SUCCEEDED else reason)
                return
        self._refresh()

    def _alarmed(self) -> None:
        if self._clock.now >= self._alarm:
            self._alarm = float("inf")
            self._look()

    def create(self, pod: Pod, avoids: frozenset[str]) -> None:
        """The controller made a pod."""
        placed = PlacedPod(
            uid=pod.uid,
            role=pod.role,
            rank=pod.rank,
            request=Request(pod.cpu_milli or 0, pod.memory_bytes or 0),
            owner=self,
            asked=self._clock.now,
            bill=self.given,
            avoids=avoids,
        )
        self._placed[pod.name] = placed
        self._created.append(placed)

    def delete(self, pod: Pod) -> None:
        """The controller asked a pod to go."""
        placed = self._placed.pop(pod.name, None)
        if placed is not None:
            self._cluster.release(placed)
        self._look()

    def resize(self, pod: Pod, milli_cpu: int, memory: int) -> bool:
        """The controller resizes a pod where it is."""
        placed = self._placed[pod.name]
        return self._cluster.resize(placed, Request(milli_cpu, memory))

    def placed(self, pods: list[PlacedPod]) -> None:
        """Pods have nodes: a trainer works a little later, the others after initialising."""
        for pod in pods:
            name = _name(pod)
            self._objects.change_pod(
                name,
                node=self._cluster.node_of(pod),
                unschedulable_since=None,
                started=moment(self._clock.now),
            )
            wait = self._assumed.pod_start if pod.role == TRAINER_ROLE else self._assumed.ready
            self._clock.at(self._clock.now + wait, partial(self._is_ready, name, pod))
        self._look()
        self._recount()

    def unplaced(self, pod: PlacedPod) -> None:
        """A pod fits nowhere."""
        name = _name(pod)
        if self._objects.pods[name].unschedulable_since is None:
            self._objects.change_pod(name, unschedulable_since=moment(self._clock.now))
            self._look()

    def lost(self, pod: PlacedPod, why: str) -> None:
        """A pod was preempted, or its node was lost."""
        name = _name(pod)
        self._objects.change_pod(name, phase="Failed", reason=why, disrupted=True, ready=False)
        self._gone([name], EventKind.PREEMPTED)

    def _is_ready(self, name: str, placed: PlacedPod) -> None:
        if self._over or placed.gone or name not in self._objects.pods:
            return
        now = moment(self._clock.now)
        self._objects.change_pod(
            name,
            phase="Running",
            ready=True,
            ready_since=now,
            containers=(ContainerState(name="main"),),
        )
        if placed.role == TRAINER_ROLE:
            self._looks.begin()
        self._look()

    def _gone(self, names: Sequence[str], kind: EventKind) -> None:
        for name in names:
            pod = self._objects.pods[name]
            placed = self._placed.pop(name)
            self._cluster.release(placed)
            if pod.role in (_PS, _WORKER):
                self._brain.happened(
                    kind, Role(pod.role), pod.rank, pod.memory_bytes or 0, self._clock.now
                )
                self._looks.wake()
            if name in self._holders.values():
                self._server_lost = True
                self._moving_until = None
        self._refresh()
        self._look()

    def _pod_fails(self, which: float) -> None:
        here = [name for name, pod in self._placed.items() if pod.row >= 0]
        if here:
            name = here[int(which * len(here))]
            self._objects.end_pod(name, self._clock.now, 1, "Error")
            self._gone([name], EventKind.FAILED)

    @abstractmethod
    def _refresh(self) -> None:
        """What the job trains as, now that something has changed."""

    @abstractmethod
    def _recount(self) -> None:
        """Tell the training and the Brain what trains now."""

    @abstractmethod
    def _trainer_looks(self) -> bool:
        """The trainer's look at the job, again and again once its pod is ready; False: no more."""

    @abstractmethod
    def _consent(self, name: str) -> None:
        """The trainer is asked to make the training ready for a Scale."""

    @abstractmethod
    def _end(self, why: str) -> None:
        """The job is over; empty: it has succeeded."""

    @abstractmethod
    def _done(self) -> None:
        """All steps are made."""

    @abstractmethod
    def _program_fails(self) -> None:
        """The step at which the program fails has come."""


def _quota(job: WeekJob, assumed: Assumptions) -> float:
    """The most cores that a job may have: enough for a server and a worker."""
    if not assumed.quota_is_asked:
        return assumed.job_cores
    return min(max(_LEAST_CORES, assumed.quota_share * job.asked.cores), assumed.job_cores)


def _name(pod: PlacedPod) -> str:
    return pod.uid.removeprefix("uid-")
