"""A job under Penstock: the real `reconcile` and the Brain's own algorithms, and this as trainer.

What the trainer does is what is simulated here, after docs/parameter-servers.md: it asks the Brain,
writes the Brain's plans as Scales, consents to changes of servers, moves parameters, and says when
the data are used up.

- Training begins once every server that the first plan wants is ready, and a worker.
- New workers join when they are ready; others train on meanwhile.
- Other servers: once all that are wanted are ready, training stops for `repartition`, in which the
  parameters move. Where servers are to go, the same comes before the trainer's consent.
- A server that is lost takes its parameters with it: training stops until all servers are ready
  again, and goes on from what was saved last.
- While the trainer's pod is away nobody hands out data, and training stops.
"""

from __future__ import annotations

from typing import Final

from penstock.base.enums import TRAINER_ROLE, EventKind, Role
from penstock.controller.reconcile.model.observed import Pod
from penstock.crds.conditions import JobCondition, ScaleCondition
from penstock.sim.ps.jobs.model import PsConfig
from penstock.sim.week.elastic_pods import ElasticPods
from penstock.sim.week.world.jobs import past_job, server_bytes
from penstock.sim.week.world.outcome import JobOutcome

_PS: Final = Role.PS.value
_WORKER: Final = Role.WORKER.value


class ElasticRun(ElasticPods):
    """One job's life."""

    def start(self) -> None:
        """The job is submitted."""
        self._look()

    def _program_fails(self) -> None:
        """The step at which the program fails has come, and all workers come to it at once."""
        workers = list(self._ready(_WORKER).values())
        for name in workers:
            self._objects.end_pod(name, self._clock.now, 1, "Error")
        self._gone(workers, EventKind.FAILED)

    def _trainer_looks(self) -> bool:
        if self._over:
            return False
        self._training.advance()
        if self._trainer_is_ready():
            scale = self._brain.tick(self._clock.now, self._incarnations)
            if scale is not None:
                self._objects.write_scale(scale, self._clock.now)
                self._look()
        return True

    def _trainer_is_ready(self) -> bool:
        return any(
            pod.role == TRAINER_ROLE and pod.ready and not pod.ended
            for pod in self._objects.pods.values()
        )

    def _incarnations(self) -> dict[Role, dict[int, int]]:
        return {
            role: {
                pod.rank: pod.incarnation for pod in self._objects.pods.values() if pod.role == role
            }
            for role in (Role.WORKER, Role.PS)
        }

    def _consent(self, name: str) -> None:
        """Parameters leave the servers that are to go before the trainer lets them go."""
        scale = self._objects.scales[name]
        wanted = next(
            (
                value
                for key, value in scale.fields.items()
                if key.role is Role.PS and key.rank is None and key.name == "replicas"
            ),
            None,
        )
        if wanted is None or wanted >= len(self._holders) or self._server_lost:
            self._objects.set_prepared(scale, self._clock.now)
            self._look()
        elif self._moving_until is None:
            kept = {rank: pod for rank, pod in self._holders.items() if rank < wanted}
            self._move(kept)

    def _move(self, holders: dict[int, str]) -> None:
        self._training.save()
        self._moving_until = self._clock.now + self._assumed.repartition
        until = self._moving_until
        self._clock.at(until, lambda: self._moved(until, holders))
        self._refresh()

    def _moved(self, until: float, holders: dict[int, str]) -> None:
        if self._over or self._moving_until != until:
            return
        self._moving_until = None
        if all(name in self._objects.pods for name in holders.values()):
            self._holders = holders
        self._refresh()
        self._look()

    def _ready(self, role: str) -> dict[int, str]:
        """The newest ready pod of each rank."""
        found: dict[int, Pod] = {}
        for pod in self._objects.pods.values():
            if pod.role != role or not pod.ready or pod.ended:
                continue
            if pod.rank not in found or found[pod.rank].incarnation < pod.incarnation:
                found[pod.rank] = pod
        return {rank: pod.name for rank, pod in sorted(found.items())}

    def _refresh(self) -> None:
        """What the job trains as, now that something has changed."""
        if self._over or self._check_memory():
            return
        wanted = self._objects.desired(Role.PS)
        ready = self._ready(_PS)
        whole = wanted > 0 and all(rank in ready for rank in range(wanted))
        target = {rank: ready[rank] for rank in range(wanted)} if whole else {}
        if not self._holders or self._server_lost:
            if whole and self._moving_until is None and self._ready(_WORKER):
                if self._server_lost:
                    self._server_lost = False
                    self._training.roll_back()
                self._holders = target
        elif whole and target != self._holders and self._moving_until is None:
            self._move(target)
            return
        self._recount()

    def _recount(self) -> None:
        """Tell the training and the Brain what trains now."""
        if self._over:
            return
        workers = list(self._ready(_WORKER).values())
        trains = (
            bool(self._holders and workers and self._ready(TRAINER_ROLE))
            and not self._server_lost
            and self._moving_until is None
            and all(name in self._objects.pods for name in self._holders.values())
        )
        config = None
        servers = [name for _, name in sorted(self._holders.items())] if trains else []
        if trains:
            config = PsConfig(workers=self._cores(workers), servers=self._cores(servers))
            if self._started is None:
                self._started = self._clock.now
        memory = server_bytes(self._job.model, max(1, len(servers)), self._assumed)
        used = len(workers) * self._job.model.worker_bytes + (sum(memory) if servers else 0.0)
        given = sum(
            placed.request.memory_bytes for placed in self._placed.values() if placed.row >= 0
        )
        before = self._training.config
        here = sum(placed.row >= 0 for placed in self._placed.values())
        self._training.become(config, here, min(used, given))
        if config != before:
            self._tell_brain(config, workers, servers, memory)
        settled = (
            config is not None
            and len(workers) == self._objects.desired(Role.WORKER)
            and len(servers) == self._objects.desired(Role.PS)
            and all(
                scale.is_true(ScaleCondition.APPLIED) or scale.is_true(ScaleCondition.FAILED)
                for scale in self._objects.scales.values()
                if not scale.is_true(ScaleCondition.SUPERSEDED)
            )
        )
        if settled:
            self._brain.settled(self._clock.now)

    def _tell_brain(
        self, config: PsConfig | None, workers: list[str], servers: list[str], memory: list[float]
    ) -> None:
        pods = self._objects.pods
        nodes = {
            (kind, rank): pods[name].node
            for kind, names in (("worker", workers), ("ps", servers))
            for rank, name in enumerate(names)
        }
        limits = (
            tuple(pods[name].memory_bytes or 1 for name in workers),
            tuple(pods[name].memory_bytes or 1 for name in servers),
        )
        self._brain.trains_as(
            config,
            self._training.reached,
            self._clock.now,
            nodes=nodes,
            server_memory=memory,
            memory_limits=limits,
        )
        self._looks.wake()

    def _cores(self, names: list[str]) -> tuple[float, ...]:
        return tuple((self._objects.pods[name].cpu_milli or 0) / 1000 for name in names)

    def _check_memory(self) -> bool:
        """Kill a pod that needs more memory than it has; whether there was one."""
        wanted = max(1, self._objects.desired(Role.PS))
        memory = server_bytes(self._job.model, wanted, self._assumed)
        for name in (*self._ready(_WORKER).values(), *self._ready(_PS).values()):
            pod = self._objects.pods[name]
            need = self._job.model.worker_bytes
            if pod.role == _PS:
                need = memory[pod.rank] if pod.rank < len(memory) else 0.0
            if (pod.memory_bytes or 0) < need and name in self._placed:
                self._objects.end_pod(name, self._clock.now, 137, "OOMKilled")
                self._gone([name], EventKind.OUT_OF_MEMORY)
                self._training.advance()
                self._killed = min(self._killed, self._clock.now)
                idle = self._clock.now - max(self._training.stepped, self._killed)
                if idle > self._assumed.patience:
                    self._end("OutOfMemory")
                return True
        return False

    def _done(self) -> None:
        """All steps are made: the programs of the workers end, and then the trainer."""
        training = self._training
        if training.reached is not None and self._holders:
            memory = server_bytes(self._job.model, len(self._holders), self._assumed)
            workers = len(self._ready(_WORKER))
            self._past.add(
                past_job(
                    self._job.name, self._job, training.reached, workers, memory, self._clock.now
                )
            )
        training.stop()
        for pod in list(self._objects.pods.values()):
            if pod.role in (_WORKER, TRAINER_ROLE) and not pod.ended:
                self._objects.end_pod(pod.name, self._clock.now, 0)
                placed = self._placed.pop(pod.name, None)
                if placed is not None:
                    self._cluster.release(placed)
        self._holders = {}
        self._moving_until = float("inf")
        self._objects.reconcile(self._clock.now)
        status, _ = self._objects.condition(JobCondition.SUCCEEDED)
        self._end("" if status == "True" else "NotSucceeded")

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._training.stop()
        self._over = True
        for placed in list(self._placed.values()):
            self._cluster.release(placed)
        self._placed.clear()
        self._counts.reconcile += self._objects.passes
        self._ended(self.outcome(why, self._clock.now))

    def outcome(self, why: str, ended: float | None) -> JobOutcome:
        """What became of the job."""
        return JobOutcome.of(
            self._job,
            self._training,
            started=self._started,
            ended=ended,
            why=why,
            plans=self._brain.made,
        )
