"""One epoch of batches of a dataset that is iterated, for the program.

Beside what `BatchStream` does: no sampler says what there is to do, the streams do; and what one
raises is the end of it, as it is of any iterator.
"""

from __future__ import annotations

from typing import Any

from penstock.data.consuming.batch_stream import BadSample, BatchStream, explain
from penstock.data.errors import BadSampleError
from penstock.data.seeding import one_thread
from penstock.data.streams.digest import UNKNOWN
from penstock.data.streams.pipeline import (
    Address,
    NotRepeatableError,
    StreamEndedError,
    StreamHost,
    StreamPipeline,
)
from penstock.data.transport.raised import unpack_raised
from penstock.data.window.reorder_buffer import Failure


class IterableStream(BatchStream):
    """See the module's docstring; its source's pipeline is a `StreamPipeline`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._host = StreamHost()
        super().__init__(*arguments, **options)

    @property
    def finished(self) -> bool:
        """Whether the program has got every batch."""
        return bool(self._window.finished)

    def _tend(self) -> bool:
        return super()._tend() or self._pool.awaits_workers(self.queue)

    def _drop_overdue(self) -> None:
        super()._drop_overdue()
        self._pool.request(self.queue)  # streams are kept for nobody longer than for a while

    def _refill(self) -> None:
        self._pool.request(self.queue)

    def _make_here(self, address: Any, failures: list[Failure]) -> tuple[bool, Any]:
        """Make a batch in this process; False when the stream has no more."""
        try:
            raised = next((failure.error for failure in failures if failure.error), b"")
            if raised:
                raise unpack_raised(raised)
            return True, self._make_batch(Address(*address))
        except (StreamEndedError, NotRepeatableError) as error:
            self.queue.end_here("" if isinstance(error, StreamEndedError) else str(error))
            return False, None
        except Exception as error:
            if not raised:
                name = self._batch._replace(step=self._window.position)
                explain(error, self._describe(name), f"stream {address[0]}", failures)
            self.queue.end_here("")
            raise
        finally:
            self.queue.made_here()

    def _make_batch(self, address: Address) -> Any:
        pipeline = self._source.pipeline
        assert isinstance(pipeline, StreamPipeline), "a stream's pipeline"
        with one_thread():
            batch = self._host.make(0, pipeline, self.queue.seed, address, _unknown)
        return batch if self.queue.finish is None else self.queue.finish(batch)

    def _skip_step(self, error: BadSampleError) -> None:
        """Makers died on a batch: nobody tries again. Raises the error, or ends the stream."""
        if not self._skip_bad:
            raise error
        name = self._batch._replace(step=self._window.position)
        address, _ = self.queue.make_here()
        self.queue.end_here("")
        self.queue.made_here()
        what = f"stream {address[0]} from batch {address[1]} on"
        self._leave_out(BadSample(name, what, str(error)))


def _unknown(before: int, batch: Any) -> int:
    """The program passes over batches only where nobody else could host the stream."""
    return UNKNOWN
