"""The Brain for one simulated job: its own administrator, optimizer and algorithms, in memory.

What the Brain keeps in its store is kept here in lists with the same bounds (samples of half an
hour, 500 of each kind); what it runs in other processes is called directly. Samples are drawn only
when they are looked at: between two changes of the job's configuration nothing but their noise
differs.

Asked again and again about a job that nothing has happened to, the algorithms give the same answer.
So where a configuration has more samples than `MOST_SAMPLES` of the measurement, and the answer to
a trigger was that nothing should change, that answer is reused for `REUSE_SECONDS`, unless anything
of the history but the samples is different. `Counts` says how often. The usual look (`INTERVAL`) is
never answered so in the first 750 s of a configuration, in which time itself changes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from penstock.base.enums import (
    EventKind,
    Objective,
    Optimize,
    Role,
    Source,
    Stage,
    Strategy,
    Trigger,
)
from penstock.brain.configuration import AdministratorSettings, ExecutorSettings
from penstock.brain.control import administrator
from penstock.brain.control.optimizer import Case, Optimizer
from penstock.brain.executor.task import Outcome, Task, TaskResult
from penstock.brain.history import HistoryRecord
from penstock.brain.model.measurement import MOST_SAMPLES
from penstock.brain.planning import (
    AppliedPlan,
    JobDescription,
    JobEvent,
    Limits,
    PastJob,
    Plan,
    RankSample,
    RoleSpec,
    Sample,
)
from penstock.brain.registry import Registry
from penstock.brain.stages import DEFAULT_POLICIES
from penstock.brain.symptoms import detect
from penstock.brain.targets import role_targets
from penstock.sim.ps.jobs.model import PsConfig, PsJobModel, PsSpeed, residence
from penstock.sim.week.world.jobs import WeekJob
from penstock.sim.week.world.outcome import Counts

SAMPLE_SECONDS: Final = 3.0
"""As often as a trainer reports (`penstock.trainer.brain`)."""
WINDOW_SECONDS: Final = 1800.0
REUSE_SECONDS: Final = 1800.0
_YOUNG_SECONDS: Final = 750.0
"""For so long after a change `fitted_ps` may judge anew, by the default settings."""
_MOST: Final = 500
_PAST_SECONDS: Final = 7 * 86_400.0
_MOST_PAST: Final = 2000

Incarnations = Callable[[], Mapping[Role, Mapping[int, int]]]
"""Says which incarnation of each rank there is now, by role."""


class PastJobs:
    """The finished jobs that the Brain remembers, by what new ones may share with them."""

    def __init__(self, jobs: list[PastJob]) -> None:
        self._by: dict[tuple[str, str], list[PastJob]] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: PastJob) -> None:
        """A job has finished."""
        for key in _parts(job.signature):
            self._by.setdefault(key, []).append(job)

    def similar(self, job: JobDescription, now: float) -> tuple[PastJob, ...]:
        """Those of the last week that share any part of the signature, the newest 2,000."""
        found = {
            past.uid: past
            for key in _parts(job.signature)
            for past in self._by.get(key, ())
            if past.finished_seconds >= now - _PAST_SECONDS
        }
        newest = sorted(found.values(), key=lambda past: -past.finished_seconds)
        return tuple(newest[:_MOST_PAST])


def _parts(signature: Any) -> list[tuple[str, str]]:
    named = (("model", signature.model), ("dataset", signature.dataset), ("user", signature.user))
    return [part for part in named if part[1]]


@dataclass(slots=True)
class _Inline:
    """Runs algorithms here: a `TaskRunner` that knows the samples that belong to a record."""

    counts: Counts
    samples: tuple[Sample, ...] = ()
    size: int = 1
    busy: int = 0

    async def run(self, task: Task) -> TaskResult:
        """Ask one algorithm."""
        history = replace(task.record.without_samples(), samples=self.samples)
        name = task.entry.algorithm.name
        self.counts.algorithms[name] = self.counts.algorithms.get(name, 0) + 1
        plan = task.entry.plan(history, task.job, task.limits)
        return TaskResult(Outcome.NO_PLAN if plan is None else Outcome.PLANNED, 0.0, plan)

    async def configure(self, settings: ExecutorSettings) -> None:
        """Nothing to configure."""

    async def close(self) -> None:
        """Nothing to stop."""


@dataclass(slots=True)
class _Regime:
    """A time in which the job trained in one configuration."""

    config: PsConfig
    reached: PsSpeed
    nodes: Mapping[tuple[str, int], str]
    server_memory: list[float]
    limits: tuple[tuple[int, ...], tuple[int, ...]]
    waits: list[float]
    """Seconds that a step waits for each server."""
    begin: float
    sampled: float
    symptoms: tuple[Trigger, ...] = ()
    closed: bool = False
    total: int = 0
    samples: list[Sample] = field(default_factory=list)

    def newest(self, now: float) -> float | None:
        """The time of the newest sample, drawn or not yet; None before the first."""
        if self.closed:
            return self.sampled if self.total else None
        whole = int((now - self.sampled) / SAMPLE_SECONDS + 1e-9)
        return self.sampled + whole * SAMPLE_SECONDS if whole or self.total else None


class BrainView:
    """One job as its administrator sees it."""

    def __init__(
        self,
        job: WeekJob,
        quota_milli_cpu: int,
        pod_milli_cpu: int,
        registry: Registry,
        past: PastJobs,
        counts: Counts,
        steps: Callable[[], float],
        objective: Objective | None = None,
    ) -> None:
        self.description = JobDescription(
            uid=f"uid-{job.name}",
            name=job.name,
            namespace="week",
            strategy=Strategy.PARAMETER_SERVER,
            objective=objective,
            signature=job.signature,
            roles={
                Role.WORKER: RoleSpec(minimum=1, maximum=100),
                Role.PS: RoleSpec(minimum=1, maximum=32),
            },
        )
        self.plans: list[AppliedPlan] = []
        self.made = 0
        self._names: list[str] = []
        self._limits = Limits(
            milli_cpu=quota_milli_cpu, pod_milli_cpu=min(pod_milli_cpu, quota_milli_cpu)
        )
        self._job, self._registry, self._past, self._counts = job, registry, past, counts
        self._steps = steps
        self._runner = _Inline(counts)
        self._optimizer = Optimizer(self._runner)
        self._settings = AdministratorSettings()
        self._memory = administrator.Memory()
        self._events: list[JobEvent] = []
        self._regimes: list[_Regime] = []
        self._out_of_memory: float | None = None
        self._reusable: dict[Trigger, float] = {}
        self._rng = np.random.default_rng([job.index, 31])

    # What happens to the job

    def trains_as(
        self,
        config: PsConfig | None,
        reached: PsSpeed | None,
        now: float,
        *,
        nodes: Mapping[tuple[str, int], str],
        server_memory: list[float],
        memory_limits: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> None:
        """From now on the job trains so; None: it stands still."""
        if self._regimes:
            self._draw(now)
        if config is None or reached is None:
            if self._regimes:
                self._regimes[-1].closed = True
            self._reusable.clear()
            return
        model = self._job.model
        works = model.server_work(len(config.servers))
        waits = [
            residence(model, work, cores, reached.steps_per_second)
            for work, cores in zip(works, config.servers, strict=True)
        ]
        regime = _Regime(config, reached, nodes, server_memory, memory_limits, waits, now, now)
        regime.symptoms = detect(_columns(regime))
        self._regimes.append(regime)
        self._reusable.clear()

    def happened(self, kind: EventKind, role: Role, rank: int, memory: int, now: float) -> None:
        """A pod was lost."""
        self._events.append(
            JobEvent(time_seconds=now, kind=kind, role=role, rank=rank, memory_limit_bytes=memory)
        )
        if kind is EventKind.OUT_OF_MEMORY:
            self._out_of_memory = now
        self._reusable.clear()

    def settled(self, now: float) -> None:
        """All that the plans in force want trains now."""
        if self.plans and self.plans[-1].settled_seconds is None:
            self.plans[-1] = replace(self.plans[-1], settled_seconds=now)
            self._reusable.clear()

    def withdrawn(self, name: str) -> None:
        """The controller refused the Scale of a plan."""
        if name in self._names:
            at = self._names.index(name)
            del self._names[at], self.plans[at]
            self._counts.refused += 1
            self._reusable.clear()

    @property
    def has_something_to_see(self) -> bool:
        """False of a job with a plan that has neither trained nor run out of memory: it has no
        samples, so that its administrator has nothing to look at, however long it waits for nodes.
        """
        return not self.plans or bool(self._regimes) or self._out_of_memory is not None

    def next_look(self, now: float) -> float:
        """When to look again: at every sample for a while after a change, later at every fifth,
        since nothing but the noise of samples differs then.
        """
        young = not self._regimes or now - self._regimes[-1].begin < _YOUNG_SECONDS
        return now + SAMPLE_SECONDS * (1 if young else 5)

    # What comes of it

    def tick(self, now: float, incarnations: Incarnations) -> Any | None:
        """A look of the administrator; the manifest of a Scale where there is a new plan.

        `incarnations` is asked where there is one: those of the pods, by role and rank.
        """
        self._counts.administrator += 1
        newest = self.plans[-1] if self.plans else None
        regime = self._regimes[-1] if self._regimes else None
        sampled = None if regime is None else regime.newest(now)
        observed = administrator.Observed(
            optimize=Optimize.AUTO,
            plan=self.made if self.plans else None,
            planned_seconds=None if newest is None else newest.applied_seconds,
            changed_servers=newest is not None
            and Role.PS in newest.roles
            and newest.stage is not Stage.CREATE,
            step=round(self._steps()),
            sampled_seconds=sampled,
            out_of_memory_seconds=self._out_of_memory,
            symptoms=() if regime is None or sampled is None or regime.closed else regime.symptoms,
        )
        self._memory, trigger = administrator.decide(self._memory, observed, now, self._settings)
        if trigger is None:
            return None
        if now < self._reusable.get(trigger, -1.0):
            self._counts.brain_reused += 1
            return None
        return self._ask(trigger, now, incarnations)

    def _ask(self, trigger: Trigger, now: float, incarnations: Incarnations) -> Any | None:
        self._counts.brain += 1
        if self._regimes:
            self._draw(now)
        since = now - WINDOW_SECONDS
        # What is over for longer than that is never looked at again.
        self._regimes = [
            regime
            for regime in self._regimes
            if regime is self._regimes[-1]
            or (regime.samples and regime.samples[-1].time_seconds >= since)
        ]
        samples = [
            sample
            for regime in self._regimes
            for sample in regime.samples
            if sample.time_seconds >= since
        ]
        self._runner.samples = tuple(samples[-_MOST:])
        case = Case(
            job=self.description,
            limits=self._limits,
            record=HistoryRecord(
                now_seconds=now,
                plans=tuple(self.plans[-_MOST:]),
                events=tuple(self._events[-_MOST:]),
                past_jobs=() if self.plans else self._past.similar(self.description, now),
            ),
            trigger=trigger,
            policy=DEFAULT_POLICIES[Strategy.PARAMETER_SERVER],
            shard_weights=next(
                (dict(one.shard_weights) for one in reversed(self.plans) if one.shard_weights), {}
            ),
        )
        decision = _run(self._optimizer.decide(case, self._registry))
        plan = decision.plan
        if plan is None:
            if self._regimes and self._regimes[-1].total > MOST_SAMPLES:
                # The usual look may bring something once servers may change again.
                young = now - self._regimes[-1].begin < _YOUNG_SECONDS
                if not (young and trigger is Trigger.INTERVAL):
                    self._reusable[trigger] = now + REUSE_SECONDS
            return None
        self._counts.plans[plan.algorithm] = self._counts.plans.get(plan.algorithm, 0) + 1
        return self._put(plan, now, incarnations)

    def _put(self, plan: Plan, now: float, incarnations: Incarnations) -> Any | None:
        self.made += 1
        self._reusable.clear()
        name = f"{self._job.name}-{int(now * 1000):013d}-{self.made}"
        self.plans.append(
            AppliedPlan(
                applied_seconds=now,
                roles=plan.roles,
                stage=plan.stage,
                reason=plan.reason,
                settled_seconds=None if plan.roles else now,
                shard_weights=plan.shard_weights,
                data_workers=plan.data_workers,
            )
        )
        self._names.append(name)
        roles = role_targets(plan, incarnations())
        if not roles:
            return None
        return {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": "week"},
            "spec": {
                "jobRef": {"name": self._job.name, "uid": self.description.uid},
                "roles": {
                    role.value: target.model_dump(by_alias=True, exclude_none=True, mode="json")
                    for role, target in roles.items()
                },
                "source": Source.BRAIN.value,
                "policy": "Apply",
                "reason": plan.reason,
                "message": plan.message,
            },
        }

    def _draw(self, now: float) -> None:
        """The samples of the newest regime that nobody has looked at yet, as far as they count."""
        regime = self._regimes[-1]
        if regime.closed:
            return
        number = int((now - regime.sampled) / SAMPLE_SECONDS + 1e-9)
        if number <= 0:
            return
        end = regime.sampled + number * SAMPLE_SECONDS
        model = self._job.model
        for back in range(min(number, MOST_SAMPLES + 1) - 1, -1, -1):
            at = end - back * SAMPLE_SECONDS
            regime.samples.append(_sample(model, regime, at, self._steps(), self._rng))
        del regime.samples[: -2 * (MOST_SAMPLES + 1)]
        regime.total += number
        regime.sampled = end


def _run(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the inline executor never waits")


def _sample(
    model: PsJobModel, regime: _Regime, now: float, steps: float, rng: np.random.Generator
) -> Sample:
    true, config = regime.reached, regime.config
    together = float(rng.lognormal(0.0, model.noise))
    workers = rng.lognormal(0.0, 0.3 * model.noise, (len(config.workers), 2)).tolist()
    servers = rng.lognormal(0.0, 0.3 * model.noise, (len(config.servers), 2)).tolist()
    worker_bytes = round(model.worker_bytes)
    return Sample(
        time_seconds=now,
        step=round(steps),
        steps_per_second=true.steps_per_second * together,
        interval_seconds=SAMPLE_SECONDS,
        world_size=len(config.workers),
        roles={
            Role.WORKER: {
                rank: RankSample(
                    milli_cpu=1000 * true.worker_cores[rank] * together * jitter[0],
                    milli_cpu_limit=round(config.workers[rank] * 1000),
                    memory_bytes=worker_bytes,
                    memory_limit_bytes=regime.limits[0][rank],
                    step_seconds=jitter[1] / true.worker_steps_per_second[rank] / together,
                    node=regime.nodes.get(("worker", rank), ""),
                )
                for rank, jitter in enumerate(workers)
            },
            Role.PS: {
                rank: RankSample(
                    milli_cpu=1000 * true.server_cores[rank] * together * jitter[0],
                    milli_cpu_limit=round(config.servers[rank] * 1000),
                    memory_bytes=round(regime.server_memory[rank]),
                    memory_limit_bytes=regime.limits[1][rank],
                    step_seconds=jitter[1] * regime.waits[rank],
                    node=regime.nodes.get(("ps", rank), ""),
                )
                for rank, jitter in enumerate(servers)
            },
        },
    )


def _columns(regime: _Regime) -> dict[Role, dict[str, list[Any]]]:
    """The regime's means as the columns in which the Brain looks for symptoms."""
    config, true = regime.config, regime.reached
    return {
        Role.WORKER: {"step_seconds": [1 / own for own in true.worker_steps_per_second]},
        Role.PS: {
            "milli_cpu": [1000 * own for own in true.server_cores],
            "milli_cpu_limit": [1000 * own for own in config.servers],
            "memory_bytes": list(regime.server_memory),
            "memory_limit_bytes": list(regime.limits[1]),
        },
    }
