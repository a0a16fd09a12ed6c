"""One job's life under one planner, in simulated time.

What happens when, after DLRover (section 6.3): a pod takes 20 s to start and its training 100 s to
initialise; a configuration is sampled for 60 s before a planner is asked; it is asked every 60 s
after that. New workers join when they are ready and the others train on meanwhile. A change of
servers is prepared in the same 120 s and then stops the training for `repartition_seconds`, in
which parameters are saved, spread anew and loaded. A pod that is made anew is on another machine:
a slow one is left behind.

The planner sees only samples, with noise. What is reported is the true speed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    Plan,
    RankPlan,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)
from penstock.brain.sizes import in_force
from penstock.sim.ps.jobs.model import PsConfig, PsJobModel, PsSpeed, residence, speed
from penstock.sim.ps.jobs.random_models import PsCase

Planner = Callable[[History, JobDescription, Limits], Plan | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The delays of the simulation, in seconds."""

    pod_start: float = 20.0
    initialise: float = 100.0
    sampling: float = 60.0
    interval: float = 60.0
    sample_interval: float = 15.0
    repartition: float = 30.0
    horizon: float = 3600.0
    """The planner is not asked any more after this; the job trains on as it is."""

    @property
    def ready(self) -> float:
        """From asking for a pod until it trains."""
        return self.pod_start + self.initialise


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """One pod of the first configuration on a machine that gives it a part of its cores."""

    role: Role
    rank: int = 0
    share: float = 0.25


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and when it was made."""

    time_seconds: float
    plan: Plan
    config: PsConfig


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One simulated life. `speeds` holds (time, true steps per second from then on)."""

    plans: tuple[Planned, ...]
    speeds: tuple[tuple[float, float], ...]
    final_steps_per_second: float
    adjustment_seconds: float
    jct_seconds: float
    server_changes: int
    config: PsConfig


@dataclass(slots=True)
class _Life:
    """The changing part of a simulation."""

    config: PsConfig | None = None
    plans: list[AppliedPlan] = field(default_factory=list)
    made: list[Planned] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    speeds: list[tuple[float, float]] = field(default_factory=list)
    steps: float = 0.0
    true: tuple[PsConfig, PsSpeed] | None = None


def describe(case: PsCase, spare: int = 0) -> JobDescription:
    """The job as the Brain knows it: nothing of the model."""
    return JobDescription(
        uid=case.model.name,
        name=case.model.name,
        strategy=Strategy.PARAMETER_SERVER,
        roles={
            Role.WORKER: RoleSpec(maximum=case.most_workers, spare=spare),
            Role.PS: RoleSpec(),
        },
    )


def simulate(
    case: PsCase,
    planner: Planner,
    seed: int,
    *,
    timing: Timing | None = None,
    spare: int = 0,
    straggler: Straggler | None = None,
) -> RunOutcome:
    """The life of `case` under `planner`, until its steps are done."""
    timing = timing or Timing()
    job = describe(case, spare)
    limits = Limits(milli_cpu=case.cores * 1000, pod_milli_cpu=case.pod_cores * 1000)
    life = _Life()
    rng = np.random.default_rng([seed, 1])
    first = planner(History(now_seconds=0.0), job, limits)
    if first is None:
        raise ValueError("the planner made no first plan")
    config = configured(first.roles)
    if straggler is not None:
        slow = {straggler.rank: straggler.share}
        if straggler.role is Role.WORKER:
            config = replace(config, slow_workers=slow)
        else:
            config = replace(config, slow_servers=slow)
    life.made.append(Planned(0.0, first, config))
    life.plans.append(AppliedPlan(applied_seconds=0.0, roles=first.roles, stage=first.stage))
    life.speeds.append((0.0, 0.0))
    _settle(life, config, timing.ready, case.model)
    now, asked = timing.ready, timing.ready
    while now < timing.horizon:
        now += timing.sample_interval
        life.samples.append(_sample(case.model, life, now, timing, rng))
        due = max(asked + timing.interval, _settled_at(life) + timing.sampling)
        if now + 1e-9 < due:
            continue
        asked = now
        history = History(now_seconds=now, samples=tuple(life.samples), plans=tuple(life.plans))
        plan = planner(history, job, limits)
        if plan is not None:
            now = _carry_out(life, plan, now, case.model, timing, rng)
            asked = now - timing.interval
    return _outcome(life, case.model)


def configured(roles: Mapping[Role, RolePlan]) -> PsConfig:
    """The configuration that plans taken together ask for."""
    return PsConfig(workers=_cores(roles[Role.WORKER]), servers=_cores(roles[Role.PS]))


def _cores(role: RolePlan) -> tuple[float, ...]:
    count = (role.replicas or 0) + (role.spare_replicas or 0)
    return tuple(
        (role.ranks.get(rank, RankPlan()).milli_cpu or role.milli_cpu or 0) / 1000
        for rank in range(count)
    )


def _settled_at(life: _Life) -> float:
    return life.plans[-1].settled_seconds or 0.0


def _settle(life: _Life, config: PsConfig, at: float, model: PsJobModel) -> None:
    life.config = config
    life.plans[-1] = replace(life.plans[-1], settled_seconds=at)
    life.speeds.append((at, speed(model, config).steps_per_second))


def _carry_out(
    life: _Life,
    plan: Plan,
    now: float,
    model: PsJobModel,
    timing: Timing,
    rng: np.random.Generator,
) -> float:
    """Put `plan` in force; gives the time at which all its pods train."""
    assert life.config is not None
    old = life.config
    life.plans.append(
        AppliedPlan(
            applied_seconds=now,
            roles=plan.roles,
            stage=plan.stage,
            reason=plan.reason,
            shard_weights=plan.shard_weights,
        )
    )
    wanted = configured(in_force(History(now_seconds=now, plans=tuple(life.plans))))
    new = _on_machines(old, wanted, plan)
    life.made.append(Planned(now, plan, new))
    if not plan.roles:
        _settle(life, new, now, model)
        return now
    moved = any(own.replace for role in plan.roles.values() for own in role.ranks.values())
    if new == old and not moved:
        _settle(life, new, now, model)
        return now
    fewer = (
        new.servers == old.servers
        and len(new.workers) < len(old.workers)
        and new.workers[0] == old.workers[0]
    )
    ready = now if fewer else now + timing.ready
    while now + timing.sample_interval <= ready:  # the old pods train on and are sampled
        now += timing.sample_interval
        life.samples.append(_sample(model, life, now, timing, rng))
    if new.servers != old.servers or Role.PS in plan.roles:
        life.speeds.append((ready, 0.0))
        ready += timing.repartition
    _settle(life, new, ready, model)
    return ready


def _on_machines(old: PsConfig, new: PsConfig, plan: Plan) -> PsConfig:
    """Slow machines stay only under the pods that the plan leaves as they are."""

    def stays(role: Role, rank: int, before: tuple[float, ...], after: tuple[float, ...]) -> bool:
        own = plan.roles.get(role, RolePlan()).ranks.get(rank)
        same = rank < min(len(before), len(after)) and before[rank] == after[rank]
        return same and not (own is not None and own.replace)

    return replace(
        new,
        slow_workers={
            rank: share
            for rank, share in old.slow_workers.items()
            if stays(Role.WORKER, rank, old.workers, new.workers)
        },
        slow_servers={
            rank: share
            for rank, share in old.slow_servers.items()
            if stays(Role.PS, rank, old.servers, new.servers)
        },
    )


def _sample(
    model: PsJobModel, life: _Life, now: float, timing: Timing, rng: np.random.Generator
) -> Sample:
    assert life.config is not None
    config = life.config
    if life.true is None or life.true[0] != config:
        life.true = (config, speed(model, config))
    true = life.true[1]
    together = float(rng.lognormal(0.0, model.noise))
    observed = true.steps_per_second * together
    life.steps += observed * timing.sample_interval
    return Sample(
        time_seconds=now,
        step=round(life.steps),
        steps_per_second=observed,
        interval_seconds=timing.sample_interval,
        world_size=len(config.workers),
        roles={
            Role.WORKER: _worker_rows(model, config, true, together, rng),
            Role.PS: _server_rows(model, config, true, together, rng),
        },
    )


def _worker_rows(
    model: PsJobModel, config: PsConfig, true: PsSpeed, together: float, rng: np.random.Generator
) -> dict[int, RankSample]:
    # Counters of CPU time are exact: what varies is the speed, and a little of the work.
    jitter = rng.lognormal(0.0, 0.3 * model.noise, (len(config.workers), 2))
    return {
        rank: RankSample(
            milli_cpu=1000 * true.worker_cores[rank] * together * float(jitter[rank, 0]),
            milli_cpu_limit=round(cores * 1000),
            memory_bytes=round(model.worker_bytes),
            step_seconds=float(jitter[rank, 1]) / true.worker_steps_per_second[rank] / together,
            node=f"worker-node-{rank}",
        )
        for rank, cores in enumerate(config.workers)
    }


def _server_rows(
    model: PsJobModel, config: PsConfig, true: PsSpeed, together: float, rng: np.random.Generator
) -> dict[int, RankSample]:
    works = model.server_work(len(config.servers))
    shares = model.shares(len(config.servers))
    jitter = rng.lognormal(0.0, 0.3 * model.noise, (len(config.servers), 2))
    rows = {}
    for rank, cores in enumerate(config.servers):
        work = works[rank]
        usable = cores * config.slow_servers.get(rank, 1.0)
        seconds = residence(model, work, usable, true.steps_per_second)
        rows[rank] = RankSample(
            milli_cpu=1000 * true.server_cores[rank] * together * float(jitter[rank, 0]),
            milli_cpu_limit=round(cores * 1000),
            memory_bytes=round(model.parameter_bytes * shares[rank]),
            step_seconds=seconds * float(jitter[rank, 1]),
            node=f"server-node-{rank}",
        )
    return rows


def _outcome(life: _Life, model: PsJobModel) -> RunOutcome:
    assert life.config is not None
    final = life.speeds[-1][1]
    changes = sum(
        1 for plan in life.plans if plan.stage is not Stage.CREATE and Role.PS in plan.roles
    )
    return RunOutcome(
        plans=tuple(life.made),
        speeds=tuple(life.speeds),
        final_steps_per_second=final,
        adjustment_seconds=adjusted(life.speeds),
        jct_seconds=completed(life.speeds, model.steps),
        server_changes=changes,
        config=life.config,
    )


def adjusted(speeds: list[tuple[float, float]], within: float = 0.02) -> float:
    """The time from which the speed stays within a part of its last value."""
    final = speeds[-1][1]
    since = speeds[-1][0]
    for time_seconds, value in reversed(speeds):
        if abs(value - final) > within * final:
            break
        since = time_seconds
    return since


def completed(speeds: list[tuple[float, float]], steps: float) -> float:
    """The time at which `steps` are done."""
    left = steps
    for (start, value), (end, _) in itertools.pairwise(speeds):
        done = value * (end - start)
        if done >= left and value > 0:
            return start + left / value
        left -= done
    start, value = speeds[-1]
    return start + left / value if value > 0 else float("inf")
