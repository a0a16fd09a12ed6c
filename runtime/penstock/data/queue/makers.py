"""Who makes batches for a training process, and what each of them is asked for.

These are data workers, and the local workers that the program's loaders asked for; both are asked
in proportion to their speed. Losing anybody is never an error here: what a maker had not made goes
to others, and without any the program makes its batches itself.

Has the one lock of the data plane in a training process: it guards the connections, the queues of
all streams and their windows. No call waits for long with it held. The program's side is
`penstock.data.queue.worker_pool`, that of the makers `penstock.data.queue.receiving`.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from typing import Any, Final, NamedTuple

from penstock.data.complaints import Complaints
from penstock.data.memory import MemoryMeter
from penstock.data.pinned.pool import PinnedPool
from penstock.data.queue.assignment import (
    MISSING_SECONDS,
    assign_share,
    assign_static,
    assign_steps,
    assign_streams,
    assign_tiles,
    divides,
    expected_workers,
)
from penstock.data.queue.batch_queue import BatchQueue, Counts
from penstock.data.queue.served_files import ServedFiles
from penstock.data.queue.worker_connection import Opened, WorkerConnection
from penstock.data.sharing.pipeline import lacks_bytes
from penstock.data.transport import messages
from penstock.data.transport.blocks import SharedPool
from penstock.data.transport.messages import NO_BLOCK
from penstock.data.window.free_share import FreeShare
from penstock.data.window.reorder_buffer import ReorderBuffer
from penstock.data.window.stream_window import StreamWindow

logger = logging.getLogger(__name__)

MAX_DEALT: Final = 64
"""Pipelines that jobs share of which it is known that data workers have been waited for: once; one
that is started in the place of another is given its part when it comes."""


MAX_PROOFS: Final = 1024
"""Pipelines of which it is known what data workers are to make."""


class FinishOrder(NamedTuple):
    """A batch that a local worker is to finish: its step, indices and memory for it."""

    link: WorkerConnection
    asked: list[Any]


class Makers:
    """See the module's docstring.

    Attributes:
        lock: of all that is here.
        links: the makers, by name.
        queues: of the streams that are open, by number.
        shared: the memory that makers on this machine write to.
        files: of this machine, that data workers may read.
        pinned: that which local workers write to where the program wants it pinned.
        closing: nobody is missed any more.
        workers_of_job: data workers that the job has, whether or not they are connected.
        threads: that receive from somebody, or did.
    """

    def __init__(self, meter: MemoryMeter | None = None) -> None:
        self.lock = threading.Condition()
        self.counts = Counts()
        self.shared = SharedPool()
        self.pinned = PinnedPool()
        self.files = ServedFiles()
        self.links: dict[str, WorkerConnection] = {}
        self.queues: dict[int, BatchQueue] = {}
        self.complaints = Complaints()
        self.closing = False
        self.workers_of_job = 0
        self._given_up = 0  # data workers that were waited for and did not come
        self._dealt: deque[bytes] = deque(maxlen=MAX_DEALT)
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._proofs: dict[bytes, bytes] = {}  # of pipelines, what is to be made of them
        self._meter = meter or MemoryMeter()

    def all_refuse(self, digest: bytes) -> bool:
        """Whether there are data workers, and none of them can open a pipeline."""
        with self.lock:
            links = [link for link in self.links.values() if not link.local]
            return bool(links) and all(
                link.pipelines.get(digest) is Opened.REFUSED for link in links
            )

    def require(self, digest: bytes, proof: bytes) -> None:
        """From now on ask those alone for batches of a pipeline who have said that they make this.

        ``proof``: see `penstock.data.serving.shared.proof`.
        """
        with self.lock:
            self._proofs.pop(digest, None)
            self._proofs[digest] = proof
            while len(self._proofs) > MAX_PROOFS:
                del self._proofs[next(iter(self._proofs))]
            for link in self.links.values():
                self.check_proof(link, digest)

    def check_proof(self, link: WorkerConnection, digest: bytes) -> None:
        """Ask a data worker no more that makes other batches of a pipeline; with the lock held."""
        proof, is_open = self._proofs.get(digest), link.pipelines.get(digest) is Opened.OPEN
        if proof is None or not is_open or link.proofs.get(digest) == proof:
            return
        link.pipelines[digest] = Opened.REFUSED
        text = "makes other samples than this program of the same dataset, and is not used"
        self.complaints.add(f"data worker {link.name}", f"{text} for a loader that shares it")

    def request(self, queue: BatchQueue) -> None:
        """Ask for what a queue has room for; with the lock held."""
        usable = self._usable(queue)
        if not usable:
            return
        held_bytes = self.shared.held_bytes + self.pinned.held_bytes
        held_bytes = max(held_bytes, queue.window.ready * queue.batch_bytes)
        before = queue.window.ahead
        queue.bind(len(usable), self._meter.measure(), held_bytes)
        if queue.window.ahead < before:
            self._take_back(queue)
        if queue.free is not None:
            self._request_tiles(queue, queue.free, usable)
            return
        if isinstance(queue.window, StreamWindow):
            steps = assign_streams(queue, usable, self._count_expected(queue))
        elif divides(queue, usable):
            steps = assign_share(queue, usable)
        elif queue.affinity is not None:
            steps = assign_static(queue, usable, alone=len(self.links) == 1)
        else:
            steps = assign_steps(queue, usable, alone=len(self.links) == 1)
        for link, wanted in steps.items():
            digest = queue.digest_for(local=link.local)
            assert digest is not None
            size, allocate = queue.batch_bytes, queue.allocate
            queue.passed_on.difference_update(step for step, _ in wanted)  # it came back unfinished
            for asked, until in queue.requests(wanted, link.stage, local=link.local):
                link.request(queue.number, digest, queue.seed, asked, size, allocate, until)

    def _request_tiles(
        self, queue: BatchQueue, free: FreeShare, usable: list[WorkerConnection]
    ) -> None:
        """Ask for batches of a loader that shares, and first tell who is to give what."""
        digest = queue.digest_for(local=False)
        assert digest is not None, "only data workers are usable"
        by_name = {link.name: link for link in usable}
        first = digest not in self._dealt
        if first and not free.window.rounds.holders and self._count_expected(queue):
            return  # who divides the tiles among some of them now has others make the same again
        while True:
            parts = free.window.meet(by_name)
            if parts and first:
                self._dealt.append(digest)
                first = False
            for name, lacks in parts.items():
                header = [queue.number, digest, free.member, lacks_bytes(lacks)]
                by_name[name].send(messages.JOIN, header)
            steps = assign_tiles(queue, usable)
            for link, wanted in steps.items():
                # Memory is lent at once or not at all: who serves several jobs waits for none.
                size = queue.batch_bytes
                asked = [
                    [
                        number,
                        messages.pack_indices(count),
                        link.blocks.lend(size) if size else NO_BLOCK,
                    ]
                    for number, count in wanted
                ]
                link.send(messages.MAKE, [queue.number, digest, 0, asked])
            if steps or not free.window.divides_again:
                return

    def _take_back(self, queue: BatchQueue) -> None:
        """Have what is not begun given back by those who have more than may be under way now.

        They were asked for many small batches at once; the next ones may be large, and there is
        memory for few of them. A stream's maker is never asked for many.
        """
        if isinstance(queue.window, StreamWindow):
            return
        for holder in queue.window.holders_beyond():
            if (link := self.links.get(holder)) is not None:
                link.drop(queue.number)

    def awaits(self, queue: BatchQueue) -> bool:
        """Whether streams of a queue are kept for data workers on their way, or one has a stream.

        With the lock held.
        """
        window = queue.window
        usable = self._usable(queue)
        assert isinstance(window, StreamWindow), "streams of a dataset that is iterated"
        return bool(self._count_expected(queue)) or any(
            window.free_for(link.name) for link in usable if not link.local
        )

    def _count_expected(self, queue: BatchQueue) -> int:
        digest = queue.digest_for(local=False)
        data = [link for link in self.links.values() if not link.local]
        opening = sum(link.opens(digest) for link in data)
        missing = max(0, self.workers_of_job - len(data))
        age = time.monotonic() - queue.opened_at
        # Those who did not come while one epoch waited for them keep no other waiting.
        self._given_up = missing if age >= MISSING_SECONDS else min(self._given_up, missing)
        return expected_workers(queue, age, missing=missing - self._given_up, opening=opening)

    def pass_on(self, queue: BatchQueue, link: WorkerConnection, step: int) -> FinishOrder | None:
        """Who is to finish what a data worker has begun; None: the program; with the lock held.

        Until it has been sent that batch (`WorkerConnection.finish`) it is asked for nothing more.
        """
        window = queue.window
        if not queue.tails_nearby or not isinstance(window, ReorderBuffer):
            return None
        able = [one for one in self.links.values() if one.local and one.usable(queue.key)]
        if not able:
            return None
        local = min(able, key=lambda one: window.unmade_by(one.name))
        if not window.pass_on(link.name, step, local.name, time.monotonic()):
            return None
        queue.passed_on.add(step)
        local.large.begin()
        block = local.blocks.promise(queue.whole_bytes, queue.allocate)
        return FinishOrder(local, [step, messages.pack_indices(window.indices[step]), block])

    def note_state(self, digest: bytes) -> None:
        """Batches of a pipeline change its dataset: they are the program's; with the lock held."""
        for queue in self.queues.values():
            if queue.packed is not None and queue.packed.digest == digest:
                queue.keep_here()

    def request_all(self) -> None:
        """`request` for each queue; with the lock held."""
        for queue in self.queues.values():
            self.request(queue)

    def remove(self, link: WorkerConnection, why: str) -> None:
        """A maker has gone: what it had not made goes to others; with the lock held."""
        del self.links[link.name]
        link.end()
        returned = 0
        for queue in self.queues.values():
            returned += queue.window.gone(link.name, crashed=not link.leaving)
        if not link.local and link.leaving:
            logger.info("data worker %s left", link.name)
        elif not link.local and not self.closing:
            logger.warning(
                "data worker %s is lost (%s); %d steps go to others", link.name, why, returned
            )
        self.request_all()
        self.lock.notify_all()

    def _usable(self, queue: BatchQueue) -> list[WorkerConnection]:
        """Who can be asked now; whoever does not have the pipeline yet is sent it."""
        usable = []
        for link in self.links.values():
            if not queue.suits(link.stage, link.devices):
                continue
            digest = queue.digest_for(local=link.local)
            if link.usable(digest):
                usable.append(link)
            elif not link.local and queue.packed is None:
                queue.wants_packed = queue.portable
            elif not link.local and digest not in link.pipelines:
                assert queue.packed is not None
                needed = {one.packed.digest for one in self.queues.values() if one.packed}
                link.introduce(queue.packed, needed)
        if queue.staged and any(link.stage for link in usable):
            # They are asked by those, and have their cores for what comes before.
            return [link for link in usable if link.stage or link.local]
        return usable
