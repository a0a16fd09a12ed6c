"""Who is in a job's data plane: training processes that take batches, workers that make them.

The dispatcher introduces them to each other and knows how each is doing; no batch, index or
pipeline passes through it. Which steps are leased to whom is in each training process (see
`penstock.data.window.reorder_buffer`), because only the process that trains knows what its model
has seen, and dies with it. So a dispatcher that is killed stops nothing but the joining of new
workers, and has nothing to recover: everybody reports again.

`Dispatcher` is pure; `routes` serves it over HTTP in the trainer, or under ``penstock run``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.data.call_guard import read_body
from penstock.data.protocol import (
    CONSUMER_PATH,
    MAX_BYTES,
    WORKER_PATH,
    ConsumerEntry,
    ConsumerReply,
    ConsumerReport,
    InputOptions,
    ProtocolError,
    QueueState,
    WorkerReply,
    WorkerReport,
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


class Dispatcher:
    """The participants of one job; whoever has not reported for FORGET_SECONDS is not in it."""

    def __init__(self, identity: str, options: Callable[[], InputOptions] = InputOptions) -> None:
        """``options``: what the job says of its input now."""
        self._identity = identity
        self._options = options
        self._damage: OrderedDict[str, ConsumerReport] = OrderedDict()
        self._last_rate = 0.0  # of whoever was the last to say goodbye
        self._taken = 0  # batches, by whoever has taken most when somebody last reported
        self._consumers: dict[str, _Seen] = {}
        self._workers: dict[str, _Seen] = {}

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
        return ConsumerReply(
            dispatcher=self._identity, workers=len(self._workers), options=self._options()
        )

    def worker(self, report: WorkerReport, now: float) -> WorkerReply:
        """A data worker reports, and is told whom to serve."""
        self.expire(now)
        if report.leaving:
            self._workers.pop(report.name, None)
        else:
            self._note(self._workers, MAX_WORKERS, "data workers", report, now)
        return WorkerReply(
            dispatcher=self._identity,
            consumers=tuple(
                ConsumerEntry(name=one.name, address=one.address, local=one.local)
                for one in self.consumers(now)
            ),
        )

    def expire(self, now: float) -> None:
        """Forget whoever has been silent for too long; every report does, so that its sender fits.

        Queries leave out the same participants without it.
        """
        for table in (self._consumers, self._workers):
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

    def damage(self) -> Damage:
        """What training processes, also those that are gone, went without."""
        reports = self._damage.values()
        return Damage(
            lost_steps=sum(one.lost for one in reports),
            samples_left_out=sum(one.left_out for one in reports),
            newest_left_out=[text for one in reports for text in one.newest_left_out][-8:],
        )

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
) -> list[Route]:
    """The two calls, for a Starlette application; ``guard`` checks the job's token."""
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    async def consumer(request: Request) -> Response:
        try:
            report = decode(ConsumerReport, await read_body(request, MAX_BYTES))
            reply = dispatcher.consumer(report, time.monotonic())
        except ProtocolError as error:
            return PlainTextResponse(str(error), 400)
        except DispatcherFullError as error:
            return PlainTextResponse(str(error), 409)
        return Response(encode(reply), media_type="application/msgpack")

    async def worker(request: Request) -> Response:
        try:
            report = decode(WorkerReport, await read_body(request, MAX_BYTES))
            reply = dispatcher.worker(report, time.monotonic())
        except ProtocolError as error:
            return PlainTextResponse(str(error), 400)
        except DispatcherFullError as error:
            return PlainTextResponse(str(error), 409)
        return Response(encode(reply), media_type="application/msgpack")

    return [
        Route(CONSUMER_PATH, guard(consumer), methods=["POST"]),
        Route(WORKER_PATH, guard(worker), methods=["POST"]),
    ]
