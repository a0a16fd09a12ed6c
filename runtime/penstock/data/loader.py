"""A loader of NumPy arrays and nested structures, for any framework or none.

    from penstock.data import Loader

    loader = Loader(dataset, batch_size=32, seed=0)
    for epoch in range(3):
        for batch in loader:
            ...

The order is a pure function of (seed, epoch), and each sample of (seed, epoch, index): the batches
are the same with any number of data workers, with none, and with any that come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.collate import stack
from penstock.data.consuming.batch_stream import (
    BadSample,
    Batches,
    BatchStream,
    Source,
    StreamOptions,
    options_of,
)
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.cut_chooser import CutChooser
from penstock.data.consuming.process import consumer_of_process
from penstock.data.ledger import (
    BucketOrder,
    Buckets,
    Permutation,
    SampleOrder,
    Slot,
    derive_seed,
)
from penstock.data.pipeline import BatchId, Pipeline, Stage, pack_pipeline

STATE_VERSION: Final = 1
LOOKED_UP: Final = 4096


class Loader:
    """Batches of ``dataset[0] .. dataset[len(dataset) - 1]``; each ``iter`` is the next epoch.

    ``index`` of ``count`` consumers of a ``group`` gets its part of every step: they are as many on
    each, so that all end at the same one. The last step may be smaller, unless ``drop_last``; one
    with fewer samples than consumers is left out, because each of them has to take a step.
    """

    begins_anywhere: Final = True
    """With ``load_state_dict``, without making the batches before that."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        stages: Sequence[Stage | Callable[[Any], Any]] = (),
        collate: Callable[[list[Any]], Any] = stack,
        drop_last: bool = False,
        group: str = "train",
        index: int = 0,
        count: int = 1,
        guarantee: Guarantee | None = None,
        skip_bad: bool | None = None,
        buckets: Buckets | None = None,
        consumer: Consumer | None = None,
    ) -> None:
        """``stages``: what is done with each sample and then, where a `Stage` is ``batched``, with
        each batch.

        ``buckets``: steps are of samples of like length, on all consumers of the group.

        ``guarantee`` and ``skip_bad``: as the job says, unless they are given.

        ``consumer``: instead of the process's own, which is there under ``penstock run``.

        Raises:
            ValueError: an argument cannot be used; says which and why.
        """
        if not 0 <= index < count:
            raise ValueError(f"index: {index}; must be from 0 to count - 1, which is {count - 1}")
        if not hasattr(dataset, "__len__"):
            raise ValueError(
                f"dataset: a {type(dataset).__qualname__} has no len(): the order of samples is "
                "known before they come; what is iterated goes through penstock.data.DataLoader"
            )
        self._consumer = consumer or consumer_of_process()
        guarantee = guarantee or options_of(self._consumer).guarantee
        if guarantee is Guarantee.UNSHARDED:
            # Everybody then has the whole dataset in an order of its own: a group of one, and a
            # seed that differs.
            seed, index, count = derive_seed(seed, index), 0, 1
            guarantee = Guarantee.EXACTLY_ONCE
        staged = [one if isinstance(one, Stage) else Stage(one) for one in stages]
        if [stage.batched for stage in staged] != sorted(stage.batched for stage in staged):
            raise ValueError("stages: one of single samples comes after one of whole batches")
        self._pipeline = Pipeline(dataset, collate, staged)
        shape = (len(dataset), batch_size * count, count, 1, seed, shuffle)
        self._order = BucketOrder(*shape, buckets=buckets) if buckets else SampleOrder(*shape)
        self._digest = buckets.digest if buckets else ""
        self._seed = seed
        self._steps = self._order.steps_per_epoch
        rest = self._order.step_size(self._steps - 1)
        if rest < count or (rest < batch_size * count and drop_last):
            self._steps -= 1
        self._group, self._index = group, index
        self._options = StreamOptions(guarantee=guarantee, skip_bad=skip_bad)
        self._epoch = 0
        self._position = 0
        self._chooser = CutChooser()
        self._stream: BatchStream | None = None
        self.quarantine: list[BadSample] = []
        """Samples that were left out, with ``skip_bad``."""

    def __len__(self) -> int:
        """Steps of one epoch."""
        return self._steps

    @property
    def lost(self) -> int:
        """Steps of the present epoch that were lost; 0 but for `Guarantee.AT_MOST_ONCE`."""
        return self._stream.lost if self._stream is not None else 0

    def __iter__(self) -> Iterator[Any]:
        consumer = self._consumer
        token = consumer.token if consumer else ""
        if self._stream is not None:
            self._stream.close()
        epoch, start = self._epoch, self._position
        self._position = 0
        self._stream = BatchStream(
            consumer,
            Source(
                self._pipeline,
                b"",
                lambda: pack_pipeline(self._pipeline, token),
                at_once=True,
                pack_cut=lambda head: pack_pipeline(head, token),
                chooser=self._chooser,
            ),
            derive_seed(self._seed, epoch),
            BatchId(self._group, self._index, epoch, start),
            self._indices(epoch, start),
            self._options,
            self.quarantine,
        )
        self._epoch += 1
        return Batches(self._stream)

    def _indices(self, epoch: int, start: int) -> Iterator[list[int]]:
        """What `SampleOrder.samples` gives for each step, looked up many steps at a time."""
        if isinstance(self._order, BucketOrder):
            for step in range(start, self._steps):
                yield self._order.samples(Slot(epoch, step, self._index)).tolist()
            return
        order, together = self._order, max(1, LOOKED_UP // self._order.global_batch)
        shuffled = Permutation(order.dataset_size, derive_seed(self._seed, epoch))
        for first in range(start, self._steps, together):
            begin = first * order.global_batch
            end = min(begin + together * order.global_batch, order.dataset_size)
            looked_up = shuffled.take(begin, end).tolist() if order.shuffle else range(begin, end)
            for step in range(first, min(first + together, self._steps)):
                low, high = order.positions(Slot(epoch, step, self._index))
                yield list(looked_up[low - begin : high - begin])

    def state_dict(self) -> dict[str, Any]:
        """Where the program is: put it into the checkpoint, beside the model that saw it."""
        stream = self._stream
        epoch, position = self._epoch, self._position
        if stream is not None and stream.position < self._steps:
            epoch, position = epoch - 1, stream.position
        state = {"version": STATE_VERSION, "epoch": epoch, "position": position}
        return {**state, "buckets": self._digest} if self._digest else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there with the next ``iter``.

        Raises:
            ValueError: it is not a state of such a loader.
        """
        if (theirs := state.get("buckets", "")) != self._digest:
            raise ValueError(
                f"buckets: the state was saved with {theirs or 'none'}, this loader has "
                f"{self._digest or 'none'}: other lengths or boundaries give another order"
            )
        version, epoch, position = (state.get(key) for key in ("version", "epoch", "position"))
        if version != STATE_VERSION:
            raise ValueError(f"version: {version!r}; this loader reads {STATE_VERSION}")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0:
            raise ValueError(f"state: {state!r}; epoch and position must be integers from 0")
        if not 0 <= position <= self._steps:
            raise ValueError(f"position: {position}; an epoch has {self._steps} steps")
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._epoch, self._position = epoch, position
