"""The data workers that are connected to a training process, and what each of them is asked for.

Has the one lock of the data plane in a training process: it guards the connections, the queues of
all streams and their windows. No call waits for long with it held.

Losing anybody is never an error here: what a data worker had not made goes to others, and without
any the program makes its batches itself. A pool without data workers is therefore a pool like any
other, and what a stream has outside a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any, Final

from penstock.data.pipeline import PackedPipeline
from penstock.data.queue.batch_queue import BatchQueue, Counts
from penstock.data.queue.credits import credits_of
from penstock.data.queue.reorder_buffer import Failure, ReorderBuffer
from penstock.data.queue.worker_connection import WorkerConnection

logger = logging.getLogger(__name__)

MAX_COMPLAINTS: Final = 1000


class WorkerPool:
    """See the module's docstring."""

    def __init__(self, credits_: int = 4) -> None:
        self.credits = credits_
        self.counts = Counts()
        self._lock = threading.Condition()
        self._links: dict[str, WorkerConnection] = {}
        self._queues: dict[int, BatchQueue] = {}
        self._next_queue = 0
        self._abandoned: deque[int] = deque()  # numbers of queues; appended to by finalizers
        self._complaints = _Complaints()
        self._closing = False

    @property
    def workers(self) -> list[str]:
        """The data workers that are connected."""
        with self._lock:
            return sorted(self._links)

    @property
    def ready(self) -> int:
        """Batches that wait for the program."""
        return sum(queue.window.ready for queue in list(self._queues.values()))

    def end(self) -> None:
        """Say goodbye to all data workers."""
        with self._lock:
            self._closing = True
            for link in self._links.values():
                link.end()
            self._lock.notify_all()

    # ------------------------------------------------------------------ streams

    def open(self, window: ReorderBuffer, packed: PackedPipeline, seed: int) -> BatchQueue:
        """The queue of a stream that wants batches: give it its number and begin."""
        with self._lock:
            self.sweep()
            self._next_queue += 1
            queue = BatchQueue(self._lock, self.counts, self._next_queue, packed, seed, window)
            self._queues[queue.number] = queue
            self._pump(queue)
        return queue

    def close(self, number: int) -> None:
        """Nothing more is wanted of the stream whose queue has that number."""
        with self._lock:
            if (queue := self._queues.pop(number, None)) is None:
                return
            for link in self._links.values():
                if queue.window.asked_of(link.name):
                    link.drop(number)

    def abandon(self, number: int) -> None:
        """`close` for a finalizer, which may run in any thread in the middle of anything."""
        self._abandoned.append(number)

    def sweep(self) -> None:
        """End the streams that the program has forgotten."""
        with self._lock:
            while self._abandoned:
                self.close(self._abandoned.popleft())

    def request(self, queue: BatchQueue) -> None:
        """The program has made room: ask for what there is room for."""
        with self._lock:
            self._pump(queue)

    def _pump(self, queue: BatchQueue) -> None:
        """Ask for what there is room for: lowest step first, of the one with the least to do.

        Nobody is asked before half of what was asked of it has been taken, and then for all of it
        in one message: several small ones would cost more than what they ask for.
        """
        digest = queue.packed.digest
        usable = []
        for link in self._links.values():
            if link.usable(digest):
                usable.append(link)
            elif digest not in link.pipelines:
                link.introduce(queue.packed, {one.packed.digest for one in self._queues.values()})
        if not usable:
            return
        seconds = [link.batch_seconds for link in usable if link.batch_seconds]
        fastest, window, size = min(seconds, default=0.0), queue.window, queue.batch_bytes
        rooms = []
        for link in usable:
            credits_ = credits_of(self.credits, link.batch_seconds, fastest, size)
            held = window.asked_of(link.name)
            if 2 * held <= credits_:
                rooms.append((link, held, credits_))
        now = time.monotonic()
        steps: dict[WorkerConnection, list[tuple[int, Any]]] = {}
        while rooms:
            link, held, credits_ = min(rooms, key=_fullness)
            if (asked := window.ask(link.name, now)) is None:
                break
            steps.setdefault(link, []).append(asked)
            rooms.remove((link, held, credits_))
            if held + 1 < credits_:
                rooms.append((link, held + 1, credits_))
        for link, wanted in steps.items():
            link.request(queue.number, digest, queue.seed, wanted, size)

    def drop_overdue(self, queue: BatchQueue, limit_seconds: float) -> None:
        """End the connection to whoever has had a step for too long: the user's code hangs."""
        with self._lock:
            for holder, step in queue.window.overdue(time.monotonic() - limit_seconds):
                if (link := self._links.get(holder)) is not None and not link.dead:
                    logger.error(
                        "data worker %s has not made step %d within %.0f s: dropped",
                        holder,
                        step,
                        limit_seconds,
                    )
                    link.end()

    # ------------------------------------------------------------------ data workers

    def __len__(self) -> int:
        return len(self._links)

    def join(self, link: WorkerConnection) -> None:
        """A data worker has connected: it is one to be asked."""
        with self._lock:
            if link.name in self._links:
                logger.warning(
                    "data worker %s connected twice: the newer connection counts", link.name
                )
                self._forget(link.name, "a newer connection took its place")
            self._links[link.name] = link
            for queue in self._queues.values():
                self._pump(queue)

    def leave(self, link: WorkerConnection, why: str) -> None:
        """A data worker's connection has ended: what it had not made goes to others."""
        with self._lock:
            if self._links.get(link.name) is link:
                self._forget(link.name, why)

    def _forget(self, name: str, why: str) -> None:
        link = self._links.pop(name)
        link.end()
        returned = 0
        for queue in self._queues.values():
            returned += queue.window.gone(name, crashed=not link.leaving)
        if link.leaving:
            logger.info("data worker %s left", name)
        elif not self._closing:
            logger.warning(
                "data worker %s is lost (%s); %d steps go to others", name, why, returned
            )
        for queue in self._queues.values():
            self._pump(queue)
        self._lock.notify_all()

    def arrived(
        self, link: WorkerConnection, number: int, step: int, batch: Any, size: int
    ) -> None:
        """A data worker has brought a batch of so many bytes."""
        with self._lock:
            self.counts.received_bytes += size
            queue = self._queues.get(number)
            if queue is None or not queue.window.arrived(link.name, step, batch):
                self.counts.duplicates += 1
                return
            self.counts.arrived += 1
            queue.note_size(size)
            if queue.window.position == step:
                self._lock.notify_all()

    def returned(self, link: WorkerConnection, number: int, step: int, block: int) -> None:
        """A data worker gives a step back unmade."""
        with self._lock:
            link.unused(block)
            if (queue := self._queues.get(number)) is not None:
                queue.window.given_back(link.name, step)
                self._pump(queue)
            self._lock.notify_all()

    def failed(
        self, link: WorkerConnection, number: int, step: int, block: int, message: str, trace: str
    ) -> None:
        """A data worker could not make a step."""
        with self._lock:
            link.unused(block)
            if (queue := self._queues.get(number)) is not None:
                self._complaints.add(link.name, f"could not make a batch: {message}")
                queue.window.failed(step, Failure(link.name, message, trace))
                self._pump(queue)
            self._lock.notify_all()

    def opened(self, link: WorkerConnection, digest: bytes, problem: str) -> None:
        """A data worker has opened a pipeline that it was sent, or says why it cannot."""
        with self._lock:
            if link.note_opened(digest, refused=bool(problem)):
                if problem:
                    text = f"cannot open the pipeline and is not used: {problem}"
                    self._complaints.add(link.name, text)
                for queue in self._queues.values():
                    self._pump(queue)
            self._lock.notify_all()


class _Complaints:
    """What was said of data workers, each but once and not without end."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def add(self, name: str, what: str) -> None:
        if (name, what) not in self._said and len(self._said) < MAX_COMPLAINTS:
            self._said.add((name, what))
            logger.warning("data worker %s %s", name, what)


def _fullness(room: tuple[WorkerConnection, int, int]) -> float:
    return room[1] / room[2]
