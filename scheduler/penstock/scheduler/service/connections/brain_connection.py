"""What the planner has from the Brain, and what it gives it: queue signals, and read models.

Signals are read for the jobs that may have data workers, a few at a time, and within one interval
at most: a Brain that is slow or away delays nothing but the allocation, and its absence is counted
and logged once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from pydantic import ValidationError

from penstock.base.enums import Role
from penstock.client import AsyncBrainClient, BrainError
from penstock.client.errors import NotFoundError
from penstock.scheduler.capacity.wire import written
from penstock.scheduler.capacity.workload import Workload
from penstock.scheduler.fragmentation import fragmentation, of_cluster, stranded_accelerators
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.model.decisions import Record
from penstock.scheduler.model.signals import QueueSignals, signals
from penstock.scheduler.request import WHOLE_DEVICE_MILLI
from penstock.scheduler.service.metrics import Metrics
from penstock.scheduler.stage_tuning import MeasuredStage
from penstock.scheduler.tuning import Predicted
from penstock.wire import Allocation, ClusterSnapshot, InputView, Node, SampleView
from penstock.wire.cluster import MAX_ALLOCATIONS, MAX_NODES

logger = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Jobs whose samples are read at the same time."""

STALE_SECONDS: Final = 120.0
"""A job that measures says something new every quarter of a minute."""

REACH_SECONDS: Final = 180.0
"""How old the newest sample may be; clocks of trainers may differ by some of it."""


DESCRIPTION_SECONDS: Final = 600.0
"""How long what a job is registered with counts: a training's length seldom changes."""


class BrainConnection:
    """Reads signals and pushes snapshots; complains once, until it works again."""

    def __init__(
        self,
        client: AsyncBrainClient,
        metrics: Metrics,
        renew: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`renew`: brings the client's token up to date; called before each round of calls."""
        self._client = client
        self._metrics = metrics
        self._renew = renew
        self._complained = False
        self._lengths: dict[str, tuple[float, int | None]] = {}  # when it was asked for, and steps

    async def read(self, uids: Iterable[str], now: float, within: float) -> dict[str, QueueSignals]:
        """The newest signals of each job, as far as they could be read in time."""
        if self._renew is not None:
            await self._renew()
        found: dict[str, QueueSignals] = {}
        uids = list(uids)
        self._lengths = {uid: self._lengths[uid] for uid in uids if uid in self._lengths}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(uid: str) -> None:
            async with slots:
                try:
                    sample = await self._newest(uid, now)
                    known = await self._input(uid) if sample is not None else None
                    length = await self._length(uid, now) if sample is not None else None
                except NotFoundError:
                    return  # its trainer has not registered it yet
                except BrainError as error:
                    self._failed("Signals", error)
                    return
            said = read_sample(sample, known, length) if sample is not None else None
            if said is not None:
                found[uid] = said
            self._complained = False

        try:
            async with asyncio.timeout(within), asyncio.TaskGroup() as group:
                for uid in uids:
                    group.create_task(one(uid))
        except TimeoutError:
            self._metrics.call_errors.labels("Signals", "Timeout").inc()
            logger.warning("not all jobs' reports were read within %.0f s", within)
        return found

    async def _newest(self, uid: str, now: float) -> SampleView | None:
        newest = None
        async for sample in self._client.samples(uid, start=now - REACH_SECONDS):
            newest = sample
        return newest

    async def _input(self, uid: str) -> InputView | None:
        """What a model of the job says; None where nothing was measured, or it cannot be had."""
        try:
            return await self._client.job_input(uid)
        except NotFoundError:
            return None
        except BrainError as error:  # what the job itself reports is worth more
            self._failed("Input", error)
            return None

    async def _length(self, uid: str, now: float) -> int | None:
        """Steps of the whole training; None where that is not known, or cannot be had."""
        asked, steps = self._lengths.get(uid, (-math.inf, None))
        if now - asked < DESCRIPTION_SECONDS:
            return steps
        try:
            steps = (await self._client.job(uid)).total_steps
        except NotFoundError:
            steps = None
        except BrainError as error:  # it is expected to run as long again as it has run
            self._failed("Job", error)
        self._lengths[uid] = now, steps
        return steps

    async def push(self, snapshot: ClusterSnapshot) -> bool:
        """Hand over the read models; whether they arrived."""
        if self._renew is not None:
            await self._renew()
        try:
            await self._client.put_snapshot(snapshot)
        except BrainError as error:
            self._failed("Snapshot", error)
            return False
        self._complained = False
        return True

    async def push_workload(self, workload: Workload, now: float, placement: str) -> bool:
        """Hand over which pods are on which nodes, and which wait; whether that arrived.

        A Brain of an older release has no such path, which is no fault. What the wire cannot carry
        (a pod with hundreds of tolerations) is said, and ends nothing.
        """
        if self._renew is not None:
            await self._renew()
        try:
            sent = await asyncio.to_thread(written, workload, now, placement)
            await self._client.put_workload(sent)
        except NotFoundError:
            return False
        except (BrainError, ValidationError) as error:
            self._failed("Workload", error)
            return False
        self._complained = False
        return True

    def _failed(self, what: str, error: Exception) -> None:
        self._metrics.call_errors.labels(what, type(error).__name__).inc()
        if not self._complained:
            self._complained = True
            logger.warning("the Brain: %s", error)


def read_sample(
    sample: SampleView, known: InputView | None = None, total_steps: int | None = None
) -> QueueSignals | None:
    """The signals of one sample, what a model of the job says, and how long the job is."""
    queue, workers = sample.queue, sample.roles.get(Role.WORKER)
    return signals(
        time_seconds=sample.time,
        step=sample.step,
        steps_per_second=sample.steps_per_second,
        enqueued=None if queue is None else queue.enqueued_per_second,
        dequeued=None if queue is None else queue.dequeued_per_second,
        ideal=None if queue is None else queue.ideal_per_second,
        wait_share=None if workers is None else workers.wait_share,
        received_bytes=None if queue is None else queue.received_bytes_per_second,
        predicted=None if known is None else read_input(known, sample.time),
        stages=[
            MeasuredStage(one.made_per_second, one.busy_share)
            for one in (queue.stages if queue is not None else None) or ()
        ],
        training_cores_used=0.0 if workers is None else workers.hottest_cpu_cores,
        total_steps=total_steps,
    )


def read_input(known: InputView, now: float) -> Predicted | None:
    """What the model says, unless it rests on what was measured long before a sample."""
    if now - known.time > STALE_SECONDS:
        return None
    decision = known.decision
    return Predicted(
        data_workers=decision.data_workers,
        cores=decision.cores,
        throughput=decision.promised / decision.without if decision.without > 0 else 1.0,
        waits_for_storage=decision.waits_for_storage,
        why=decision.why,
    )


def snapshot_of(state: ClusterState, now: float, records: Sequence[Record]) -> ClusterSnapshot:
    """The read models: at most `MAX_NODES` nodes, those that strand most, and the decisions."""
    columns = state.snapshot.columns
    rows = columns.rows()
    ratio = fragmentation(columns, rows)
    stranded = stranded_accelerators(columns, rows)
    order = sorted(
        range(len(rows)),
        key=lambda index: (-stranded[index], -abs(ratio[index]), columns.names[rows[index]]),
    )
    cluster = of_cluster(columns)
    nodes = []
    for index in order[:MAX_NODES]:
        row = int(rows[index])
        total = int(columns.total_accelerator_milli[row])
        kinds = state.snapshot.nodes[columns.names[row]].allocatable.accelerators
        nodes.append(
            Node(
                name=columns.names[row],
                milli_cpu=int(columns.total_milli_cpu[row]),
                free_milli_cpu=max(0, int(columns.free_milli_cpu[row])),
                memory_bytes=int(columns.total_memory_bytes[row]),
                free_memory_bytes=max(0, int(columns.free_memory_bytes[row])),
                accelerators=total / WHOLE_DEVICE_MILLI,
                free_accelerators=int(columns.free_accelerator_milli[row]) / WHOLE_DEVICE_MILLI,
                accelerator=kinds[0][0] if kinds else "",
                fragmentation=float(ratio[index]) if total else 0.0,  # it strands nothing
                cordoned=not bool(columns.schedulable[row]),
            )
        )
    return ClusterSnapshot(
        time=now,
        stranded_gpus=cluster.stranded_accelerators,
        stranded_cpu_cores=cluster.stranded_cpu_cores,
        nodes=nodes,
        allocations=[allocation_of(record) for record in records[:MAX_ALLOCATIONS]],
    )


def record_id(record: Record) -> str:
    """What names a decision on the wire, so that it is stored once however often it is sent."""
    return record.key[:128]


def allocation_of(record: Record) -> Allocation:
    """A decision on the wire."""
    return Allocation(
        id=record_id(record),
        time=record.time_seconds,
        job_uid=(record.job_uid or record.key)[:64],
        job=record.job,
        namespace=record.namespace,
        pod="" if record.view is None else record.view.name,
        node=record.node,
        policy=record.policy,
        reason=record.reason,
        message=record.message[:1024],
        runner_up=record.runner_up,
        figures=dict(record.figures),
    )
