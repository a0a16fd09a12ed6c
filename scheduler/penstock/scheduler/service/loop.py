"""The planner at work: watches feed the state, passes plan, and a carrier carries out.

One event loop and no threads. Nothing is decided here. Passes begin only once complete lists of
nodes, pods and jobs have been read: on part of them, a full node would look free.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.crds.group import ELASTICJOB_PLURAL
from penstock.kube.api import Api, Json, Page
from penstock.kube.errors import ApiError, ApiRefusedError
from penstock.kube.watch import Watch
from penstock.scheduler.capacity.workload import workload_of
from penstock.scheduler.devices import read_devices
from penstock.scheduler.model.decisions import (
    Action,
    DeletePod,
    Pin,
    Plan,
    Record,
    SetDeletionCost,
    WriteScale,
)
from penstock.scheduler.planner.planner import Planner, Settings
from penstock.scheduler.service.connections.action_executor import ActionExecutor
from penstock.scheduler.service.connections.brain_connection import (
    BrainConnection,
    record_id,
    snapshot_of,
)
from penstock.scheduler.service.connections.events import Events
from penstock.scheduler.service.metrics import Metrics

logger = logging.getLogger(__name__)

COALESCE_SECONDS: Final = 0.02
"""Pods seldom come alone: those of a burst are placed in one pass."""

LONGEST_PAUSE_SECONDS: Final = 15.0
"""A pass is made this often, even if nothing happens."""

DEVICES_SECONDS: Final = 30.0
"""How often the devices are read that claims hand out: the load of a cluster, not of a watch."""

NO_DEVICES_SECONDS: Final = 600.0
"""How often it is looked whether the cluster has such devices by now."""

WORKLOAD_SECONDS: Final = 30.0
"""How often it is told which pods are on which nodes: what-ifs may be that old."""

_NOT_FOUND: Final = 404

MOST_RECORDS: Final = 5000
"""Decisions kept for the next push; beyond, the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Attributes:
        settings: what decisions rest on.
        interval_seconds: how often data workers are allocated.
        push_seconds: how often the read models are pushed.
        identity: what tells this replica from others, in Events and in the Lease.
    """

    settings: Settings = field(default_factory=Settings)
    interval_seconds: float = 30.0
    push_seconds: float = 10.0
    identity: str = "penstock-scheduler"


class Loop:
    """One replica while it leads.

    Args:
        api: the API server.
        brain: the Brain; None: gated pods are placed, and nothing is allocated.
        clock: the present time, in seconds since 1970.
    """

    def __init__(
        self,
        api: Api,
        brain: BrainConnection | None,
        options: Options,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
        random_source: random.Random | None = None,
    ) -> None:
        self._api = api
        self._brain = brain
        self._options = options
        self.metrics = metrics
        self._clock = clock
        self._random = random_source or random.Random()  # noqa: S311  jitter, no secret
        self.planner = Planner(options.settings)
        self._carrier = ActionExecutor(api, metrics, clock, self._failed)
        self._events = Events(api, metrics, options.identity)
        self._records: deque[Record] = deque(maxlen=MOST_RECORDS)
        self._wake = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        watches = [self._nodes(), self._pods(), self._jobs()]
        try:
            async with asyncio.TaskGroup() as group:
                for watch in watches:
                    group.create_task(watch.run())
                for watch in watches:
                    await watch.synced.wait()
                self.metrics.show(self.planner.state)
                self.synced.set()
                logger.info("watching %d nodes", len(self.planner.state.snapshot.nodes))
                group.create_task(self._place_forever(), name="place")
                group.create_task(self._allocate_forever(), name="allocate")
                group.create_task(self._read_devices_forever(), name="devices")
                group.create_task(self._events.run(), name="events")
                if self._brain is not None:
                    group.create_task(self._push_forever(self._brain), name="push")
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    # Observing

    def _watch(
        self,
        resource: str,
        *,
        replace: Callable[[list[Json]], None],
        put: Callable[[Json], None],
        remove: Callable[[Json], None],
        wakes: bool = True,
    ) -> Watch:
        def take_all(page: Page) -> None:
            replace(page.items)
            if wakes:
                self._wake.set()

        def take(kind: str, found: Json) -> None:
            if kind == "BOOKMARK":
                return
            (remove if kind == "DELETED" else put)(found)
            if wakes:
                self._wake.set()

        return Watch(
            self._api,
            resource,
            replace=take_all,
            take=take,
            restarted=lambda cause: self.metrics.watch_restarts.labels(resource, cause).inc(),
            random_source=self._random,
        )

    def _nodes(self) -> Watch:
        state = self.planner.state
        return self._watch(
            "nodes",
            replace=state.replace_nodes,
            put=state.put_node,
            remove=lambda found: state.remove_node(found["metadata"]["name"]),
        )

    def _pods(self) -> Watch:
        state = self.planner.state
        return self._watch(
            "pods",
            replace=lambda items: state.replace_pods(items, self._clock()),
            put=lambda found: state.put_pod(found, self._clock()),
            remove=lambda found: state.remove_pod(found["metadata"]["uid"]),
        )

    def _jobs(self) -> Watch:
        state = self.planner.state
        return self._watch(
            ELASTICJOB_PLURAL,
            replace=state.replace_jobs,
            put=state.put_job,
            remove=lambda found: state.remove_job(found["metadata"]["uid"]),
            wakes=False,
        )

    async def _read_devices_forever(self) -> None:
        """Dynamic Resource Allocation, where the cluster has it: Kubernetes 1.34 or newer."""
        while True:
            pause = DEVICES_SECONDS
            try:
                slices, claims = await asyncio.gather(
                    self._api.list("resourceslices", None), self._api.list("resourceclaims", None)
                )
                self.planner.state.replace_devices(read_devices(slices.items, claims.items))
                self._wake.set()
            except ApiError as error:
                if isinstance(error, ApiRefusedError) and error.code == _NOT_FOUND:
                    pause = NO_DEVICES_SECONDS
                else:
                    self.metrics.call_errors.labels("Devices", error.reason).inc()
            except (KeyError, TypeError, AttributeError):
                logger.exception("the devices of the cluster cannot be read")
                pause = NO_DEVICES_SECONDS
            await asyncio.sleep(pause)

    # Placing

    async def _place_forever(self) -> None:
        due: float | None = None
        while True:
            pause = LONGEST_PAUSE_SECONDS
            if due is not None:
                pause = min(pause, max(0.0, due - self._clock()))
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
                await asyncio.sleep(COALESCE_SECONDS)
            except TimeoutError:
                pass
            self._wake.clear()
            begun = time.perf_counter()
            plan = self.planner.place(self._clock())
            self.metrics.plan_seconds.observe(time.perf_counter() - begun)
            due = plan.look_again_seconds
            self._carry_out(plan)

    def _carry_out(self, plan: Plan) -> None:
        for record in plan.records:
            self.metrics.decisions.labels(record.policy, record.reason).inc()
            self._records.append(record)
            self._events.tell(record)
        asked = [one for one in plan.actions if isinstance(one, SetDeletionCost | WriteScale)]
        if asked:
            self._start(self._ask(asked))
        for action in plan.actions:
            if isinstance(action, Pin):
                self._start(self._carrier.pin(action))
            elif isinstance(action, DeletePod):
                self._start(self._carrier.delete(action))

    async def _ask(self, actions: list[SetDeletionCost | WriteScale]) -> None:
        """Costs before Scales: the controller looks at costs when a Scale takes pods away."""
        costs = [one for one in actions if isinstance(one, SetDeletionCost)]
        await asyncio.gather(*(self._carrier.set_cost(one) for one in costs))
        scales = [one for one in actions if isinstance(one, WriteScale)]
        await asyncio.gather(*(self._carrier.write_scale(one) for one in scales))

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._called)

    def _called(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("fault in the scheduler", exc_info=error)
            self.metrics.call_errors.labels("Fault", type(error).__name__).inc()

    def _failed(self, action: Action) -> None:
        if isinstance(action, Pin):
            self.planner.pinner.failed(action.view.uid)
        elif isinstance(action, DeletePod):
            self.planner.pinner.not_deleted(action.view.uid)
        self._wake.set()

    # Allocating

    async def _allocate_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.interval_seconds)
            if self._brain is None:
                continue
            begun = time.perf_counter()
            jobs = self.planner.state.jobs
            uids = [uid for uid, job in jobs.items() if not job.hands_off]
            within = self._options.interval_seconds
            found = await self._brain.read(uids, self._clock(), within) if uids else {}
            plan, outcome = self.planner.allocate(self._clock(), found)
            self.metrics.interval_seconds.observe(time.perf_counter() - begun)
            for uid, why in outcome.left_alone.items():
                logger.debug("%s is left alone: %s", uid, why)
            for action in plan.actions:
                if isinstance(action, WriteScale):
                    logger.info("%s/%s: %s", action.namespace, action.job, action.message)
            self._carry_out(plan)
            self._wake.set()

    # Showing

    async def _push_forever(self, brain: BrainConnection) -> None:
        pushed = float("-inf")
        while True:
            records = list(self._records)
            snapshot = snapshot_of(self.planner.state, self._clock(), records)
            if await brain.push(snapshot):
                sent = {one.id for one in snapshot.allocations}
                while self._records and record_id(self._records[0]) in sent:
                    self._records.popleft()
            if (now := self._clock()) - pushed >= WORKLOAD_SECONDS or now < pushed:
                known = workload_of(self.planner.state)
                if await brain.push_workload(known, now, self._options.settings.placement):
                    pushed = now
            await asyncio.sleep(self._options.push_seconds)
