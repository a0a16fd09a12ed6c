"""What makes the batches of a dataset that is iterated (PyTorch's ``IterableDataset``).

PyTorch gives each worker of a loader a copy of such a dataset, to take its part of the samples by
the worker's number, and takes batches from the workers in turn. So does Penstock: what a worker
would give is a *stream*, and each stream is hosted by one maker, whoever that is: the worker's
process, a data worker, the program itself. A stream has the worker's number, its seeds and its copy
of the dataset, so its samples are those that the program has alone.

A stream is named by its number and asked for batch after batch. Whoever is asked for a batch that
is not the next one begins the stream again and passes over what was before: this is how a stream
goes on after its maker was lost, exactly where it was if it is the same each time it is begun. If
not, `NotRepeatableError` says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.data.dataset_watch import DatasetWatch
from penstock.data.errors import DataError
from penstock.data.generator_states import generator_states, set_generator_states
from penstock.data.pipeline import AnyPipeline
from penstock.data.streams.digest import NOTHING, UNKNOWN

RANKS: Final = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
)
"""What datasets read to divide their samples between training processes."""
MAX_HOSTED: Final = 256
"""Streams of one training process at one maker."""


class StreamEndedError(DataError):
    """The stream has no more batches."""


class NotRepeatableError(DataError):
    """The stream was begun again, and did not give what it had given before."""


class StopHostingError(DataError):
    """Whoever hosts the stream is to leave."""


class Address(NamedTuple):
    """A batch of a stream.

    Attributes:
        number: of the stream, in 0 .. count - 1.
        position: batches of it that come before.
        digest: of these (`penstock.data.streams.digest`).
    """

    number: int
    position: int
    digest: int


Setup = Callable[[Any, int, int], None]
"""What is done before a stream is begun, given its dataset, number and seed, in its process."""
Chain = Callable[[int, Any], int]
"""The digest of a batch and those before it, given the digest of those before."""


@dataclass(frozen=True)
class StreamPipeline(AnyPipeline):
    """What makes the batches of all streams of a loader.

    Attributes:
        batch_size: samples of a batch; None: each sample is one.
        drop_last: a stream's last batch is left out if it is smaller.
        setup: see `Setup`.
        persistent: a stream's process lives on, and begins the next epoch's as it is.
        environ: of `RANKS`, what is set in the program.
        watched: what the streams do to their dataset is the program's to see
            (`penstock.data.dataset_watch`).
        fresh: gives a pipeline whose dataset nobody has iterated; None: this one is.
    """

    dataset: Any
    collate: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool = False
    setup: Setup | None = None
    persistent: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    watched: bool = False
    fresh: Callable[[], StreamPipeline] | None = None

    @property
    def batched(self) -> bool:
        """Whether a batch is of several samples."""
        return self.batch_size is not None

    def batches(self) -> Iterator[Any]:
        """All batches of one stream, in this process as it is (PyTorch's order of calls)."""
        samples = iter(self.dataset)
        if self.batch_size is None:
            for sample in samples:
                yield self.collate(sample)
            return
        ended = False
        while not ended:
            batch: list[Any] = []
            for _ in range(self.batch_size):
                try:
                    batch.append(next(samples))
                except StopIteration:
                    ended = True
                    break
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                return
            yield self.collate(batch)


def ranks_of(environ: dict[str, str]) -> dict[str, str]:
    """The place of a process among those that train together, as datasets look for it."""
    return {name: environ[name] for name in RANKS if name in environ}


class StreamHost:
    """The streams that this process makes for one training process; for one thread.

    A local worker has its process to itself (``alone``), and its streams are in it as in PyTorch's.
    Elsewhere each has its own random numbers, worker number and rank while its batches are made.
    ``watches``: this is not the program, which is to see what becomes of its dataset.
    """

    def __init__(self, *, alone: bool = False, watches: bool = False) -> None:
        self._alone = alone
        self._watches = watches
        self._hosted: dict[tuple[int, int], _Hosted] = {}
        self._prepared: set[int] = set()

    def make(
        self,
        epoch: int,
        pipeline: StreamPipeline,
        seed: int,
        address: Address,
        chain: Chain,
        leaving: Callable[[], bool] = lambda: False,
    ) -> Any:
        """The batch of that address.

        Args:
            epoch: tells streams of the same number apart.
            pipeline: that makes them.
            seed: of the epoch.
            address: of the batch.
            chain: digests what is passed over.
            leaving: whether to give up passing over.

        Raises:
            StreamEndedError: there is none: the stream ended before.
            NotRepeatableError: what comes before it is not what the program was given.
            StopHostingError: it was ``leaving``.
            KeepsStateError: the stream changes its dataset, and the program is to see that.
            Exception: whatever the program's own code raises.
        """
        key = (epoch, address.number)
        hosted = self._hosted.get(key)
        if hosted is None or hosted.position > address.position:
            if len(self._hosted) >= MAX_HOSTED:
                raise DataError(f"{MAX_HOSTED} streams are open here already")
            hosted = self._hosted[key] = self._begin(pipeline, address.number, seed)
        if hosted.ended:
            raise StreamEndedError(f"stream {address.number} has {hosted.position} batches")
        try:
            with hosted.at_work():
                if hosted.position < address.position:
                    hosted.pass_over(address, chain, leaving)
                return hosted.next_batch()
        except BaseException:
            if not hosted.ended:
                self._hosted.pop(key, None)
            raise

    def drop(self, epoch: int) -> None:
        """Nothing more is wanted of these streams; any thread may say so."""
        for key in [key for key in list(self._hosted) if key[0] == epoch]:
            self._hosted.pop(key, None)

    def drop_all(self) -> None:
        """Nothing more is wanted at all."""
        self._hosted.clear()

    def _begin(self, pipeline: StreamPipeline, number: int, seed: int) -> _Hosted:
        again = pipeline.persistent and number in self._prepared
        self._prepared.add(number)
        opened = pipeline if pipeline.fresh is None else pipeline.fresh()
        hosted = _Hosted(opened, number, seed, alone=self._alone, prepared=again)
        if self._watches and pipeline.watched:
            hosted.watch = DatasetWatch(opened.dataset)
        return hosted


class _Hosted:
    """One stream, begun."""

    def __init__(
        self, pipeline: StreamPipeline, number: int, seed: int, *, alone: bool, prepared: bool
    ) -> None:
        self.position = 0
        self.ended = False
        self._pipeline, self._number, self._seed = pipeline, number, seed
        self._alone, self._prepared = alone, prepared
        self._batches: Iterator[Any] | None = None
        self._states: list[Any] | None = None
        self._info: Any = None
        self.watch: DatasetWatch | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the process be the stream's, and what it was before afterwards."""
        if self._alone:
            self._prepare()
            yield
            return
        before, info = generator_states(), _worker_info()
        environ = {name: os.environ.get(name) for name in self._pipeline.environ}
        try:
            if environ:
                os.environ.update(self._pipeline.environ)
            if self._states is not None:
                set_generator_states(self._states)
                _set_worker_info(self._info)
            self._prepare()
            yield
            self._states, self._info = generator_states(), _worker_info()
        finally:
            set_generator_states(before)
            _set_worker_info(info)
            for name, value in environ.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _prepare(self) -> None:
        if not self._prepared and self._pipeline.setup is not None:
            self._pipeline.setup(self._pipeline.dataset, self._number, self._seed)
        self._prepared = True
        if self._batches is None:
            self._batches = self._pipeline.batches()

    def next_batch(self) -> Any:
        assert self._batches is not None
        try:
            batch = next(self._batches)
        except StopIteration:
            self.ended = True
            raise StreamEndedError(f"stream {self._number} has {self.position} batches") from None
        finally:
            if self.watch is not None:
                self.watch.check()
        self.position += 1
        return batch

    def pass_over(self, address: Address, chain: Chain, leaving: Callable[[], bool]) -> None:
        digest = NOTHING if self.position == 0 else UNKNOWN
        while self.position < address.position:
            if leaving():
                raise StopHostingError("this process is to leave")
            try:
                batch = self.next_batch()
            except StreamEndedError as error:
                raise NotRepeatableError(
                    f"it ended after {self.position} batches, and had given {address.position} "
                    "before"
                ) from error
            digest = chain(digest, batch)
        if UNKNOWN not in (digest, address.digest) and digest != address.digest:
            raise NotRepeatableError(
                f"its first {address.position} batches are not what they were before"
            )


def _worker_info() -> Any:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return None if worker is None else worker._worker_info


def _set_worker_info(info: Any) -> None:
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    if worker is not None:
        worker._worker_info = info
