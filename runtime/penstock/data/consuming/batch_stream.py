"""One epoch of batches for the program: in order, each once, wherever they were made.

The sampler is iterated here, in the program's own thread. PyTorch's own may be asked as far ahead
as there are makers (`penstock.data.torch_loading.paced_sampler` has generators draw when they would
alone); any other is asked exactly as far ahead as without Penstock (`Delivery.lookahead`).

What a stream has to do in the program's thread beside that is little: to start local workers, and
to pack the pipeline when the first data worker comes.
"""

from __future__ import annotations

import logging
import secrets
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.base.enums import Guarantee, Sharding
from penstock.data.complaints import Complaints
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.cut_chooser import CutChooser
from penstock.data.consuming.late_work import LateWork
from penstock.data.consuming.process import pool_of_process
from penstock.data.errors import BadSampleError, NotPortableError
from penstock.data.local.workers import LocalOptions, LocalWorkers
from penstock.data.making import MakingClock
from penstock.data.partition.balance import Balance
from penstock.data.pipeline import (
    BatchId,
    PackedPipeline,
    Pipeline,
    position_of,
)
from penstock.data.protocol import InputOptions
from penstock.data.queue.batch_queue import OPENING_SECONDS, Delivery, QueueOptions
from penstock.data.seeding import preserved
from penstock.data.sizes import batch_bytes
from penstock.data.stage_devices import CPU
from penstock.data.streams.pipeline import StreamPipeline
from penstock.data.transport.raised import unpack_raised
from penstock.data.variables import DATA_SHARE
from penstock.data.window.free_share import FreeShare
from penstock.data.window.reorder_buffer import Failure, Need

logger = logging.getLogger(__name__)

LOOKAHEAD: Final = 64
SIZED: Final = 16
"""Of the batches that the program makes itself one in so many is measured."""
MAX_QUARANTINE: Final = 10_000
_complaints: Final = Complaints()


@dataclass(frozen=True)
class BadSample:
    """A sample that was left out."""

    batch: BatchId
    index: Any
    error: str
    trace: str = ""


def options_of(consumer: Consumer | None) -> InputOptions:
    """What the job says of its input; without a job, the strictest."""
    return InputOptions() if consumer is None else consumer.options()


@dataclass(frozen=True)
class StreamOptions:
    """How a stream behaves; None is what the job says (`penstock.data.protocol.InputOptions`).

    Attributes:
        skip_bad: leave out samples that raise, and go on; if not, what they raise ends the epoch.
        make_seconds: a data worker that has one step for longer is taken for hung.
    """

    guarantee: Guarantee | None = None
    skip_bad: bool | None = None
    make_seconds: float = 300.0
    delivery: Delivery = field(default_factory=Delivery)


@dataclass(frozen=True)
class Source:
    """What makes the batches, and how it reaches who makes them.

    Attributes:
        key: what local workers know it by.
        pack: packs it for data workers; raises NotPortableError.
        at_once: it is packed when the stream begins, and not when the first data worker comes: that
            is spared a program that has none, since packing a large dataset takes seconds.
        sent: what ``pack`` packs, where that is another than the program's own.
        pack_cut: packs what makes the beginnings of samples alone; None: it is never cut.
        chooser: decides where it is cut, unless the environment says; None: nobody does.
        balance: of which batches local workers make what is of the program's step; None: of all.
    """

    pipeline: Pipeline | StreamPipeline
    key: bytes
    pack: Callable[[], PackedPipeline]
    at_once: bool = False
    sent: Pipeline | StreamPipeline | None = None
    pack_cut: Callable[[Pipeline], PackedPipeline] | None = None
    chooser: CutChooser | None = None
    balance: Balance | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Of the batched stages that others may run, one for each."""
        sent = self.sent or self.pipeline
        return (
            tuple(one.device for one in sent.batched_stages) if isinstance(sent, Pipeline) else ()
        )

    @property
    def until(self) -> int | None:
        """The batched stage before which batches of those end who have no device; None: none."""
        sent = self.sent or self.pipeline
        has_device = any(device != CPU for device in self.devices)
        return sent.boundary if has_device and isinstance(sent, Pipeline) else None

    @property
    def movable(self) -> int | None:
        """The batched stage that is of the program's step, the last; None: there is none."""
        sent = self.sent
        moves = isinstance(sent, Pipeline) and sent.batch_stage is not None
        return len(self.devices) - 1 if moves else None


def start_local_workers(
    consumer: Consumer | None, pipeline: Pipeline | StreamPipeline, options: LocalOptions
) -> LocalWorkers:
    """The processes of a loader, which let go of what is this process's own."""
    pool = pool_of_process() if consumer is None else consumer.pool
    forget = pool.forget_in_child if consumer is None else consumer.forget_in_child
    return LocalWorkers(pool, pipeline, secrets.token_bytes(16), options, forget)


@dataclass(frozen=True)
class Streams:
    """The streams of a dataset that is iterated.

    Attributes:
        count: as many as the program asked its loader for workers, at least one.
        ends: batches of those that had ended when the program was where it begins.
        opening_seconds: they are kept for data workers that open the pipeline, so long.
    """

    count: int
    ends: dict[int, int] = field(default_factory=dict)
    opening_seconds: float = OPENING_SECONDS


class BatchStream:
    """An iterator of batches; `close` it when it is not iterated to its end.

    Its queue does not end by being forgotten, data workers fill it: `Batches` sees to that.
    """

    def __init__(
        self,
        consumer: Consumer | None,
        source: Source,
        seed: int,
        batch: BatchId,
        indices: Iterator[Any],
        options: StreamOptions,
        quarantine: list[BadSample],
        local: LocalWorkers | None = None,
        *,
        keeps_local: bool = False,
        streams: Streams | None = None,
        describe: Callable[[BatchId], str] = str,
        at_once: bool = True,
        free: FreeShare | None = None,
        static: bool = False,
    ) -> None:
        """``indices`` begins at ``batch.step``, the first that the program gets.

        It may have a ``follow(taken)``, to be told how many of its items the program has taken.

        ``local``: end with the stream, unless ``keeps_local``. ``streams``: of a dataset that is
        iterated. ``describe``: what the program's user knows a batch by. ``at_once``: ask for
        batches now, and not when the first is wanted. ``free``: it shares with other jobs, in
        free order. ``static``: each step has a data worker that it is for, whatever the job says.
        """
        self._consumer = consumer
        self._source = source
        self._batch = batch
        self._indices = indices
        self._follow: Callable[[int], None] = getattr(indices, "follow", _ignore)
        self._options = options
        self._quarantine = quarantine
        self._local = local
        self._own_local = None if keeps_local else local
        self._describe = describe
        self._closed = False
        self._late: LateWork | None = None
        pipeline, pack_cut = source.pipeline, source.pack_cut
        # Batches of a stream are not made of samples that are known before: they come as they are.
        if isinstance(pipeline, Pipeline) and (source.until is not None or pack_cut is not None):
            self._late = LateWork(pipeline, seed, source.pack, pack_cut, source.chooser)
        self._pool = pool_of_process() if consumer is None else consumer.pool
        expected = consumer is not None and (source.at_once or consumer.expects_workers)
        told = QueueOptions(
            key=source.key,
            seed=seed,
            position=batch.step,
            guarantee=options.guarantee or options_of(consumer).guarantee,
            packed=self._pack() if expected else None,
            delivery=options.delivery,
            streams=streams.count if streams is not None else 0,
            ends=streams.ends if streams is not None else {},
            opening_seconds=streams.opening_seconds if streams is not None else OPENING_SECONDS,
            share=DATA_SHARE.now(),
            free=free,
            sharding=Sharding.STATIC if static else options_of(consumer).sharding,
            until=source.until,
            devices=source.devices,
            movable=source.movable,
            balance=None if source.movable is None else source.balance,
        )
        self.queue = self._pool.open(told)
        if expected and told.packed is None:
            self.queue.portable = False
        self._window: Any = self.queue.window
        self._begun = at_once
        self._clock = MakingClock()
        if at_once:
            self._refill()

    def _pack(self) -> PackedPipeline | None:
        try:
            return self._source.pack() if self._late is None else self._late.pack()
        except NotPortableError as error:
            dataset = type(self._source.pipeline.dataset).__qualname__
            text = f"is not served by data workers, all else is as without them: {error}"
            _complaints.add(f"a loader of {dataset}", text)
            return None

    def _tend(self) -> bool:
        """What is to be done now and then; whether local workers make what nobody has."""
        if self._late is not None:
            self._late.tend(self._pool, self.queue, self._pack)
        if self.queue.wants_packed:
            self._pool.provide(self.queue, self._pack())
        return self._local is not None and self._local.keep()

    def _feed(self) -> None:
        if self._window.ended:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            self._window.end()
        else:
            if self._late is not None:
                self._late.note(self._window.fed, indices, self._window.position)
            self._window.feed(indices)

    @property
    def lost(self) -> int:
        """Steps that were lost with their data worker; 0 but for `Guarantee.AT_MOST_ONCE`."""
        return int(self._window.lost)

    @property
    def position(self) -> int:
        """Steps of the epoch that the program has got."""
        return int(self._window.position)

    @property
    def finished(self) -> bool:
        """Whether the program has got every step."""
        return bool(self._window.ended and self._window.position >= self._window.fed)

    @property
    def ends(self) -> dict[int, int]:
        """Batches of the streams that have ended, of a dataset that is iterated."""
        return dict(getattr(self._window, "ends", {}))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        if not self._begun:
            self._begun = True
            self._refill()
        while True:
            try:
                need, batch = self.queue.take(self._drop_overdue, self._tend)
            except BadSampleError as error:
                self._skip_step(error)
                self._refill()
                continue
            if need is Need.END:
                self._follow(self.position + 1)  # without workers PyTorch asks once more
                self.close()
                raise StopIteration
            if need is Need.FEED:
                self._refill()
                continue
            made = need is None
            if made and self._late is not None:
                began, step = time.perf_counter(), self._window.position - 1
                made, batch = self._late.finish(step, batch, self.queue.finish)
                if not made:
                    made, batch = self._make_whole(step, batch, [])
                self._pool.counts.waited_seconds += time.perf_counter() - began
            if need is Need.MAKE:
                self._clock.begin()  # the wait for whoever had it before is counted
                made, batch = self._make_here(*batch)
                cost, counts = self._clock.end(), self._pool.counts
                counts.add_made_here(cost)
                if made and counts.made_here % SIZED == 1:
                    counts.batch_bytes = batch_bytes(batch)
            # Whom this wakes may take the core: the training waits for its input here, too.
            asked = time.perf_counter()
            self._refill()
            self._pool.counts.waited_seconds += time.perf_counter() - asked
            if made:
                return batch

    def _drop_overdue(self) -> None:
        self._pool.drop_overdue(self.queue, self._options.make_seconds)

    def _refill(self) -> None:
        """The program has taken a step: one more of the sampler's comes into view."""
        window, lookahead = self._window, self._options.delivery.lookahead
        ahead = max(LOOKAHEAD, window.ahead) if lookahead is None else lookahead
        while not window.ended and window.fed < window.position + ahead:
            self._feed()
        self._follow(window.position)
        self._pool.request(self.queue)

    def _make_here(self, indices: Any, failures: list[Failure]) -> tuple[bool, Any]:
        """Make a batch in this process; False when there is none because all samples were bad."""
        raised = next((failure.error for failure in failures if failure.error), b"")
        try:
            if raised and not self._skip_bad:
                raise unpack_raised(raised)
            return self._make_whole(self._window.position, indices, failures)
        finally:
            self.queue.made_here()

    def _make_whole(self, step: int, indices: Any, failures: list[Failure]) -> tuple[bool, Any]:
        name = self._batch._replace(step=step)
        bad: list[Any] = []
        try:
            with preserved():
                batch = self._make(indices, bad)
            if self.queue.finish is not None:
                batch = self.queue.finish(batch)
        except Exception as error:
            explain(error, self._describe(name), indices, failures)
            raise
        for index, raised in bad:
            trace = "".join(traceback.format_exception(raised, limit=-20))
            self._leave_out(BadSample(name, index, repr(raised), trace))
        nothing = len(bad) == len(indices) if self._source.pipeline.batched else bool(bad)
        return not nothing, batch

    def _make(self, indices: Any, bad: list[Any]) -> Any:
        """A batch as data workers make it, or without the samples that raise, put into ``bad``."""
        pipeline = self._source.pipeline
        assert isinstance(pipeline, Pipeline), "a stream makes its batches in its own way"
        try:
            return pipeline.make(self.queue.seed, indices)
        except Exception:
            if not self._skip_bad:
                raise
        return pipeline.make(self.queue.seed, indices, bad)

    @property
    def _skip_bad(self) -> bool:
        """Whether samples that raise are left out now: a job's owner may still decide so."""
        wanted = self._options.skip_bad
        return options_of(self._consumer).skip_bad if wanted is None else wanted

    def _skip_step(self, error: BadSampleError) -> None:
        """Data workers died on the step: nobody tries again. Raises the error, or leaves it out."""
        if not self._skip_bad:
            raise error
        name = self._batch._replace(step=self._window.position)
        indices = self._window.skip()
        for index in indices if self._source.pipeline.batched else [indices]:
            self._leave_out(BadSample(name, index, str(error)))

    def _leave_out(self, sample: BadSample) -> None:
        why = sample.trace or sample.error
        logger.error("%s: sample %r is left out: %s", sample.batch, sample.index, why)
        if len(self._quarantine) < MAX_QUARANTINE:
            self._quarantine.append(sample)
        text = f"sample {sample.index!r} of {sample.batch}: {sample.error}"
        self._pool.counts.add_left_out(text)

    def close(self) -> None:
        """Nothing more is wanted."""
        if self._closed:
            return
        self._closed = True
        self._clock.close()
        self._pool.close(self.queue.number)
        if self._own_local is not None:
            self._own_local.stop()

    def abandon(self) -> None:
        """`close` for a finalizer, which may run in any thread in the middle of anything."""
        if not self._closed:
            self._closed = True
            self._pool.abandon(self.queue.number)
            if self._own_local is not None:
                self._own_local.stop()


def _ignore(taken: int) -> None:
    """Of items that do not depend on how many were taken."""


class Batches:
    """What a program iterates: a stream that ends when the program forgets it."""

    def __init__(self, stream: BatchStream) -> None:
        self.stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self.stream)

    def __del__(self) -> None:
        if (stream := getattr(self, "stream", None)) is not None:
            stream.abandon()


def explain(error: Exception, name: str, indices: Any, failures: list[Failure]) -> None:
    """Say which sample it was; the error itself stays what the user's code raised."""
    index = position_of(error)
    where = f"sample {index!r}" if index is not None else f"samples {str(indices)[:500]}"
    error.add_note(f"Penstock: {where} of {name}")
    for failure in failures:
        error.add_note(f"data worker {failure.holder} failed on it too: {failure.message}")
