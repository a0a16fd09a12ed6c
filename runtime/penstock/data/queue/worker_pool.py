"""The program's side of the data plane: its streams, and what is asked for them.

A pool without makers is a pool like any other, and what a stream has outside a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Final

from penstock.data.memory import MemoryMeter
from penstock.data.pipeline import PackedPipeline
from penstock.data.queue.batch_queue import BatchQueue, Counts, QueueOptions
from penstock.data.queue.makers import Makers
from penstock.data.window.free_window import FreeWindow

logger = logging.getLogger(__name__)

END_SECONDS: Final = 2.0


class WorkerPool:
    """See the module's docstring."""

    def __init__(self, meter: MemoryMeter | None = None) -> None:
        self.makers = Makers(meter)
        self._next_queue = 0
        self._abandoned: deque[int] = deque()  # numbers of queues; appended to by finalizers

    @property
    def counts(self) -> Counts:
        """What went through all queues."""
        return self.makers.counts

    @property
    def workers(self) -> list[str]:
        """The data workers that are connected."""
        with self.makers.lock:
            return sorted(name for name, link in self.makers.links.items() if not link.local)

    @property
    def local_workers(self) -> int:
        """Local workers that make batches now."""
        with self.makers.lock:
            return sum(link.local for link in self.makers.links.values())

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return sum(queue.window.ready for queue in list(self.makers.queues.values()))

    @property
    def limit(self) -> str:
        """What keeps more data workers from being of use, if anything does."""
        limits = {str(queue.bound.limit) for queue in list(self.makers.queues.values())}
        return max(limits, default="")

    def end(self) -> None:
        """Say goodbye to everybody, and wait for the threads that received from them.

        When the interpreter ends, a thread that still has a tensor would end the process with it.
        """
        makers = self.makers
        with makers.lock:
            makers.closing = True
            for link in makers.links.values():
                link.end()
            makers.lock.notify_all()
        deadline = time.monotonic() + END_SECONDS
        for thread in list(makers.threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        with makers.lock:
            makers.shared.close()
            makers.pinned.trim()

    def forget_in_child(self) -> None:
        """In a process that was forked: its sockets and its memory are the parent's alone."""
        for link in self.makers.links.values():
            link.forget_in_child()
        self.makers.shared.forget_in_child()
        self.makers.pinned.forget_in_child()

    def open(self, options: QueueOptions) -> BatchQueue:
        """The queue of a stream: to be fed, and then requested for."""
        makers = self.makers
        with makers.lock:
            self.sweep()
            self._next_queue += 1
            queue = BatchQueue(makers.lock, makers.counts, self._next_queue, options)
            makers.queues[queue.number] = queue
        return queue

    def close(self, number: int) -> None:
        """Nothing more is wanted of the stream whose queue has that number."""
        makers = self.makers
        with makers.lock:
            if (queue := makers.queues.pop(number, None)) is None:
                return
            for link in makers.links.values():
                remembered = queue.streams or queue.free or queue.affinity
                if remembered or queue.window.unmade_by(link.name):
                    link.drop(number)
            if not makers.queues:
                makers.shared.trim()
                makers.pinned.trim()
            for link in makers.links.values():
                link.blocks.unmap_dropped()

    def abandon(self, number: int) -> None:
        """`close` for a finalizer, which may run in any thread in the middle of anything."""
        self._abandoned.append(number)

    def sweep(self) -> None:
        """End the streams that the program has forgotten."""
        with self.makers.lock:
            while self._abandoned:
                self.close(self._abandoned.popleft())

    def request(self, queue: BatchQueue) -> None:
        """The program has made room: ask for what there is room for."""
        with self.makers.lock:
            self.makers.request(queue)

    def awaits_workers(self, queue: BatchQueue) -> bool:
        """Whether a data worker is on its way that streams are kept for."""
        with self.makers.lock:
            return self.makers.awaits(queue)

    def serves(self, queue: BatchQueue) -> bool:
        """Whether a data worker can be asked for batches of a queue now.

        One that opens its pipeline cannot: to load what a program uses takes seconds.
        """
        digest = queue.digest_for(local=False)
        with self.makers.lock:
            links = [link for link in self.makers.links.values() if not link.local]
            return any(link.usable(digest) for link in links)

    def provide(self, queue: BatchQueue, packed: PackedPipeline | None) -> None:
        """The pipeline of a queue is packed, for data workers; None: it cannot be sent."""
        with self.makers.lock:
            queue.packed, queue.wants_packed, queue.portable = packed, False, packed is not None
            self.makers.request(queue)

    def replace(self, queue: BatchQueue, packed: PackedPipeline | None) -> None:
        """`provide` another in the place of one that they have: what is not begun is given back."""
        makers = self.makers
        with makers.lock:
            for link in makers.links.values():
                if not link.local and queue.window.unmade_by(link.name):
                    link.drop(queue.number)
            self.provide(queue, packed)

    def pass_over(self, queue: BatchQueue, seconds: float) -> None:
        """Ask others for what was asked, so long ago, of data workers that stand still.

        What one of them brings when it goes on is a batch that nobody waits for any more.
        """
        makers, window = self.makers, queue.window
        assert isinstance(window, FreeWindow), "of a loader that shares"
        with makers.lock:
            overdue = window.overdue(time.monotonic() - seconds)
            for holder in {holder for holder, _ in overdue}:
                link = makers.links.get(holder)
                if link is not None and not link.dead and link.stands_still():
                    logger.warning("data worker %s stands still: others are asked", holder)
                    link.passed_over = True
                    window.gone(holder, crashed=False)

    def drop_overdue(self, queue: BatchQueue, limit_seconds: float) -> None:
        """End the connection to whoever has had a step for too long: the user's code hangs."""
        makers = self.makers
        with makers.lock:
            for holder, step in queue.window.overdue(time.monotonic() - limit_seconds):
                link = makers.links.get(holder)
                if link is not None and not link.dead and not link.local:
                    logger.error(
                        "data worker %s has not made step %d within %.0f s: dropped",
                        holder,
                        step,
                        limit_seconds,
                    )
                    link.end()
