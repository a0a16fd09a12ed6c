"""Who is in a job's data plane: training processes that take batches, workers that make them.

The dispatcher introduces them to each other and knows how each is doing; no batch, index or
pipeline passes through it. Which steps are leased to whom is in each training process (see
`penstock.data.window.reorder_buffer`), because only the process that trains knows what its model
has seen, and dies with it. So a dispatcher that is killed stops nothing but the joining of new
workers, and has nothing to recover: everybody reports again.

Data workers of other jobs of the same share group are *guests*: they are told whom to serve as
well, and are counted in what the group does (`Dispatcher.group`), but they are none of the job's.

`Dispatcher` is pure; `routes` serves it over HTTP in the trainer, or under ``penstock run``. There
a data worker that says whom it knows already is answered when others are to be served, or after
`REPORT_SECONDS`, so that a training process that comes does not wait for the next report.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.data.call_guard import by_group, read_body
from penstock.data.protocol import (
    CONSUMER_PATH,
    MAX_BYTES,
    REPORT_SECONDS,
    WORKER_PATH,
    ConsumerEntry,
    ConsumerReply,
    ConsumerReport,
    InputOptions,
    ProtocolError,
    QueueState,
    SharedPosition,
    SharedTotals,
    WorkerReply,
    WorkerReport,
    consumers_digest,
    decode,
    encode,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

FORGET_SECONDS: Final = 10.0
MAX_CONSUMERS: Final = 1024
MAX_WORKERS: Final = 1024
MAX_FRONTS: Final = 64


class DispatcherFullError(Exception):
    """More participants than one job may have."""


@dataclass(slots=True)
class _Seen:
    report: ConsumerReport | WorkerReport
    at: float

    def is_recent(self, now: float) -> bool:
        """Whether the report is recent enough for its sender to be one of the job's."""
        return now - self.at <= FORGET_SECONDS


@dataclass(frozen=True, slots=True)
class Damage:
    """What did not reach the model, because the job's input options say that this may be."""

    lost_steps: int
    samples_left_out: int
    newest_left_out: list[str]


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a share group does, as the data workers that serve this job tell it.

    Attributes:
        name: the group's.
        members: loaders that share, of all jobs, as the data worker knows that has most.
        data_workers: of all jobs.
        own_data_workers: of this job.
        cpu_cores: that all data workers use.
        made: tiles, by all data workers that are there now.
        taken: tiles, by all members, of those.
        evicted: tiles that went before all had had them.
        held_bytes: of tiles that lie in data workers.
        lag_tiles: of the loader of this job that is furthest behind the group.
    """

    name: str
    members: int = 0
    data_workers: int = 0
    own_data_workers: int = 0
    cpu_cores: float = 0.0
    made: int = 0
    taken: int = 0
    evicted: int = 0
    held_bytes: int = 0
    lag_tiles: int = 0


class Dispatcher:
    """The participants of one job; whoever has not reported for FORGET_SECONDS is not in it."""

    def __init__(self, identity: str, options: Callable[[], InputOptions] = InputOptions) -> None:
        """``options``: what the job says of its input now."""
        self._identity = identity
        self.expected_workers = 0  # that are there, or soon will be
        self._options = options
        self._damage: OrderedDict[str, ConsumerReport] = OrderedDict()
        self._partition: dict[int, dict[str, ConsumerReport]] = {}  # by rank and name
        self._last_rate = 0.0  # of whoever was the last to say goodbye
        self._taken = 0  # batches, by whoever has taken most when somebody last reported
        self._consumers: dict[str, _Seen] = {}
        self._workers: dict[str, _Seen] = {}
        self._shared: OrderedDict[str, SharedTotals] = OrderedDict()
        self._guests: dict[str, _Seen] = {}  # and of these also what reports as its own

    def consumer(self, report: ConsumerReport, now: float) -> ConsumerReply:
        """A training process reports."""
        self.expire(now)
        if report.closed:
            self._consumers.pop(report.name, None)
            self._last_rate = report.queue.dequeued_per_second if report.queue else 0.0
        else:
            self._last_rate = 0.0
            self._note(self._consumers, MAX_CONSUMERS, "training processes", report, now)
        others = (one.taken for one in self.consumers(now))
        self._taken = max(report.taken, max(others, default=0))
        if report.lost or report.left_out:
            self._damage[report.name] = report
            while len(self._damage) > MAX_CONSUMERS:
                self._damage.popitem(last=False)
        if report.partition or report.rank in self._partition:
            self._note_partition(report)
        workers = len(self._workers.keys() | self._guests.keys())
        return ConsumerReply(
            dispatcher=self._identity,
            workers=max(self.expected_workers, workers),
            options=self._options(),
            fronts=self._fronts(report.name, now),
        )

    def _fronts(self, name: str, now: float) -> tuple[SharedPosition, ...]:
        """How far others are in each order that several have in common."""
        found: dict[str, SharedPosition] = {}
        for one in self.consumers(now):
            for position in one.positions if one.name != name else ():
                best = found.get(position.key)
                if best is None or (best.epoch, best.sample) < (position.epoch, position.sample):
                    found[position.key] = position
        return tuple(found.values())[:MAX_FRONTS]

    def worker(self, report: WorkerReport, now: float, *, guest: bool = False) -> WorkerReply:
        """A data worker reports, and is told whom to serve; ``guest``: by the group's token."""
        self.expire(now)
        table = self._guests if guest else self._workers
        if report.shared is not None:
            self._shared[report.name] = report.shared
            while len(self._shared) > MAX_WORKERS:
                self._shared.popitem(last=False)
        if report.leaving:
            table.pop(report.name, None)
        else:
            what = "data workers of other jobs" if guest else "data workers"
            self._note(table, MAX_WORKERS, what, report, now)
        return self.worker_reply(report, now, guest=guest)

    def worker_reply(self, report: WorkerReport, now: float, *, guest: bool = False) -> WorkerReply:
        """Whom a data worker is to serve now."""
        consumers = [
            ConsumerEntry(name=one.name, address=one.address, local=one.local)
            for one in self.consumers(now)
        ]
        if not report.stage and not guest:  # those of later stages take its batches as well
            consumers += [one.relay for one in self.workers(now) if one.relay is not None]
        return WorkerReply(
            dispatcher=self._identity,
            consumers=tuple(consumers),
            cache=self._options().cache,
        )

    def takes_part(self, name: str) -> bool:
        """Whether a training process of this name has reported, and not said goodbye."""
        return name in self._consumers

    def expire(self, now: float) -> None:
        """Forget whoever has been silent for too long; every report does, so that its sender fits.

        Queries leave out the same participants without it.
        """
        for table in (self._consumers, self._workers, self._guests):
            for name in [name for name, seen in table.items() if not seen.is_recent(now)]:
                del table[name]

    def consumers(self, now: float) -> list[ConsumerReport]:
        """The training processes that take batches now."""
        reports = (seen.report for seen in self._consumers.values() if seen.is_recent(now))
        return [report for report in reports if isinstance(report, ConsumerReport)]

    def workers(self, now: float) -> list[WorkerReport]:
        """The data workers that serve now."""
        reports = (seen.report for seen in self._workers.values() if seen.is_recent(now))
        return [report for report in reports if isinstance(report, WorkerReport)]

    def guests(self, now: float) -> list[WorkerReport]:
        """The data workers of other jobs of the share group that serve this one now."""
        own = {one.name for one in self.workers(now)}
        reports = (seen.report for seen in self._guests.values() if seen.is_recent(now))
        return [
            report
            for report in reports
            if isinstance(report, WorkerReport) and report.name not in own
        ]

    def group(self, now: float) -> GroupState | None:
        """What the job's share group does; None where it has none."""
        share = self._options().share
        if share is None:
            return None
        own = self.workers(now)
        workers = [*own, *self.guests(now)]
        shared = [one.shared for one in workers if one.shared is not None]
        lags = (one.lag_tiles for one in self.consumers(now))
        return GroupState(
            name=share.group,
            members=max((one.members for one in shared), default=0),
            data_workers=len(workers),
            own_data_workers=len(own),
            cpu_cores=sum(one.cpu_cores for one in workers),
            made=sum(one.made for one in shared),
            taken=sum(one.taken for one in shared),
            evicted=sum(one.evicted for one in shared),
            held_bytes=sum(one.held_bytes for one in shared),
            lag_tiles=max((lag for lag in lags if lag is not None), default=0),
        )

    def queue(self, now: float) -> QueueState | None:
        """All consumers' queues as one: rates add up, the waiting is that of whoever waits most.

        None when nobody takes batches.
        """
        queues = [one.queue for one in self.consumers(now) if one.queue is not None]
        if not queues:
            return None
        return QueueState(
            enqueued_per_second=sum(one.enqueued_per_second for one in queues),
            dequeued_per_second=sum(one.dequeued_per_second for one in queues),
            received_bytes_per_second=sum(one.received_bytes_per_second for one in queues),
            wait_share=max(one.wait_share for one in queues),
            ready=sum(one.ready for one in queues),
            limit=max(one.limit for one in queues),
        )

    def wait_shares(self, now: float) -> dict[int, float]:
        """How much of its time each worker's pod waits for data, by rank."""
        found: dict[int, float] = {}
        for one in self.consumers(now):
            if one.queue is not None:
                found[one.rank] = max(one.queue.wait_share, found.get(one.rank, 0.0))
        return found

    def batches_taken(self, now: float) -> int:
        """By the training process that has taken most; when all have gone, what that was."""
        return max((one.taken for one in self.consumers(now)), default=self._taken)

    def batches_per_second(self, now: float) -> float:
        """Of the training process that takes most: each takes one batch in a step.

        When the last has said goodbye, what that was: the program has come to its end.
        """
        queues = (one.queue for one in self.consumers(now) if one.queue is not None)
        return max((one.dequeued_per_second for one in queues), default=self._last_rate)

    @property
    def shared(self) -> SharedTotals:
        """What all data workers, also those that are gone, have made for jobs that share."""
        totals = list(self._shared.values())
        return SharedTotals(
            made=sum(one.made for one in totals),
            taken=sum(one.taken for one in totals),
            evicted=sum(one.evicted for one in totals),
            members=max((one.members for one in totals), default=0),
            held_bytes=sum(one.held_bytes for one in totals),
        )

    def damage(self) -> Damage:
        """What training processes, also those that are gone, went without."""
        reports = self._damage.values()
        return Damage(
            lost_steps=sum(one.lost for one in reports),
            samples_left_out=sum(one.left_out for one in reports),
            newest_left_out=[text for one in reports for text in one.newest_left_out][-8:],
        )

    def partition(self, now: float) -> list[ConsumerReport]:
        """Reports that say what of the steps is made elsewhere.

        Of those who take batches now; if none of them says so, of the last of each worker.
        """
        current = [one for one in self.consumers(now) if one.partition]
        return current or [one for told in self._partition.values() for one in told.values()]

    def _note_partition(self, report: ConsumerReport) -> None:
        """Keep it for when nobody is left to say so; whoever is gone gives way to its successor."""
        told = self._partition.pop(report.rank, {})
        told = {name: one for name, one in told.items() if name in self._consumers}
        if report.partition:
            told[report.name] = report
        if told:
            self._partition[report.rank] = told

    def _note(
        self,
        table: dict[str, _Seen],
        limit: int,
        what: str,
        report: ConsumerReport | WorkerReport,
        now: float,
    ) -> None:
        if report.name not in table and len(table) >= limit:
            raise DispatcherFullError(f"{len(table)} {what} report already; at most {limit} may")
        table[report.name] = _Seen(report, now)


def routes(
    dispatcher: Dispatcher,
    guard: Callable[
        [Callable[[Request], Awaitable[Response]]], Callable[[Request], Awaitable[Response]]
    ],
    group_guard: Callable[
        [Callable[[Request], Awaitable[Response]]], Callable[[Request], Awaitable[Response]]
    ]
    | None = None,
) -> list[Route]:
    """The two calls, for a Starlette application; ``guard`` checks the job's token.

    ``group_guard``: for the call of data workers, if those of a share group may make it as well.
    """
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    news = asyncio.Event()  # somebody else is to be served

    def wake() -> None:
        news.set()
        news.clear()

    async def consumer(request: Request) -> Response:
        try:
            report = decode(ConsumerReport, await read_body(request, MAX_BYTES))
            known = dispatcher.takes_part(report.name)
            reply = dispatcher.consumer(report, time.monotonic())
            if known != dispatcher.takes_part(report.name):
                wake()
        except ProtocolError as error:
            return PlainTextResponse(str(error), 400)
        except DispatcherFullError as error:
            return PlainTextResponse(str(error), 409)
        return Response(encode(reply), media_type="application/msgpack")

    async def worker(request: Request) -> Response:
        try:
            report = decode(WorkerReport, await read_body(request, MAX_BYTES))
            guest = by_group(request)
            reply = dispatcher.worker(report, time.monotonic(), guest=guest)
            if report.relay is not None and (report.leaving or "known" not in request.query_params):
                wake()
            known, until = request.query_params.get("known"), time.monotonic() + REPORT_SECONDS
            while known == consumers_digest(reply.consumers) and not report.leaving:
                try:
                    async with asyncio.timeout(until - time.monotonic()):
                        await news.wait()
                except TimeoutError:
                    break
                reply = dispatcher.worker_reply(report, time.monotonic(), guest=guest)
        except ProtocolError as error:
            return PlainTextResponse(str(error), 400)
        except DispatcherFullError as error:
            return PlainTextResponse(str(error), 409)
        return Response(encode(reply), media_type="application/msgpack")

    return [
        Route(CONSUMER_PATH, guard(consumer), methods=["POST"]),
        Route(WORKER_PATH, (group_guard or guard)(worker), methods=["POST"]),
    ]
