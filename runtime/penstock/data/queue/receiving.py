"""The makers' side of the data plane: what comes from each of them, until it is gone.

Batches are built here, in the thread of the link that brings them, and pinned where the program
wants them so: the program's own thread has nothing to do but take them. Whatever arrives, the worst
is that this link ends; what its maker had not made then goes to others.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.data.cuts.head_and_tail import is_begun, is_marked
from penstock.data.dataset_watch import KEEPS_STATE
from penstock.data.errors import DataError, FrameError, NotPortableError
from penstock.data.making import Cost
from penstock.data.pipeline import Unfinished
from penstock.data.queue.makers import Makers
from penstock.data.queue.worker_connection import WorkerConnection, smoothed
from penstock.data.streams.digest import UNKNOWN
from penstock.data.transport import messages
from penstock.data.transport.batch_codec import Packed, Packer
from penstock.data.transport.messages import SILENCE_SECONDS
from penstock.data.transport.pickled_batch import put_together
from penstock.data.transport.raised import pack_raised
from penstock.data.transport.remote_write import allow_descendants
from penstock.data.window.reorder_buffer import Failure

logger = logging.getLogger(__name__)


def join(makers: Makers, link: WorkerConnection) -> None:
    """A maker has connected: it is one to be asked, and is to be received from."""
    with makers.lock:
        if (other := makers.links.get(link.name)) is not None:
            logger.warning("data worker %s connected twice: the newer connection counts", link.name)
            makers.remove(other, "a newer connection took its place")
        makers.links[link.name] = link
        makers.request_all()


def receive_from(makers: Makers, link: WorkerConnection) -> None:
    """Take in what a maker that has joined sends; returns when it has left."""
    receiver, why = _Receiver(makers, link), "it left"
    try:
        while True:
            receiver.take_message(*link.receive())
    except TimeoutError:
        why = f"it was silent for {SILENCE_SECONDS:.0f} s"
    except DataError as error:
        why = str(error)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        why = f"it sent what cannot be understood: {error!r}"
        logger.debug("%s", link.name, exc_info=error)
    finally:
        leave(makers, link, why)


def leave(makers: Makers, link: WorkerConnection, why: str = "it left") -> None:
    """A maker is gone: nothing is asked of it any more."""
    with makers.lock:
        if makers.links.get(link.name) is link:
            makers.remove(link, why)
        link.close()


def start_thread(makers: Makers, work: Callable[..., None], *arguments: Any) -> None:
    """Have a thread ``work(makers, *arguments)``; `WorkerPool.end` waits for it.

    Raises:
        RuntimeError: the process may have no more threads.
    """
    thread = threading.Thread(
        target=work, args=(makers, *arguments), name="penstock-data", daemon=True
    )
    thread.start()
    makers.threads.add(thread)


class _Receiver:
    """What is done with each message of one maker."""

    def __init__(self, makers: Makers, link: WorkerConnection) -> None:
        self._makers = makers
        self._link = link

    def take_message(self, kind: int, values: list[Any], descriptors: tuple[int, ...]) -> None:
        link, makers = self._link, self._makers
        if kind == messages.BLOCK:
            with makers.lock:
                link.blocks.take_offered(values[1], descriptors)
            return
        for descriptor in descriptors:  # nobody asked for them
            os.close(descriptor)
        if kind == messages.ALIVE:
            return
        if kind == messages.BATCH or (kind == messages.PICKLED and link.local):
            self._take_batch(*values, pickled=kind == messages.PICKLED)
        elif kind == messages.WANT:
            with makers.lock:
                link.blocks.answer(*values)
        elif kind == messages.OPENED:
            self._take_opened(*values)
        elif kind == messages.FAILED:
            self._take_failure(*values)
        elif kind == messages.DROPPED:
            self._take_back(*values)
        elif kind == messages.ENDED:
            self._take_end(*values)
        elif kind == messages.UNWRITTEN and link.local:
            with makers.lock:
                link.pinned.refuse(*values)
        elif kind == messages.NEED and not link.local:
            makers.counts.add_weights(link.send_part(*values))
        elif kind == messages.READ and not link.local:
            link.send_file(makers.files, *values)
        elif kind == messages.READY:
            self._take_ready(*values)
        elif kind == messages.LEAVING:
            with makers.lock:
                link.leaving = True
        else:
            raise FrameError(f"a message of kind {kind}")

    def _take_batch(
        self,
        number: int,
        step: int,
        structure: Any,
        size: int,
        block: int,
        made: Any,
        *,
        pickled: bool,
    ) -> None:
        link, makers = self._link, self._makers
        cost, wire_bytes = Cost.read(made), link.wire_bytes
        with makers.lock:
            root = link.arrays_of(block, size)
            queue = makers.queues.get(number)
        digest = UNKNOWN
        if queue is not None and queue.streams and not pickled:
            digest = queue.chain_digest(step, structure, _bytes_of(root, size))
        failure: Exception | None = None
        tiles = b""
        try:
            layout = link.layout(structure)
            arrived = layout.batch(root, size)
        except NotPortableError as error:
            failure = error
        else:
            if queue is not None and queue.free is not None:
                tiles = np.asarray(arrived[1], np.int64).tobytes()
            try:
                until = None if queue is None else queue.until_of(link.stage)
                finish = queue.finish if queue is not None and until is None else None
                batch = _finish(arrived, finish, pickled=pickled)
                if until is not None:
                    batch = Unfinished(batch, until)
            except Exception as error:  # noqa: BLE001 - the program's classes, or its device
                failure = error
            del arrived
        del root
        if failure is not None:
            packed = pack_raised(failure, "the thread that received the batch")
            mine = Failure(link.name, str(failure), "", packed, link.local, tiles)
            self._note_failure(number, step, mine)
            return
        tail = link.local and queue is not None and step in queue.passed_on
        if not tail:
            link.batch_seconds = smoothed(link.batch_seconds, cost.seconds)
        order = None
        begun = None
        if queue is not None and queue.tails_nearby and not link.local:
            begun = _packed_again(batch)
        with makers.lock:
            makers.counts.add_received(0 if link.local else wire_bytes or size)
            if queue is not None and begun is not None:
                order = makers.pass_on(queue, link, step)
                if order is not None:
                    makers.counts.add_arrived(cost, size, local=False)
                    makers.request(queue)
        if order is not None and begun is not None and queue is not None:
            order.link.finish(number, queue.key, queue.seed, order.asked, begun)
            return
        with makers.lock:
            if queue is None or not queue.note_arrived(link.name, step, batch, digest):
                makers.counts.duplicates += 1
                return
            if tail:
                queue.passed_on.discard(step)
                queue.whole_bytes = max(queue.whole_bytes, size)
                makers.counts.add_tail(cost)
            else:
                makers.counts.add_arrived(cost, size, local=link.local)
            queue.note_size(size)
            makers.request(queue)
            if pickled or 2 * layout.tensor_bytes < size:
                queue.note_unpinnable()
            if queue.is_awaited(step):
                makers.lock.notify_all()
        del batch
        make_pinned(makers)

    def _take_back(self, number: int, step: int, block: int) -> None:
        link, makers = self._link, self._makers
        with makers.lock:
            link.blocks.give_back(block)
            if (queue := makers.queues.get(number)) is not None:
                queue.window.given_back(link.name, step)
                makers.request(queue)
            makers.lock.notify_all()

    def _take_end(self, number: int, step: int, block: int, problem: str) -> None:
        link, makers = self._link, self._makers
        with makers.lock:
            link.blocks.give_back(block)
            if (queue := makers.queues.get(number)) is not None:
                queue.note_end(link.name, step, problem)
                makers.request(queue)
            makers.lock.notify_all()

    def _take_ready(self, number: int, batches: int) -> None:
        """It changes whom to ask next, and not for how much: nothing is asked for now."""
        makers = self._makers
        with makers.lock:
            queue = makers.queues.get(number)
            if queue is not None and queue.free is not None:
                queue.free.window.rounds.note_ready(self._link.name, int(batches))

    def _take_failure(
        self, number: int, step: int, block: int, message: str, trace: str, error: Any
    ) -> None:
        link, makers = self._link, self._makers
        said = error if isinstance(error, bytes) else b""
        raised, tiles = (said, b"") if link.local else (b"", said)
        with makers.lock:
            link.blocks.give_back(block)
            if not raised and number in makers.queues:
                subject = link.name if link.local else f"data worker {link.name}"
                makers.complaints.add(subject, f"could not make a batch: {message}")
        died = message.startswith(messages.DIED)
        failure = Failure(link.name, message, trace, raised, link.local, tiles, died)
        self._note_failure(number, step, failure)

    def _note_failure(self, number: int, step: int, failure: Failure) -> None:
        makers = self._makers
        with makers.lock:
            if (queue := makers.queues.get(number)) is not None:
                queue.note_failure(step, failure)
                makers.request(queue)
            makers.lock.notify_all()

    def _take_opened(self, digest: bytes, problem: str, note: str, proof: bytes = b"") -> None:
        link, makers = self._link, self._makers
        with makers.lock:
            if link.note_opened(digest, refused=bool(problem), proof=proof):
                if problem.startswith(KEEPS_STATE):
                    makers.note_state(digest)
                    makers.complaints.add("a loader is not served by data workers:", problem)
                elif problem:
                    text = f"cannot open the pipeline and is not used: {problem}"
                    makers.complaints.add(f"data worker {link.name}", text)
                makers.check_proof(link, digest)
                if note:
                    makers.complaints.add("a loader is shared with nobody yet:", note)
                makers.request_all()
            makers.lock.notify_all()


def make_pinned(makers: Makers) -> None:
    """Make the pinned memory that requests want; it may take long, so without the lock."""
    while True:
        with makers.lock:
            order = makers.pinned.next_order()
        if order is None:
            return
        allow_descendants()
        try:
            block = order.make()
        except Exception as error:  # noqa: BLE001 - the device, or its driver
            with makers.lock:
                makers.pinned.refuse(str(error))
            return
        with makers.lock:
            makers.pinned.put(block)
        del block, order


def _packed_again(batch: Any) -> Packed | None:
    """What has arrived, for a local worker to finish; None: it is for the program.

    Before anybody is chosen for it: who was chosen is asked.
    """
    if not is_begun(batch):
        return None
    try:
        return Packer().pack(batch)
    except NotPortableError:
        return None


def _bytes_of(root: Any, size: int) -> Any:
    return root[:size] if isinstance(root, np.ndarray) else root[:size].numpy()


def _finish(batch: Any, finish: Callable[[Any], Any] | None, *, pickled: bool) -> Any:
    """What has arrived, as the program gets it, or as it is where that is to go on with it.

    Raises:
        Exception: whatever the program's own classes raise, or the device.
    """
    if pickled:
        batch = put_together(batch)
    return batch if finish is None or is_marked(batch) else finish(batch)
