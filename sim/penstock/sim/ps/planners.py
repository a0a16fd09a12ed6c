"""What plans a simulated job: the Brain's own algorithms, and the baselines they are compared with.

The Brain's algorithms run here as they run there: same code, same order of stages, same check.
Baselines are DLRover's (section 6): a static configuration; Optimus (Peng et al. 2018), which adds
one kind of pod at a time; the heuristic auto-scaler (Or et al. 2020), which adds workers only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.model import budget
from penstock.brain.model.measurement import settled
from penstock.brain.plan_check import PlanRefusedError, check
from penstock.brain.planning import History, JobDescription, Limits, Plan, RankPlan, RolePlan
from penstock.brain.registry import AlgorithmSettings, Registry, load
from penstock.brain.sizes import CORE
from penstock.brain.stages import DEFAULT_POLICIES, Policy, names_to_ask, stages_to_ask
from penstock.sim.errors import SimulationError
from penstock.sim.ps.jobs.model import PsConfig

_CREATE: Final = ("cold_create",)
FITTED: Final = DEFAULT_POLICIES[Strategy.PARAMETER_SERVER]
"""The Brain's default for jobs with parameter servers."""
DLROVER: Final = Policy(
    stages={
        Stage.CREATE: _CREATE,
        Stage.SAMPLE: ("sample",),
        Stage.OPTIMIZE: ("optimize_ps",),
        Stage.ADJUST: ("straggler", "hot_ps", "idle_ps"),
    }
)
"""DLRover's own rule, stage by stage."""


def algorithms() -> Registry:
    """The installed algorithms as the Brain runs them."""
    return load()


def policy_of(name: str) -> Policy:
    """The Brain's default, with one algorithm alone in the place of all that follow sampling.

    Raises:
        SimulationError: It is not installed or not made for these stages.
    """
    registry = algorithms()
    if name not in registry:
        raise SimulationError(
            f"--algorithm={name}: no such algorithm is installed; known are {', '.join(registry)}"
        )
    stages = registry[name].algorithm.stages & {Stage.OPTIMIZE, Stage.ADJUST}
    if not stages:
        raise SimulationError(f"--algorithm={name}: must plan stage Optimize or Adjust")
    return Policy(
        stages={**FITTED.stages, Stage.OPTIMIZE: (), Stage.ADJUST: ()}
        | dict.fromkeys(stages, (name,))
    )


def dlrover_algorithms(*, as_published: bool = False) -> Registry:
    """The algorithms for DLRover's own rule, which sets no bound to changes of servers.

    `as_published` samples on one server, as in the paper's Table 1, and lets hot servers grow
    beyond the quota, as they did there.
    """
    hot = {"most_server_changes": 1000, "beyond_quota": as_published}
    settings = {"hot_ps": AlgorithmSettings(params=hot)}
    if as_published:
        settings["cold_create"] = AlgorithmSettings(params={"servers": 1})
    return load(settings)


@dataclass(frozen=True, slots=True)
class BrainPlanner:
    """The Brain's optimizer without its store: stage by stage, the first plan that passes.

    `start` replaces the first plan.
    """

    registry: Registry
    policy: Policy
    start: PsConfig | None = None
    checked: bool = True

    def __call__(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        if self.start is not None and not history.plans:
            return started(self.start, Stage.ADJUST)
        for stage in stages_to_ask(history, job.optimize):
            for name in names_to_ask(self.policy, stage):
                plan = self.registry[name].plan(history, job, limits)
                if plan is not None and self._allowed(plan, job, limits, history):
                    return plan
        return None

    def _allowed(self, plan: Plan, job: JobDescription, limits: Limits, history: History) -> bool:
        if not self.checked:
            return True
        try:
            check(plan, job, limits, history)
        except PlanRefusedError:
            return False
        return not budget.refusal(plan, history, job)


@dataclass(frozen=True, slots=True)
class Static:
    """One configuration for life."""

    config: PsConfig

    def __call__(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        return None if history.plans else started(self.config)


@dataclass(frozen=True, slots=True)
class Optimus:
    """Adds servers or workers, whichever promises more, while the speed still grows.

    The published algorithm estimates both gains from a fitted speed; here the last gain that each
    kind of pod brought is the estimate, and a kind that brought less than `least_gain` has had its
    turn. The sizes of pods are given and never change.
    """

    worker_cores: float
    server_cores: float
    more_workers: int = 4
    more_servers: int = 2
    least_gain: float = 0.01

    def __call__(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        if not history.plans:
            return started(_uniform(1, self.worker_cores, 1, self.server_cores))
        now = settled(history, job, 3)
        if now is None:
            return None
        gains = _gains(history, job)
        quota = (limits.milli_cpu or 0) / CORE - now.cores
        kinds = {
            Role.WORKER: (self.more_workers, self.worker_cores, now.workers),
            Role.PS: (self.more_servers, self.server_cores, len(now.server_cores)),
        }
        # A kind not tried yet comes first; workers before servers, being cheaper.
        order = sorted(kinds, key=lambda role: (-gains.get(role, float("inf")), role is Role.PS))
        for role in order:
            more, cores, present = kinds[role]
            if gains.get(role, float("inf")) < self.least_gain and _both(gains, self.least_gain):
                return None
            more = min(more, int(quota / cores + 1e-9))
            if more < 1:
                continue
            return _more(role, present + more, "Optimus adds what gained most")
        return None


@dataclass(frozen=True, slots=True)
class Heuristic:
    """Adds workers while each adds more than `threshold` of the average worker's speed."""

    worker_cores: float
    server_cores: float
    servers: int
    more_workers: int = 4
    threshold: float = 0.3

    def __call__(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        if not history.plans:
            return started(_uniform(1, self.worker_cores, self.servers, self.server_cores))
        now = settled(history, job, 3)
        if now is None:
            return None
        speeds = _speeds(history)
        if len(speeds) >= 2:
            (before, slow), (after, fast) = speeds[-2:]
            if after < before:
                return None  # it has given back what did not pay, and rests
            efficiency = (fast - slow) / (after - before) / (slow / before)
            if efficiency <= self.threshold:
                return _more(Role.WORKER, before, "the last workers did not pay")
        quota = (limits.milli_cpu or 0) / CORE - now.cores
        more = min(self.more_workers, int(quota / self.worker_cores + 1e-9))
        return _more(Role.WORKER, now.workers + more, "workers pay so far") if more > 0 else None


def started(config: PsConfig, stage: Stage = Stage.CREATE) -> Plan:
    """A first plan that is exactly `config`."""
    return Plan(
        stage=stage,
        algorithm="given",
        roles={Role.WORKER: _role(config.workers), Role.PS: _role(config.servers)},
        reason="Given",
        message="a configuration given from the start",
    )


def _role(cores: tuple[float, ...]) -> RolePlan:
    common = max(sorted(set(cores)), key=list(cores).count)
    return RolePlan(
        replicas=len(cores),
        milli_cpu=round(common * CORE),
        ranks={
            rank: RankPlan(milli_cpu=round(own * CORE))
            for rank, own in enumerate(cores)
            if own != common
        },
    )


def _uniform(workers: int, worker: float, servers: int, server: float) -> PsConfig:
    return PsConfig(workers=(worker,) * workers, servers=(server,) * servers)


def _more(role: Role, replicas: int, message: str) -> Plan:
    return Plan(
        stage=Stage.ADJUST,
        algorithm="baseline",
        roles={role: RolePlan(replicas=replicas)},
        reason="Baseline",
        message=message,
    )


def _settled_speeds(history: History) -> list[tuple[Role | None, int, float]]:
    """For each plan: the role it changed, the workers after it and the median speed under it."""
    rows: list[tuple[Role | None, int, float]] = []
    bounds = [plan.settled_seconds or float("inf") for plan in history.plans]
    ends = [plan.applied_seconds for plan in history.plans[1:]] + [float("inf")]
    for plan, begin, end in zip(history.plans, bounds, ends, strict=True):
        own = [s for s in history.samples if begin < s.time_seconds <= end]
        if own:
            middle = sorted(s.steps_per_second for s in own)[len(own) // 2]
            roles = list(plan.roles)
            changed = roles[0] if len(roles) == 1 else None
            rows.append((changed, own[-1].world_size, middle))
    return rows


def _gains(history: History, job: JobDescription) -> Mapping[Role, float]:
    """The relative gain of the last plan that added each role."""
    rows = _settled_speeds(history)
    gains: dict[Role, float] = {}
    for (_, _, before), (role, _, after) in itertools.pairwise(rows):
        if role is not None:
            gains[role] = after / before - 1
    return gains


def _both(gains: Mapping[Role, float], least: float) -> bool:
    return len(gains) == 2 and all(gain < least for gain in gains.values())


def _speeds(history: History) -> list[tuple[int, float]]:
    return [(workers, value) for _, workers, value in _settled_speeds(history)]
