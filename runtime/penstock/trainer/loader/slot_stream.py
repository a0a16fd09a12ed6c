"""The batches of the slots that a worker is predicted to have in the rest of an epoch.

A `BatchStream` whose order is a prediction. What comes of it is taken one by one as long as the
prediction holds; when it does not, `withdraw` gives up the stream and keeps what is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.base.enums import Guarantee
from penstock.data.consuming.batch_stream import BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import BadSampleError
from penstock.data.ledger import SampleOrder, derive_seed
from penstock.data.local.workers import LocalWorkers
from penstock.data.pipeline import BatchId
from penstock.data.queue.batch_queue import Delivery
from penstock.trainer.group.step_slots import PredictedSlot


@dataclass(frozen=True)
class StreamSource:
    """What the batches of a loader are, and who makes them."""

    consumer: Consumer | None
    pipeline: Source
    local: LocalWorkers | None


class SlotStream(BatchStream):
    """See the module's docstring. Slots are counted over all epochs."""

    def __init__(
        self,
        source: StreamSource,
        order: SampleOrder,
        epoch: int,
        predicted: Iterator[PredictedSlot],
        delivery: Delivery,
    ) -> None:
        self.epoch = epoch
        self._order = order
        self._coming: deque[int] = deque()
        self._current = 0
        super().__init__(
            source.consumer,
            source.pipeline,
            derive_seed(order.seed, epoch),
            BatchId("session", 0, epoch, 0),
            self._remember(predicted),
            # A sample that raises is the program's error: what becomes of its slot is the trainer's
            # to say, who counts what the model has seen.
            StreamOptions(Guarantee.EXACTLY_ONCE, skip_bad=False, delivery=delivery),
            [],
            source.local,
            keeps_local=True,
            describe=lambda _: self._text,
        )

    def _remember(self, predicted: Iterator[PredictedSlot]) -> Iterator[list[int]]:
        for slot in predicted:
            self._coming.append(slot.number)
            yield slot.indices

    @property
    def next_slot(self) -> int | None:
        """The slot of the next batch; None when there is none left in the epoch."""
        return self._coming[0] if self._coming else None

    @property
    def under_way(self) -> bool:
        """Whether all that is left of the epoch has been asked for, as far as there are makers."""
        return bool(self._window.ended) and len(self._coming) <= self.queue.bound.ahead

    def take(self) -> Any:
        """The batch of `next_slot`.

        Raises:
            Exception: whatever the dataset raises, with a note that names the micro-batch.
        """
        self._current = self._coming.popleft()
        try:
            return next(self)
        except Exception as error:
            if not any(self._text in note for note in getattr(error, "__notes__", ())):
                error.add_note(f"Penstock: {self._text}")
            raise

    @property
    def _text(self) -> str:
        slot = self._order.slot(self._current)
        return f"micro-batch {slot.micro} of step {slot.step} in epoch {slot.epoch}"

    def withdraw(self) -> dict[int, Any]:
        """End the stream; the batches that are made, by slot.

        These are the ones up to the first that is not: makers are asked in order.
        """
        made: dict[int, Any] = {}
        with self._pool.makers.lock:
            while self._coming and not self._closed:
                try:
                    need, batch = self._window.take()
                except BadSampleError:
                    break
                if need is not None:
                    break
                self._pool.counts.taken += 1
                made[self._coming.popleft()] = batch
        self.close()
        return made
