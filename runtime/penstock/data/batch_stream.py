"""One epoch of batches for the program: in order, each once, wherever they were made.

The sampler is iterated here, in the program's own thread and always `LOOKAHEAD` steps ahead of what
the program has taken, whatever the number of data workers: so a sampler that draws random numbers
draws the same ones with none as with many.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.base.enums import Guarantee
from penstock.data.consumer import Consumer
from penstock.data.errors import BadSampleError
from penstock.data.pipeline import BatchId, PackedPipeline, Pipeline, position_of
from penstock.data.protocol import InputOptions
from penstock.data.queue.reorder_buffer import Failure, Need, ReorderBuffer
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.seeding import preserved

logger = logging.getLogger(__name__)

LOOKAHEAD: Final = 64
MAX_QUARANTINE: Final = 10_000


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

    ``skip_bad``: leave out samples that raise, and go on; if not, what they raise ends the epoch.
    ``make_seconds``: a data worker that has one step for longer is taken for hung.
    """

    guarantee: Guarantee | None = None
    skip_bad: bool | None = None
    make_seconds: float = 300.0


class BatchStream:
    """An iterator of batches; `close` it when it is not iterated to its end.

    Its queue does not end by being forgotten, data workers fill it: `Batches` sees to that.
    """

    def __init__(
        self,
        consumer: Consumer | None,
        pipeline: Pipeline,
        packed: PackedPipeline,
        seed: int,
        batch: BatchId,
        indices: Iterator[Any],
        options: StreamOptions,
        quarantine: list[BadSample],
    ) -> None:
        """``indices`` begins at ``batch.step``, the first that the program gets."""
        guarantee = options.guarantee or options_of(consumer).guarantee
        window = ReorderBuffer(batch.step, LOOKAHEAD, guarantee)
        self._consumer = consumer
        self._pipeline = pipeline
        self._batch = batch
        self._indices = indices
        self._options = options
        self._quarantine = quarantine
        self._closed = False
        self._pool = WorkerPool() if consumer is None else consumer.pool
        self._window = window
        for _ in range(LOOKAHEAD):
            self._feed()
        self.queue = self._pool.open(window, packed, seed)

    def _feed(self) -> None:
        if self._window.ended:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            self._window.end()
        else:
            self._window.feed(indices)

    @property
    def lost(self) -> int:
        """Steps that were lost with their data worker; 0 but for `Guarantee.AT_MOST_ONCE`."""
        return self._window.lost

    @property
    def position(self) -> int:
        """Steps of the epoch that the program has got."""
        return self._window.position

    @property
    def finished(self) -> bool:
        """Whether the program has got every step."""
        return self._window.ended and self._window.position >= self._window.fed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        while True:
            try:
                need, batch = self.queue.take(self._drop_overdue)
            except BadSampleError as error:
                self._skip_step(error)
                self._refill()
                continue
            if need is Need.END:
                self.close()
                raise StopIteration
            made = need is None
            if need is Need.MAKE:
                began = time.perf_counter()  # the wait for whoever had it before is counted
                made, batch = self._make_here()
                self._pool.counts.add_made_here(time.perf_counter() - began)
            self._refill()
            if made:
                return batch

    def _drop_overdue(self) -> None:
        self._pool.drop_overdue(self.queue, self._options.make_seconds)

    def _refill(self) -> None:
        """The program has taken a step: one more of the sampler's comes into view."""
        window = self._window
        while not window.ended and window.fed < window.position + LOOKAHEAD:
            self._feed()
        self._pool.request(self.queue)

    def _make_here(self) -> tuple[bool, Any]:
        """Make a batch in this process; False when there is none because all samples were bad."""
        indices, failures = self.queue.make_here()
        name = self._batch._replace(step=self._window.position)
        bad: list[Any] = []
        try:
            with preserved():
                batch = self._make(indices, bad)
        except Exception as error:
            _explain(error, name, indices, failures)
            raise
        finally:
            self.queue.made_here()
        for index, raised in bad:
            trace = "".join(traceback.format_exception(raised, limit=-20))
            self._leave_out(BadSample(name, index, repr(raised), trace))
        nothing = len(bad) == len(indices) if self._pipeline.batched else bool(bad)
        return not nothing, batch

    def _make(self, indices: Any, bad: list[Any]) -> Any:
        """A batch as data workers make it, or without the samples that raise, put into ``bad``."""
        try:
            return self._pipeline.make(self.queue.seed, indices)
        except Exception:
            if not self._skip_bad:
                raise
        return self._pipeline.make(self.queue.seed, indices, bad)

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
        for index in indices if self._pipeline.batched else [indices]:
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
        self._pool.close(self.queue.number)

    def abandon(self) -> None:
        """`close` for a finalizer, which may run in any thread in the middle of anything."""
        if not self._closed:
            self._closed = True
            self._pool.abandon(self.queue.number)


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


def _explain(error: Exception, name: BatchId, indices: Any, failures: list[Failure]) -> None:
    """Say which sample it was; the error itself stays what the user's code raised."""
    index = position_of(error)
    where = f"sample {index!r}" if index is not None else f"samples {str(indices)[:500]}"
    error.add_note(f"Penstock: {where} of {name}")
    for failure in failures:
        error.add_note(f"data worker {failure.holder} failed on it too: {failure.message}")
