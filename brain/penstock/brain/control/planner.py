"""Carries out one optimization: read the job's history, decide, and put the plan in force.

A plan comes into force only if nothing else has changed the job's plans meanwhile (`Jobs.next_plan`
compares the revision), so an override that arrives while an algorithm thinks wins, and two Brains
never plan twice. While a person's pin stands, plans leave the pinned roles alone; one that is about
nothing else is kept, but held.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from penstock.base.enums import Policy, Role, Source, Stage, Trigger
from penstock.brain.configuration import BrainSettings
from penstock.brain.control.algorithm_settings import Algorithms
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.control.optimizer import Case, Decision, Optimizer, Run
from penstock.brain.control.plan_subscribers import PlanSubscribers
from penstock.brain.control.spending import spending_of
from penstock.brain.executor import Outcome, TaskRunner
from penstock.brain.history import HistoryRecord
from penstock.brain.model import budget, share_figures
from penstock.brain.plan_content import PlanContent, applied, of_plan
from penstock.brain.planning import AppliedPlan, GroupMember, Limits, Plan
from penstock.brain.rank_columns import unpack
from penstock.brain.registration import Registration
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.past_jobs import PastJobs
from penstock.brain.store.plans import Plans
from penstock.brain.store.profiles import Profiles, planned_with
from penstock.brain.store.runs import Runs
from penstock.brain.store.samples import Samples, SharingJob
from penstock.brain.store.tables import JobRow, PlanRow, RunRow

WINDOW_SECONDS: Final = 1800.0
MOST_SAMPLES: Final = 500
MOST_PLANS: Final = 500
MOST_EVENTS: Final = 500
MOST_PAST_JOBS: Final = 2000
PAST_SECONDS: Final = 7 * 86_400.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCase:
    """A case with what is needed to store what comes of it."""

    case: Case
    revision: int
    pinned_roles: frozenset[Role]
    incarnations: Mapping[Role, Mapping[int, int]]
    warning: str = ""
    """What the job's owner is told so far."""


class Planner:
    """Plans for one job at a time; safe to call concurrently, for one job or many."""

    def __init__(
        self,
        database: Database,
        executor: TaskRunner,
        algorithms: Algorithms,
        settings: BrainSettings,
        watchers: PlanSubscribers,
        clock: Callable[[], float],
        metrics: BrainMetrics,
        largest_node: Callable[[], Awaitable[int | None]],
    ) -> None:
        self.largest_node = largest_node
        """Milli-cores of the largest node, where known; may read, so never in a transaction."""
        self._metrics = metrics
        self._database = database
        self._optimizer = Optimizer(executor)
        self._algorithms = algorithms
        self._settings = settings
        self._watchers = watchers
        self._clock = clock

    def configure(self, settings: BrainSettings) -> None:
        """Take over another configuration."""
        self._settings = settings

    async def plan(self, uid: str, trigger: Trigger) -> Decision:
        """Decide for one job and put the plan in force.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        loaded = await self.load(uid, trigger)
        await self._warn(uid, loaded)
        decision = await self._optimizer.decide(loaded.case, self._algorithms.registry)
        self._metrics.decided(decision, trigger)
        for run in decision.runs:
            if run.outcome not in {Outcome.PLANNED, Outcome.NO_PLAN}:
                logger.warning(
                    "algorithm %s for job %s: %s: %s", run.algorithm, uid, run.outcome, run.detail
                )
        if decision.plan is None and all(run.outcome is Outcome.NO_PLAN for run in decision.runs):
            return decision
        await self._store(uid, loaded, decision)
        return decision

    async def _warn(self, uid: str, loaded: LoadedCase) -> None:
        """Keep what the owner of a job with a budget is told; of a job without nothing is."""
        said = budget.warning(loaded.case.record.without_samples(), loaded.case.job)
        if said != loaded.warning:
            async with self._database.write() as session:
                await Jobs(self._database, session).warn(uid, said)

    async def propose(
        self,
        uid: str,
        *,
        algorithm: str | None = None,
        stage: Stage | None = None,
        limits: Callable[[Limits], Limits] = lambda own: own,
    ) -> tuple[Decision, PlanContent | None]:
        """What would be decided; changes nothing.

        Raises:
            JobNotFoundError: No job has this uid.
            UnknownAlgorithmError: There is no such algorithm.
        """
        loaded = await self.load(uid, Trigger.PROPOSED, limits)
        registry = self._algorithms.registry
        if algorithm is None:
            decision = await self._optimizer.decide(loaded.case, registry)
        else:
            entry = registry[algorithm]
            at = stage or min(entry.algorithm.stages, key=list(Stage).index)
            run = await self._optimizer.propose(loaded.case, entry, at)
            planned = run.outcome is Outcome.PLANNED
            decision = Decision(
                plan=run.plan if planned else None, version=run.version, runs=(run,)
            )
        content = None if decision.plan is None else of_plan(decision.plan, loaded.incarnations)
        return decision, content

    async def load(
        self, uid: str, trigger: Trigger, limits: Callable[[Limits], Limits] = lambda own: own
    ) -> LoadedCase:
        """Everything that a plan for the job may be based on.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        now = self._clock()
        async with self._database.read() as session:
            job = await Jobs(self._database, session).get(uid)
            registration = Registration.parse(job.description)
            samples = Samples(self._database, session)
            plans = list(await Plans(session).newest_in_force(uid, MOST_PLANS))
            settled = await _newly_settled(samples, plans)
            records = await samples.records(uid, now - WINDOW_SECONDS, MOST_SAMPLES)
            record = HistoryRecord(
                now_seconds=now,
                samples=records,
                plans=applied_plans(plans, settled),
                events=await samples.events(uid, now - PAST_SECONDS, MOST_EVENTS),
                past_jobs=(
                    ()
                    if plans
                    else await PastJobs(session).similar(
                        registration.description, now - PAST_SECONDS, MOST_PAST_JOBS
                    )
                ),
                profile=await planned_with(Profiles(self._database, session), job),
                group=share_group(
                    uid,
                    await samples.sharing(job.namespace, now - share_figures.HEARD_SECONDS),
                ),
            )
            pinned = await _pinned_roles(session, job)
        spending = await spending_of(
            self._database, registration.description, records, self._settings.prices, now
        )
        if settled:
            async with self._database.write() as session:
                for number, at in settled.items():
                    await Plans(session).settle(uid, number, at)
        case = Case(
            job=registration.description,
            limits=limits(self.limits_of(registration, await self.largest_node())),
            record=replace(record, spending=spending),
            trigger=trigger,
            policy=self._settings.policy(registration.description.strategy),
            shard_weights=_shard_weights(plans),
        )
        return LoadedCase(
            case=case,
            revision=job.revision,
            pinned_roles=pinned,
            incarnations=_incarnations(record),
            warning=job.warning,
        )

    def limits_of(self, registration: Registration, largest_node: int | None) -> Limits:
        """What a plan for a job may ask for, now."""
        return registration.limits(self._settings.limits, largest_node)

    async def _store(self, uid: str, loaded: LoadedCase, decision: Decision) -> None:
        now = self._clock()
        number: int | None = None
        async with self._database.write() as session:
            if decision.plan is not None:
                number = await self._put(session, uid, loaded, decision.plan, decision.version, now)
            Runs(session).add(
                run_row(uid, run, loaded.case.trigger, now, number)
                for run in decision.runs
                if run.outcome is not Outcome.NO_PLAN
            )
        if number is not None:
            self._watchers.wake(uid)

    async def _put(
        self,
        session: AsyncSession,
        uid: str,
        loaded: LoadedCase,
        plan: Plan,
        version: str,
        now: float,
    ) -> int | None:
        content = of_plan(plan, loaded.incarnations)
        held = False
        if loaded.pinned_roles:
            free = {k: v for k, v in content.roles.items() if k not in loaded.pinned_roles}
            held = not (free or content.shard_weights or content.data_workers)
            if held and await _held_already(session, uid, content):
                return None
            if not held:
                content = content.model_copy(update={"roles": free})
        taken = await Jobs(self._database, session).next_plan(
            uid, revision=loaded.revision, in_force=not held
        )
        if taken is None:
            logger.info("job %s: its plan changed while one was made; the new one is dropped", uid)
            return None
        number, _ = taken
        Plans(session).add(
            PlanRow(
                job_uid=uid,
                number=number,
                created_seconds=now,
                source=Source.BRAIN.value,
                policy=Policy.APPLY.value,
                stage=plan.stage.value,
                trigger=loaded.case.trigger.value,
                algorithm=plan.algorithm,
                algorithm_version=version,
                reason=plan.reason,
                message=plan.message[:1024],
                held=held,
                content=content.dump(),
            )
        )
        return number


def run_row(uid: str, run: Run, trigger: Trigger, now: float, plan: int | None) -> RunRow:
    """A run as the store keeps it; a shadow's run names the plan that was applied instead."""
    related = run.shadow or run.outcome is Outcome.PLANNED
    return RunRow(
        job_uid=uid,
        time_seconds=now,
        trigger=trigger.value,
        stage=run.stage.value,
        algorithm=run.algorithm,
        algorithm_version=run.version,
        shadow=run.shadow,
        outcome=run.outcome.value,
        detail=(run.detail or (run.plan.message if run.plan else ""))[:1024],
        duration_seconds=run.duration_seconds,
        plan=plan if related else None,
        content=of_plan(run.plan).dump() if run.plan and (run.shadow or not related) else None,
    )


def applied_plans(
    rows: list[PlanRow], settled: Mapping[int, float] | None = None
) -> tuple[AppliedPlan, ...]:
    """Stored plans as the algorithms see them; an override has the stage of the plan before it."""
    found = []
    stage = Stage.CREATE
    for row in rows:
        stage = Stage(row.stage) if row.stage else stage
        found.append(
            applied(
                PlanContent.model_validate_json(row.content),
                created_seconds=row.created_seconds,
                settled_seconds=row.settled_seconds or (settled or {}).get(row.number),
                stage=stage,
                reason=row.reason,
            )
        )
    return tuple(found)


def share_group(uid: str, said: Sequence[SharingJob]) -> tuple[GroupMember, ...]:
    """The members of a job's share group, by uid, from what jobs that share said lately.

    Args:
        uid: of the job.
        said: the newest first; see `Samples.sharing`.
    """
    newest: dict[str, tuple[str, GroupMember]] = {}
    for one in said:
        if one.uid in newest or (figures := share_figures.load(one.share)) is None:
            continue
        newest[one.uid] = (
            figures.group,
            GroupMember(
                uid=one.uid,
                batches_per_second=one.ideal_per_second or one.dequeued_per_second or 0.0,
                data_workers=figures.own_data_workers,
                data_worker_milli_cpu=figures.milli_cpu,
            ),
        )
    if uid not in newest:
        return ()
    own = newest[uid][0]
    return tuple(one for _, (group, one) in sorted(newest.items()) if group == own)


async def _newly_settled(samples: Samples, plans: list[PlanRow]) -> dict[int, float]:
    """Plans that have settled since they were last looked at: number and time.

    Only the newest that says anything of pods can settle: those of an older one are not wanted
    any more.
    """
    contents = {row.number: PlanContent.model_validate_json(row.content) for row in plans}
    found: dict[int, float] = {}
    for row in reversed(plans):
        if row.settled_seconds is not None:
            break
        if not contents[row.number].roles:
            found[row.number] = row.created_seconds
            continue
        wanted: dict[Role, int] = {}
        for content in contents.values():
            for role, target in content.roles.items():
                if target.replicas is not None:
                    wanted[role] = target.replicas
        at = await samples.first_with(
            row.job_uid,
            since=row.created_seconds,
            world_size=wanted.get(Role.WORKER),
            servers=wanted.get(Role.PS),
        )
        if at is not None:
            found[row.number] = at
        break
    return found


async def _pinned_roles(session: AsyncSession, job: JobRow) -> frozenset[Role]:
    if job.pinned_plan is None:
        return frozenset()
    row = await Plans(session).get(job.uid, job.pinned_plan)
    return frozenset(PlanContent.model_validate_json(row.content).roles)


async def _held_already(session: AsyncSession, uid: str, content: PlanContent) -> bool:
    newest = await Plans(session).newest_of_the_brain(uid, 1)
    return bool(
        newest
        and newest[0].held
        and PlanContent.model_validate_json(newest[0].content).roles == content.roles
    )


def _shard_weights(plans: list[PlanRow]) -> Mapping[int, float]:
    return PlanContent.model_validate_json(plans[-1].content).shard_weights if plans else {}


def _incarnations(record: HistoryRecord) -> dict[Role, dict[int, int]]:
    if not record.samples:
        return {}
    return {
        role: dict(zip(columns["rank"], columns["incarnation"], strict=True))
        for role, columns in unpack(record.samples[-1].ranks).items()
        if "incarnation" in columns
    }
