"""A data worker: makes the batches that training processes ask for, and keeps nothing.

It serves those whom its `Connector` finds, opens the pipelines that they send (signed with the
job's token) and answers each request exactly once. In a share group it serves the training
processes of all members: those of other jobs by the group's token, with which their pipelines are
then signed. Batches are made in the main thread, for each training process in the order of its
requests and for all in turn, and sent from there, but for what a training process does not take at
once (`penstock.data.transport.outbox`): until it does, nothing more is made for it. A thread for
each connection takes requests in.
On SIGTERM it takes no more, finishes the batch in hand, returns the rest and exits 0. It may be
killed at any time: whoever waits for its batches has them made elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from penstock.data.dataset_watch import DatasetWatch, KeepsStateError
from penstock.data.errors import (
    BadSampleError,
    DataError,
    FrameError,
    TooLargeError,
)
from penstock.data.making import MakingClock
from penstock.data.pipeline import PackedPipeline, Pipeline, open_pipeline, position_of
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.batch_making import (
    chaining,
    make,
    pack,
    place_collate,
    placed,
    prepare,
    reopening,
)
from penstock.data.serving.batch_memory import BatchMemory
from penstock.data.serving.connector import Connector
from penstock.data.serving.consumer_connection import (
    ConsumerConnection,
    Request,
    block_of,
    lent_block,
    naming,
    put,
)
from penstock.data.serving.figures import Figures
from penstock.data.serving.group_reports import GroupReports
from penstock.data.serving.request_queue import RequestQueue
from penstock.data.serving.shared.common_samples import GoneError
from penstock.data.serving.shared.free_samples import BatchOfTilesError, NothingLeftError
from penstock.data.serving.shared.shared_pools import SharedPools
from penstock.data.serving.stage_before import STAGE, StageBefore
from penstock.data.sharing.likeness import unlike_any
from penstock.data.sharing.pipeline import SharedPipeline
from penstock.data.sharing.stream_pipeline import SharedStreamPipeline
from penstock.data.signature import signed
from penstock.data.streams.pipeline import (
    NotRepeatableError,
    StopHostingError,
    StreamEndedError,
    StreamPipeline,
)
from penstock.data.transport import frame, messages
from penstock.data.transport.batch_codec import Packer
from penstock.data.transport.blocks import map_shared
from penstock.data.transport.codings import read_allowed
from penstock.data.transport.layout import Layout
from penstock.data.transport.messages import NO_BLOCK, OWN_BLOCK
from penstock.data.transport.raised import describe, text_of
from penstock.data.weights.fetching import WeightsKeeper

logger = logging.getLogger(__name__)

ARRIVE_SECONDS: Final = 5.0
"""So long one that leaves waits until all that it sent has been read."""
IDLE_SECONDS: Final = 0.5
"""Unless something comes, which ends the wait."""
MAX_QUEUED: Final = 4096
"""Requests of one training process."""


def signer(
    own: str, group: GroupReports | None, line: ConsumerConnection, blob: memoryview, signature: Any
) -> str:
    """The token that a pipeline has to be signed with: the group's where it is another job's."""
    if group is not None and (line.by_group or signed(group.token, blob, signature)):
        return group.token
    return own


class DataWorker:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        token: str,
        dispatcher: str | None = None,
        name: str = "",
        node: str = "",
        rank: int = 0,
        incarnation: int = 0,
        share_memory: bool = True,
        consumers: tuple[ConsumerEntry, ...] = (),
        explain: Callable[[Exception], bytes] | None = None,
        group: GroupReports | None = None,
        before: StageBefore | None = None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        """``consumers``: whom to serve where there is no dispatcher to say.

        ``explain``: what to tell of an error of the user's code beside its text. ``group``: the
        job's share group, all members of which are served. ``before``: the stage whose
        batches this data worker takes; None: it is of the first. ``processes``: how many
        of its pod are data workers, this one included.
        """
        self._explain = explain or (lambda error: b"")
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._token, self._group, self._rank = token, group, rank
        self._lines: dict[str, ConsumerConnection] = {}
        self._queue = RequestQueue[Request]()
        self._changed = threading.Condition()
        self.leaving = False
        self._level = logging.INFO  # of its coming and going
        self._orders: deque[Callable[[], None]] = deque()  # before requests that came later
        self._packer = Packer()
        self._shared = SharedPools()
        self._weights = WeightsKeeper()
        self._before = before
        self.memory = BatchMemory()
        self._clock = MakingClock()
        self.figures = Figures(
            self.name,
            node=node,
            rank=rank,
            incarnation=incarnation,
            shared=lambda: self._shared.totals,
            stage=0 if before is None else STAGE,
            relay=None if before is None else before.entry,
            processes=processes,
        )
        self._connector = Connector(
            self,
            self.figures,
            token,
            dispatcher=dispatcher,
            consumers=consumers,
            group=group,
            share_memory=share_memory,
        )

    def leave(self, *_: object) -> None:
        """Take no more requests, finish and end; a signal handler, so it waits for no lock."""
        self.leaving = True
        if self._changed.acquire(blocking=False):
            try:
                self._changed.notify_all()  # a wait in the main thread goes on after a signal
            finally:
                self._changed.release()

    def run(self) -> None:
        """Work until told to leave."""
        threading.Thread(target=self._connector.run, name="penstock-keeper", daemon=True).start()
        while not self.leaving:
            with self._changed:
                order = self._orders.popleft() if self._orders else None
                request = self._queue.take(_keeps_up) if order is None else None
                if order is None and request is None:
                    self._changed.wait(IDLE_SECONDS)
                    continue
            if order is not None:
                order()
            elif request is not None:
                began = time.perf_counter()
                can_share, private = request.line.shares_memory, request.place is not None
                find = partial(block_of, request)
                with self.memory.of_batch(find, can_share=can_share, private=private):
                    self._answer(request)
                self.figures.busy_seconds += time.perf_counter() - began
            self._tell_ready()
        self._go()

    # ------------------------------------------------------------------ in the main thread

    def _open(
        self, line: ConsumerConnection, digest: bytes, signature: Any, blob: memoryview
    ) -> None:
        problem, note, proof = "", "", []
        if (known := self._shared.known(digest)) is not None:
            line.pipelines[digest] = known.pipeline
            self.reply(line, messages.OPENED, [digest, "", "", known.proof])
            return
        try:
            token = signer(self._token, self._group, line, blob, signature)
            lines = [one for one in self._lines.values() if one is not line]
            others = [one for each in lines for one in each.pipelines.values()]
            place = self._shared.empty and not others  # nobody's files are elsewhere then
            opened = open_pipeline(blob, signature, token, place=place, checked=not line.local)
            if isinstance(opened, SharedPipeline):
                prepare(opened.pipeline, self._rank)
                proof = [self._shared.prove(opened)]
                opened = replace(opened, pipeline=place_collate(opened.pipeline, self.memory))
                self._shared.open(digest, opened, *proof)
                note = text_of(unlike_any(opened, others), messages.MAX_TEXT)
            elif isinstance(opened, StreamPipeline):  # each stream has a dataset of its own
                opened = replace(opened, fresh=reopening(opened, blob, signature, token))
            elif isinstance(opened, SharedStreamPipeline):
                fresh = reopening(opened.pipeline, blob, signature, token)
                opened = replace(opened, pipeline=replace(opened.pipeline, fresh=fresh))
            elif isinstance(opened, Pipeline):
                prepare(opened, self._rank)
                if opened.watched and not line.local:
                    line.watches[digest] = DatasetWatch(opened.dataset)
            if self._before is not None:
                packed = PackedPipeline(digest, signature, bytes(blob))
                self._before.note(packed, opened)
            line.pipelines[digest] = placed(opened, self.memory)
            if (torch := sys.modules.get("torch")) is not None:
                torch.set_num_threads(1)  # one core makes a batch; more workers make more
        except DataError as error:
            logger.error("the pipeline of %s: %s", line.name, error)
            problem = text_of(str(error), messages.MAX_TEXT)
        self.reply(line, messages.OPENED, [digest, problem, note, *proof])

    def _answer(self, request: Request) -> None:
        line = request.line
        self._clock.begin()
        pipeline = line.pipelines.get(request.digest)
        if pipeline is None:
            self._fail(request, "the pipeline is not open here", "")
            return
        tiles = b""  # of what is made, where that was chosen here
        if request.until is None and not line.local:
            self._weights.provide(pipeline.weights, line.send, line.parts, line.name)
        try:
            if isinstance(pipeline, SharedPipeline):
                batch: Any = self._shared.make(request)
                if isinstance(request.indices, int):
                    tiles = batch[1].tobytes()
            elif isinstance(pipeline, SharedStreamPipeline):
                chain = chaining(self._packer)
                batch = self._shared.make_of_stream(request, chain, lambda: self.leaving)
            else:
                batch = make(pipeline, request, self._packer, lambda: self.leaving, self._before)
            kind, packed = pack(self._packer, batch, local=line.local)
            del batch
        except (NothingLeftError, GoneError) as error:
            text = text_of(str(error), messages.MAX_TEXT)
            self.reply(line, messages.ENDED, [*naming(request), text])
            return
        except (StreamEndedError, NotRepeatableError) as error:
            problem = "" if isinstance(error, StreamEndedError) else str(error)
            text = text_of(problem, messages.MAX_TEXT)
            self.reply(line, messages.ENDED, [*naming(request), text])
            return
        except StopHostingError:
            self.reply(line, messages.DROPPED, naming(request))
            return
        except KeepsStateError as error:
            text = text_of(str(error), messages.MAX_TEXT)
            self.reply(line, messages.OPENED, [request.digest, text, ""])
            self.reply(line, messages.DROPPED, naming(request))
            self._return_queued(line, request.digest)
            return
        except BadSampleError as error:  # of the stage before
            self._fail(request, f"{messages.DIED}{error}", "")
            return
        except BatchOfTilesError as failed:
            tiles = np.array(failed.tiles, np.int64).tobytes()
            self._fail(request, _saying_where(failed.error), traceback.format_exc(limit=-20), tiles)
            return
        except Exception as error:  # noqa: BLE001 - the user's code, whatever it raises
            trace = traceback.format_exc(limit=-20)
            self._fail(request, _saying_where(error), trace, tiles or self._explain(error))
            return
        self.figures.batches += 1
        cost = list(self._clock.end())
        head = [request.stream, request.step, packed.structure, packed.size]
        try:
            if put(request, packed, self.memory, pinnable=kind == messages.BATCH):
                line.send(kind, [*head, request.block, cost])
                return
            if request.block != NO_BLOCK:  # it does not fit: the block is free again
                logger.debug("a batch of %d bytes does not fit its block", packed.size)
                line.send(messages.DROPPED, [0, 0, request.block])
                request.block = NO_BLOCK  # it may be another request's by now
            if line.offer(packed, self.memory):
                line.send(kind, [*head, OWN_BLOCK, cost])
            elif kind == messages.BATCH:
                line.send_batch(head, packed, cost)
            else:
                line.send(kind, [*head, NO_BLOCK, cost], packed.parts, packed.size)
        except TooLargeError as error:
            self._fail(request, str(error), "", tiles)
        except FrameError as error:
            self._lost(line, error)

    def _join_shared(self, line: ConsumerConnection, header: list[Any]) -> None:
        try:
            self._shared.join(line, header)
        except FrameError as error:
            self._lost(line, error)
        except DataError as error:
            text = text_of(str(error), messages.MAX_TEXT)
            self.reply(line, messages.OPENED, [header[1], text, ""])

    def _tell_ready(self) -> None:
        for line, stream, batches in self._shared.news():
            self.reply(line, messages.READY, [stream, batches])

    def _fail(self, request: Request, message: str, trace: str, error: bytes = b"") -> None:
        limit = messages.MAX_TEXT
        text = [text_of(message[:limit], limit), text_of(trace[-limit:], limit)]
        header = [request.stream, request.step, request.block, *text, error]
        self.reply(request.line, messages.FAILED, header)

    def reply(self, line: ConsumerConnection, kind: int, header: Any) -> None:
        """Send a message; whom it does not reach is no longer served."""
        try:
            line.send(kind, header)
        except FrameError as error:
            self._lost(line, error)

    def _go(self) -> None:
        """Return what was not begun, and let everything that was sent arrive."""
        self._connector.say_goodbye()
        with self._changed:
            lines = list(self._lines.values())
            queued = [request for line in lines for request in self._queue.remove(line)]
        for line in lines:
            self.reply(line, messages.LEAVING, [])
        for request in queued:
            self.reply(request.line, messages.DROPPED, naming(request))
        deadline = time.monotonic() + ARRIVE_SECONDS
        for line in sorted(lines, key=lambda one: one.outbox.behind):
            line.outbox.finish(deadline)
            with contextlib.suppress(OSError):
                line.sock.shutdown(socket.SHUT_WR)
        with self._changed:  # the other end closes when it has read everything
            while self._lines and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        if self._before is not None:
            self._before.close()
        text = "data worker %s leaves after %d batches"
        logger.log(self._level, text, self.name, self.figures.batches)

    # ------------------------------------------------------------------ connections

    def serve(self, line: ConsumerConnection) -> bool:
        """Answer what comes over a connection; False when it is too late for that."""
        with self._changed:
            if self.leaving:
                line.sock.close()
                return False
            self._lines[line.name] = line
        line.outbox.on_room = self._look_again
        if line.local:  # the program's log is no place for what comes and goes with each epoch
            self._level = logging.DEBUG
        threading.Thread(
            target=self._serve, args=(line,), name="penstock-line", daemon=True
        ).start()
        return True

    def serving(self) -> dict[str, ConsumerConnection]:
        """All training processes that are served now, by name."""
        with self._changed:
            return dict(self._lines)

    @property
    def answered_at(self) -> float:
        """When the job's dispatcher answered last, by the monotonic clock."""
        return self._connector.answered_at

    def _serve(self, line: ConsumerConnection) -> None:
        """Take in what one training process sends, until it is gone."""
        reader = frame.Reader(line.sock, line.seals.receiving if line.seals else None)
        try:
            while True:
                try:
                    received = reader.receive(lambda size: memoryview(bytearray(size)))
                except TimeoutError:
                    continue  # it wants nothing; if it were gone, the heartbeat would fail
                header = messages.fields(received.kind, received.header)
                self._take(line, received, header)
        except (DataError, OSError, ValueError, TypeError) as error:
            self._lost(line, error)
        finally:
            self._end(line)

    def _take(self, line: ConsumerConnection, received: frame.Frame, header: list[Any]) -> None:
        kind = received.kind
        if kind == messages.BLOCK and len(received.descriptors) == 1:
            number, size = header
            line.blocks[number] = map_shared(received.descriptors[0], size)
            return
        for descriptor in received.descriptors:  # nobody asked for them
            os.close(descriptor)
        if kind == messages.MAKE:
            stream, digest, seed, steps, *more = header
            until = more[0] if more else None
            requests = [_requested(line, stream, digest, seed, one, until) for one in steps]
            if self._before is not None:
                self._before.feed(requests)
            with self._changed:
                if self._queue.count(line) + len(requests) > MAX_QUEUED:
                    raise FrameError(f"more than {MAX_QUEUED} requests at once")
                self._queue.put(requests)
                self._changed.notify_all()
            if self.leaving:  # too late: `_go` may have looked already
                self._return_queued(line)
        elif kind == messages.FINISH and line.local:
            stream, digest, seed, asked, structure, size = header
            request = _requested(line, stream, digest, seed, asked)
            body = np.frombuffer(received.body, np.uint8)
            request.begun = Layout(structure).batch(body, size)
            with self._changed:
                self._queue.put([request])
                self._changed.notify_all()
            if self.leaving:
                self._return_queued(line)
        elif kind == messages.DROP:
            line.streams.drop(header[0])
            if self._before is not None:
                self._before.drop(line, header[0])
            self._order(partial(self._shared.rest, line, header[0]))
            with self._changed:
                dropped = self._queue.remove(line, lambda one: one.stream == header[0])
            for request in dropped:
                line.send(messages.DROPPED, naming(request))
        elif kind == messages.PIPELINE:
            digest, signature = header
            self._order(partial(self._open, line, digest, signature, received.body))
        elif kind == messages.JOIN:
            self._order(partial(self._join_shared, line, header))
        elif kind == messages.FORGET:
            line.pipelines.pop(header[0], None)
            line.watches.pop(header[0], None)
        elif kind == messages.LEND:
            line.lent.put(header[0])
        elif kind == messages.UNMAP:
            for number in header[0]:
                line.blocks.pop(number, None)
        elif kind == messages.PART:
            digest, offset, problem = header
            line.parts.put(digest, offset, problem, received.body)
        elif kind == messages.FILE:
            path, offset, total, problem, version = header
            line.files.put(path, offset, total, problem, version, received.body)
        elif kind == messages.CODINGS:
            line.allowed = read_allowed(*header)
        else:
            raise FrameError(f"a message of kind {kind}")

    def _order(self, order: Callable[[], None]) -> None:
        """Have something done in the main thread, before what is asked for later."""
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _return_queued(self, line: ConsumerConnection, digest: bytes | None = None) -> None:
        with self._changed:
            late = self._queue.remove(line, lambda one: digest in (None, one.digest))
        for request in late:
            self.reply(line, messages.DROPPED, naming(request))

    def _lost(self, line: ConsumerConnection, error: Exception) -> None:
        with self._changed:
            known = self._lines.get(line.name) is line
        if known and not self.leaving:
            logger.log(self._level, "the connection to %s is over: %s", line.name, error)
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_RDWR)
        if line.on_end is not None:  # the user's code may have closed it, and nobody wakes `_serve`
            line.on_end()

    def _end(self, line: ConsumerConnection) -> None:
        with self._changed:
            if self._lines.get(line.name) is line:
                del self._lines[line.name]
            self._queue.remove(line)
            self._connector.pause(line.name)
            self._changed.notify_all()
        line.outbox.close()
        line.sock.close()
        line.parts.close()
        line.files.close()
        line.blocks.clear()
        line.pipelines.clear()
        line.streams.drop_all()
        if self._before is not None:
            self._before.leave(line)
        self._order(partial(self._shared.leave, line))
        if line.on_end is not None:
            line.on_end()


def _keeps_up(request: Request) -> bool:
    """Whether its training process takes what it is sent."""
    return not request.line.outbox.behind


def _saying_where(error: Exception) -> str:
    index = position_of(error)
    return f"{'' if index is None else f'sample {index!r}: '}{describe(error)}"


def work(worker: DataWorker) -> None:
    """Run a data worker as the main program: SIGTERM and SIGINT make it leave."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.leave)
    worker.run()


def _requested(
    line: ConsumerConnection,
    stream: int,
    digest: bytes,
    seed: int,
    asked: tuple[int, Any, Any],
    until: int | None = None,
) -> Request:
    """A request of a message: ``asked`` is the step, its indices and the block for its batch."""
    step, indices, block = asked
    indices = messages.unpack_indices(indices)
    return Request(line, stream, step, digest, seed, indices, *lent_block(block), until=until)
