"""A job with the requests of its user, as TFJob runs it.

A pod that is lost, runs out of memory or fails ends the job, which is
what the paper reports of TFJob (DLRover, section 6.4); with `Assumptions.restarts` all its pods
start again from what was saved instead, unless its program or its requests are at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.base.enums import Role
from penstock.scheduler.request import Request
from penstock.sim.ps.jobs.model import PsConfig
from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.bills import Given
from penstock.sim.week.world.cluster import Cluster, PlacedPod
from penstock.sim.week.world.jobs import WeekJob, server_bytes
from penstock.sim.week.world.outcome import JobOutcome
from penstock.sim.week.world.training import Training


class StaticRun:
    """One job's life."""

    def __init__(
        self,
        job: WeekJob,
        cluster: Cluster,
        assumed: Assumptions,
        ended: Callable[[JobOutcome], None],
    ) -> None:
        self._job, self._cluster, self._assumed, self._ended = job, cluster, assumed, ended
        self._clock = cluster.clock
        self._training = Training(
            job,
            self._clock,
            assumed,
            done=lambda: self._end(""),
            broken=lambda: self._end("ProgramFailed"),
            pod_fails=self._pod_fails,
        )
        self.given = Given()
        """What the job's pods held, by the end of each."""
        self._pods: list[PlacedPod] = []
        self._ready: set[str] = set()
        self._started: float | None = None
        self._over = False
        self._attempt = 0
        self._needs = {
            Role.WORKER: [job.model.worker_bytes] * len(job.asked.workers),
            Role.PS: server_bytes(job.model, len(job.asked.servers), assumed),
        }

    def start(self) -> None:
        """The job is submitted."""
        job = self._job
        for role, sizes in ((Role.PS, job.asked.servers), (Role.WORKER, job.asked.workers)):
            for rank, cores in enumerate(sizes):
                pod = PlacedPod(
                    uid=f"{job.name}-{role.in_names}-{rank}-{self._attempt}",
                    role=role,
                    rank=rank,
                    request=Request(round(1000 * cores), job.asked_bytes[role]),
                    owner=self,
                    asked=self._clock.now,
                    bill=self.given,
                )
                self._pods.append(pod)
        self._cluster.submit(list(self._pods))

    def placed(self, pods: list[PlacedPod]) -> None:
        """Pods have nodes: they train a while later."""
        self._training.become(self._training.config, self._here(), self._used())
        for pod in pods:
            self._clock.at(self._clock.now + self._assumed.ready, partial(self._is_ready, pod))

    def unplaced(self, pod: PlacedPod) -> None:
        """Nobody does anything about it."""

    def lost(self, pod: PlacedPod, why: str) -> None:
        """A pod was taken away."""
        if self._over or pod not in self._pods:
            return
        if not self._assumed.restarts:
            self._end(why)
            return
        self._training.roll_back()
        self._training.become(None, 0, 0.0)
        self._release()
        self._attempt += 1
        self.start()

    def _here(self) -> int:
        return sum(pod.row >= 0 and not pod.gone for pod in self._pods)

    def _used(self) -> float:
        return sum(
            min(self._needs[Role(pod.role)][pod.rank], pod.request.memory_bytes)
            for pod in self._pods
            if pod.uid in self._ready
        )

    def _is_ready(self, pod: PlacedPod) -> None:
        if self._over or pod.gone:
            return
        if pod.request.memory_bytes < self._needs[Role(pod.role)][pod.rank]:
            self._end("OutOfMemory")
            return
        self._ready.add(pod.uid)
        ready = [one for one in self._pods if one.uid in self._ready]
        servers = tuple(one.request.milli_cpu / 1000 for one in ready if one.role == Role.PS)
        workers = tuple(one.request.milli_cpu / 1000 for one in ready if one.role == Role.WORKER)
        config = None
        if len(servers) == len(self._job.asked.servers) and workers:
            config = PsConfig(workers=workers, servers=servers)
            if self._started is None:
                self._started = self._clock.now
        self._training.become(config, self._here(), self._used())

    def _pod_fails(self, which: float) -> None:
        here = [pod for pod in self._pods if pod.row >= 0]
        if here:
            self.lost(here[int(which * len(here))], "PodFailed")

    def _release(self) -> None:
        pods, self._pods = self._pods, []
        self._ready.clear()
        for pod in pods:
            self._cluster.release(pod)

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over = True
        self._training.stop()
        self._release()
        self._ended(self.outcome(why, self._clock.now))

    def outcome(self, why: str, ended: float | None) -> JobOutcome:
        """What became of the job."""
        return JobOutcome.of(
            self._job,
            self._training,
            started=self._started,
            ended=ended,
            why=why,
        )
