"""The administrators of all live jobs, in one loop.

Level-triggered: each tick reads what the jobs are now and asks
`penstock.brain.control.administrator` which of them are due. Several Brains share the jobs of one
database by leases, and share them out anew when one of them comes or goes; should two plan the same
job all the same, `Jobs.next_plan` lets one of them win.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from penstock.base.enums import Optimize, Role, Stage, Trigger
from penstock.brain.configuration import AdministratorSettings
from penstock.brain.control.administrator import Memory, Observed, decide
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.control.planner import Planner
from penstock.brain.errors import JobNotFoundError
from penstock.brain.plan_content import PlanContent
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs, LiveJob
from penstock.brain.store.leases import Leases
from penstock.brain.store.plans import Plans

logger = logging.getLogger(__name__)
_MOST_MOVED: Final = 500
"""Jobs that one claim takes or lets go, so that its transaction is short; where there may be more,
the next look claims again."""


@dataclass(frozen=True, slots=True)
class _PlanInForce:
    number: int
    created_seconds: float
    changed_servers: bool


@dataclass(slots=True)
class _Administrator:
    memory: Memory = field(default_factory=Memory)
    plan: _PlanInForce | None = None
    busy: asyncio.Task[None] | None = field(default=None, repr=False)


class Administrators:
    """Runs until stopped; one administrator for each job that this Brain holds."""

    def __init__(
        self,
        database: Database,
        planner: Planner,
        settings: AdministratorSettings,
        holder: str,
        clock: Callable[[], float],
        metrics: BrainMetrics,
    ) -> None:
        self._metrics = metrics
        self._database = database
        self._planner = planner
        self._settings = settings
        self._holder = holder
        self._clock = clock
        self._jobs: dict[str, _Administrator] = {}
        self._held: frozenset[str] = frozenset()
        self._claimed_seconds = float("-inf")
        self._slots = asyncio.Semaphore(settings.concurrency)

    def __len__(self) -> int:
        return len(self._jobs)

    def configure(self, settings: AdministratorSettings) -> None:
        """Take over other conditions; the concurrency stays as it was at the start."""
        self._settings = settings

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            try:
                async with asyncio.timeout(60):
                    await self.tick()
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                self._metrics.failures.labels("administrators").inc()
                logger.error("administrators: %s: %s; trying again", type(error).__name__, error)
            except Exception:
                self._metrics.failures.labels("administrators").inc()
                logger.exception("administrators: fault in the Brain; trying again")
            await asyncio.sleep(self._settings.tick_seconds)

    async def stop(self) -> None:
        """Let running plans end, for a moment, and give the jobs back."""
        busy = [each.busy for each in self._jobs.values() if each.busy is not None]
        if busy:
            _, late = await asyncio.wait(busy, timeout=3)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        with suppress(SQLAlchemyError, OSError):
            async with asyncio.timeout(3), self._database.write() as session:
                await Leases(self._database, session).release(self._holder)

    async def tick(self) -> None:
        """Look at every job once and start planning those that are due."""
        now = self._clock()
        await self._claim(now)
        async with self._database.read() as session:
            held = await Jobs(self._database, session).held_by(self._holder)
            rows = [row for row in held if row.uid in self._held]
            for row in rows:
                administrator = self._jobs.setdefault(row.uid, _Administrator())
                known = administrator.plan
                if row.current_plan is not None and (
                    known is None or known.number != row.current_plan
                ):
                    plan = await Plans(session).get(row.uid, row.current_plan)
                    content = PlanContent.model_validate_json(plan.content)
                    administrator.plan = _PlanInForce(
                        plan.number,
                        plan.created_seconds,
                        Role.PS in content.roles and plan.stage != Stage.CREATE,
                    )
        for uid in set(self._jobs) - {row.uid for row in rows}:
            if self._jobs[uid].busy is None:
                del self._jobs[uid]  # finished, lost, or administered by another Brain
        for row in rows:
            self._look(row, self._jobs[row.uid], now)

    async def _claim(self, now: float) -> None:
        if now - self._claimed_seconds < min(self._settings.lease_seconds / 3, 5.0):
            # A job that was registered a moment ago is not held yet; its first plan does not need
            # an administrator, and the next claim takes it.
            return
        async with self._database.write() as session:
            await Jobs(self._database, session).lose(now - self._settings.lost_after_seconds)
            leases = Leases(self._database, session)
            await leases.retire()
            claimed = await leases.claim(
                self._holder, now, self._settings.lease_seconds, _MOST_MOVED
            )
        self._held = claimed.held
        self._claimed_seconds = float("-inf") if claimed.more else now

    def _look(self, row: LiveJob, administrator: _Administrator, now: float) -> None:
        if administrator.busy is not None:
            return
        plan = administrator.plan if row.current_plan is not None else None
        observed = Observed(
            optimize=Optimize(row.optimize),
            plan=row.current_plan,
            planned_seconds=plan.created_seconds if plan else None,
            changed_servers=plan.changed_servers if plan else False,
            step=row.step,
            sampled_seconds=row.sampled_seconds,
            out_of_memory_seconds=row.out_of_memory_seconds,
            symptoms=tuple(Trigger(name) for name in row.symptoms.split(",") if name),
        )
        administrator.memory, trigger = decide(administrator.memory, observed, now, self._settings)
        if trigger is not None:
            task = asyncio.create_task(self._plan(row.uid, trigger), name=f"plan-{row.uid}")
            administrator.busy = task
            task.add_done_callback(lambda _: setattr(administrator, "busy", None))

    async def _plan(self, uid: str, trigger: Trigger) -> None:
        async with self._slots:
            try:
                await self._planner.plan(uid, trigger)
            except JobNotFoundError:
                logger.info("job %s was deleted while it was planned", uid)
            except (SQLAlchemyError, OSError) as error:
                self._metrics.failures.labels("administrators").inc()
                logger.error("job %s could not be planned (%s): %s", uid, trigger, error)
            except Exception:
                self._metrics.failures.labels("administrators").inc()
                logger.exception(
                    "job %s could not be planned (%s): fault in the Brain", uid, trigger
                )
