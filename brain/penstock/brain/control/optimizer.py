"""Picks the algorithms for where a job stands and asks them in turn (DLRover, section 4.3).

Stateless: everything it needs is in the `Case`, everything it found is in the `Decision`. The
first plan that passes `penstock.brain.plan_check` and changes something is the decision; an
algorithm that fails in any way is recorded and the next one is asked. Algorithms in shadow mode
are asked as well, and their plans are only recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.base.enums import Stage, Trigger
from penstock.brain.executor.task import Outcome, Task, TaskRunner
from penstock.brain.history import HistoryRecord
from penstock.brain.model import budget, gpu_use
from penstock.brain.plan_check import PlanRefusedError, check
from penstock.brain.planning import (
    MAX_MESSAGE,
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    Plan,
)
from penstock.brain.registry import Registered, Registry
from penstock.brain.sizes import in_force
from penstock.brain.stages import Policy, names_to_ask, stages_to_ask

GPU_SAMPLES: Final = 20
"""Over so many of the latest samples a plan's evidence says what the GPUs did: a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job at one moment, and what to ask about it."""

    job: JobDescription
    limits: Limits
    record: HistoryRecord
    trigger: Trigger
    policy: Policy
    shard_weights: Mapping[int, float]
    """Those of the newest plan that says any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One algorithm that was asked."""

    stage: Stage
    algorithm: str
    version: str
    shadow: bool
    outcome: Outcome
    duration_seconds: float
    detail: str = ""
    plan: Plan | None = None
    """What it answered, also where that was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What should change, if anything, and everything that was asked."""

    plan: Plan | None = None
    version: str = ""
    runs: tuple[Run, ...] = ()


class Optimizer:
    """Asks the algorithms of one registry, in one executor."""

    def __init__(self, executor: TaskRunner) -> None:
        self._executor = executor

    async def decide(self, case: Case, registry: Registry) -> Decision:
        """What should become of the job."""
        known = case.record.without_samples()
        runs: list[Run] = []
        chosen: Run | None = None
        stages = stages_to_ask(known, case.job.optimize)
        asked: set[str] = set()
        for stage, name in _in_order(stages, case.policy):
            if name not in registry or not _fits(registry[name], stage, case):
                continue
            if registry[name].shadow or name in asked:
                continue  # asked again at a later stage, it would answer the same
            asked.add(name)
            run = await self.ask(case, registry[name], stage)
            runs.append(run)
            if run.outcome is Outcome.PLANNED:
                chosen = run
                break
        for name in registry:
            entry = registry[name]
            fitting = [each for each in stages if _fits(entry, each, case)]
            if entry.shadow and fitting:
                runs.append(await self.ask(case, entry, fitting[0]))
        return Decision(
            plan=None if chosen is None else chosen.plan,
            version="" if chosen is None else chosen.version,
            runs=tuple(runs),
        )

    async def propose(self, case: Case, entry: Registered, stage: Stage) -> Run:
        """Ask one algorithm that a person names, unless it is not for jobs like this one."""
        algorithm = entry.algorithm
        if case.job.strategy in algorithm.strategies:
            return await self.ask(case, entry, stage)
        return Run(
            stage=stage,
            algorithm=algorithm.name,
            version=algorithm.version,
            shadow=entry.shadow,
            outcome=Outcome.NO_PLAN,
            duration_seconds=0.0,
            detail=f"{algorithm.name} is for {', '.join(sorted(algorithm.strategies))}; "
            f"the job is {case.job.strategy}",
        )

    async def ask(self, case: Case, entry: Registered, stage: Stage) -> Run:
        """Ask one algorithm, and check what it answers."""
        algorithm = entry.algorithm
        result = await self._executor.run(
            Task(entry=entry, record=case.record, job=case.job, limits=case.limits)
        )
        run = Run(
            stage=stage,
            algorithm=algorithm.name,
            version=algorithm.version,
            shadow=entry.shadow,
            outcome=result.outcome,
            duration_seconds=result.duration_seconds,
            detail=result.detail,
            plan=result.plan,
        )
        if result.plan is None:
            return run
        plan = with_gpu_figures(result.plan, case.record)
        plan = with_cost(plan, case)
        return _checked(replace(run, plan=plan), plan, case)


def with_gpu_figures(plan: Plan, record: HistoryRecord) -> Plan:
    """The plan with what the GPUs did before it, beside the figures that decided it.

    So whoever reads why a plan was made sees whether the GPUs were idle then. Nothing is added
    where no GPU is measured; what the algorithm says of them itself stands.
    """
    packed = [sample.ranks for sample in record.samples[-GPU_SAMPLES:]]
    seen = {
        f"{role.in_names.replace('-', '_')}_gpu_utilization": round(value, 4)
        for role, value in gpu_use.mean_utilization(packed).items()
    }
    if not seen:
        return plan
    figures = {**seen, **plan.evidence.figures}
    return replace(plan, evidence=replace(plan.evidence, figures=figures))


def with_cost(plan: Plan, case: Case) -> Plan:
    """The plan of a job with a budget with what it will have cost, where that can be told."""
    known, limit = case.record.without_samples(), case.job.budget
    cost = budget.becoming(plan.roles, plan.prediction, known, case.job)
    if cost is None or known.spending is None or limit is None:
        return plan
    currency = known.spending.currency
    said = f"; by its end it costs {cost.in_words(currency)} of {limit:g} {currency}"
    figures = {**plan.evidence.figures, "cost": cost.value, "cost_low": cost.low, "budget": limit}
    if cost.high is not None:
        figures["cost_high"] = cost.high
    return replace(
        plan,
        message=plan.message[: MAX_MESSAGE - len(said)] + said,
        evidence=replace(plan.evidence, figures=figures),
    )


def _in_order(stages: Iterable[Stage], policy: Policy) -> Iterable[tuple[Stage, str]]:
    return ((stage, name) for stage in stages for name in names_to_ask(policy, stage))


def _fits(entry: Registered, stage: Stage, case: Case) -> bool:
    algorithm = entry.algorithm
    return (
        stage in algorithm.stages
        and case.trigger in algorithm.triggers
        and case.job.strategy in algorithm.strategies
    )


def _checked(run: Run, plan: Plan, case: Case) -> Run:
    known = case.record.without_samples()
    if plan.algorithm != run.algorithm:
        detail = f"the plan says it is by {plan.algorithm!r}"
        return replace(run, outcome=Outcome.REFUSED, detail=detail)
    try:
        check(plan, case.job, case.limits, known)
    except PlanRefusedError as error:
        return replace(run, outcome=Outcome.REFUSED, detail=str(error))
    if not changes(plan, known, case.shard_weights):
        return replace(run, outcome=Outcome.NO_PLAN, plan=None)
    if why := budget.refusal(plan, known, case.job):
        return replace(run, outcome=Outcome.REFUSED, detail=f"budget: {why}")
    return run


def changes(plan: Plan, history: History, shard_weights: Mapping[int, float]) -> bool:
    """Whether the job would be any different under the plan."""
    wanted = [applied.data_workers for applied in history.plans if applied.data_workers]
    if plan.data_workers is not None and plan.data_workers not in wanted[-1:]:
        return True
    if dict(plan.shard_weights) != dict(shard_weights):
        return True
    if any(rank.replace for role in plan.roles.values() for rank in role.ranks.values()):
        return True
    applied = AppliedPlan(applied_seconds=history.now_seconds, roles=plan.roles, stage=plan.stage)
    before = in_force(history)
    after = in_force(replace(history, plans=(*history.plans, applied)))
    return before != after
