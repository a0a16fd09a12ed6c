"""The stages before those of a data worker: it is a consumer of the data workers that run them.

GoldMiner (SIGMOD 2023, 3.3): workers of stage k+1 are to those of stage k what the training is to
them, with the same queue, credits and frames. What is asked of a relay is asked of them as soon as
it comes; their batches come back in that order. Nothing depends on them: a step that nobody has is
made here from its indices. Nor does anything depend on a relay: the ledger is the training's, and
what dies with a relay is asked of others.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import BadSampleError
from penstock.data.pipeline import AnyPipeline, PackedPipeline, Pipeline
from penstock.data.protocol import ConsumerEntry
from penstock.data.queue.batch_queue import BatchQueue, QueueOptions
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.window.reorder_buffer import ReorderBuffer

MAKE_SECONDS: Final = 300.0
"""A data worker that has one step for longer is taken for hung."""
KEPT_PIPELINES: Final = 16
KEPT_BYTES: Final = 512 << 20
"""Of pipelines for the stage before; without its pipeline a batch is made here, all of it."""

_Key = tuple[ConsumerConnection, int]


class Relay:
    """See the module's docstring."""

    def __init__(self, token: str, host: str, *, share_memory: bool = True) -> None:
        """Raises OSError, DataError: it cannot listen."""
        self._consumer = Consumer(token=token, host=host, share_memory=share_memory)
        self._packed: dict[bytes, tuple[PackedPipeline, int]] = {}
        self._queues: dict[_Key, BatchQueue] = {}
        self._lock = threading.Lock()  # of the two

    @property
    def entry(self) -> ConsumerEntry:
        """Where data workers of the stage before find it."""
        consumer = self._consumer
        return ConsumerEntry(name=consumer.name, address=consumer.address, local=consumer.local)

    @property
    def relayed(self) -> int:
        """Batches that came from the stage before."""
        return self._consumer.counts.arrived

    def note(self, packed: PackedPipeline, opened: AnyPipeline) -> None:
        """A pipeline was opened here: if it has batched stages, the ones before go elsewhere."""
        if not isinstance(opened, Pipeline) or not opened.batched_stages:
            return
        with self._lock:
            self._packed[packed.digest] = replace(packed, weights=opened.weights), opened.boundary
            while len(self._packed) > KEPT_PIPELINES or self._held_bytes > KEPT_BYTES:
                del self._packed[next(iter(self._packed))]

    def feed(self, requests: Sequence[Request]) -> None:
        """Ask the stage before for what is asked of this one; in the thread that takes it in."""
        fed = set()
        for request in requests:
            if (queue := self._queue_of(request)) is None:
                continue
            with self._consumer.pool.makers.lock:
                window = queue.window
                assert isinstance(window, ReorderBuffer), "its dataset is indexed"
                request.ticket = queue, window.fed
                window.feed(request.indices)
            fed.add(queue)
        for queue in fed:
            self._request(queue)

    def take(self, request: Request) -> tuple[bool, Any]:
        """What has come for a request; False: nobody makes it, so make all of it here.

        Raises:
            BadSampleError: three data workers died while they made it.
        """
        if request.ticket is None:
            return False, None
        queue, step = request.ticket
        pool = self._consumer.pool
        if queue.window.position != step:  # requests before it were taken back
            if self._queues.get((request.line, request.stream)) is queue:
                self.drop(request.line, request.stream)
            return False, None
        try:
            need, batch = queue.take(
                lambda: pool.drop_overdue(queue, MAKE_SECONDS), keep_workers=lambda: False
            )
        except BadSampleError:
            queue.window.skip()
            raise
        if need is not None:
            queue.made_here()
            return False, None
        self._request(queue)
        return True, batch.batch

    def drop(self, line: ConsumerConnection, stream: int) -> None:
        """Nothing more is wanted of a stream."""
        with self._lock:
            queue = self._queues.pop((line, stream), None)
        if queue is None:
            return
        self._consumer.pool.close(queue.number)
        makers = self._consumer.pool.makers
        with makers.lock:  # whoever waits for one of its steps makes that here
            for name in makers.links:
                queue.window.gone(name, crashed=False)
            makers.lock.notify_all()

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""
        for one, stream in list(self._queues):
            if one is line:
                self.drop(line, stream)

    def close(self) -> None:
        """Say goodbye to the stage before."""
        self._consumer.close()

    @property
    def _held_bytes(self) -> int:
        return sum(len(packed.blob) for packed, _ in self._packed.values())

    def _request(self, queue: BatchQueue) -> None:
        makers = self._consumer.pool.makers
        with makers.lock:
            if queue.number in makers.queues:  # else it was dropped
                makers.request(queue)

    def _queue_of(self, request: Request) -> BatchQueue | None:
        """The queue that a request's stream has here; None: its batches are made from indices."""
        with self._lock:
            found = self._packed.get(request.digest)
            queue = self._queues.get((request.line, request.stream))
        if found is None or request.until is not None:
            return None
        if queue is not None and queue.seed == request.seed and queue.packed is found[0]:
            return queue
        self.drop(request.line, request.stream)
        packed, boundary = found
        told = QueueOptions(key=b"", seed=request.seed, packed=packed, until=boundary)
        queue = self._consumer.pool.open(told)
        with self._lock:
            self._queues[request.line, request.stream] = queue
        return queue
