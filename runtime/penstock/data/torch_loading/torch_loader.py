"""PyTorch's DataLoader with its batches made by data workers; otherwise the same.

    from penstock.data import DataLoader      # instead of torch.utils.data

Under ``penstock run`` the same happens to `torch.utils.data.DataLoader` itself, in a program that
does not know of it (`intercept`). The program's own sampler is iterated in the program's process;
``dataset[i]``, augmentation and ``collate_fn`` move. What cannot move stays as PyTorch does it, and
one line of the log says why.

The processes that a loader asks for (``num_workers``) make batches too, as local workers: without
data workers a program has all it has by itself.

Random numbers: the loader draws its base seed from its generator when an epoch begins, exactly as
PyTorch does, so the sampler then draws what it would have drawn without Penstock. Samples are
seeded from that base seed and their index. The program's own generators are left as they were.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.crds import environment as names
from penstock.data.complaints import Complaints
from penstock.data.consuming.batch_stream import (
    LOOKAHEAD,
    BadSample,
    Batches,
    BatchStream,
    Source,
    StreamOptions,
    Streams,
    options_of,
    start_local_workers,
)
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.cut_chooser import CutChooser
from penstock.data.consuming.iterable_stream import IterableStream
from penstock.data.consuming.process import consumer_of_process, job_token, number_in
from penstock.data.consuming.shared_stream import SharedStream
from penstock.data.dataset_watch import KEEPS_STATE
from penstock.data.errors import PipelineTooLargeError
from penstock.data.ledger import derive_seed
from penstock.data.local.workers import LocalOptions, LocalWorkers
from penstock.data.partition.balance import Balance
from penstock.data.pinned.allocator import pinned_allocator
from penstock.data.pipeline import BatchId, PackedPipeline, Pipeline, pack_pipeline
from penstock.data.queue.batch_queue import Delivery
from penstock.data.queue.credits import PREFETCH
from penstock.data.streams.pipeline import StreamPipeline
from penstock.data.torch_loading.assumed_order import AssumedOrder
from penstock.data.torch_loading.free_batches import FreeBatches
from penstock.data.torch_loading.loader_work import LoaderWork, batch_stage, work_of_loader
from penstock.data.torch_loading.persistent_pipeline import PersistentPipeline
from penstock.data.torch_loading.torch_buckets import by_length, measured_lengths
from penstock.data.torch_loading.torch_sampling import (
    begin_sampling,
    generators_of,
    is_known,
    sampler_name,
    whole,
)
from penstock.data.torch_loading.torch_sharing import (
    DiffersError,
    EpochOrder,
    SharedLoader,
    begun_in,
    check_ranks,
    draw_as_alone,
    saved_place,
    shared_loader,
    steps_of,
)
from penstock.data.torch_loading.torch_streams import is_iterable, pack_streams, stream_pipeline
from penstock.data.torch_loading.worker_setup import WorkerSetup, indexed_pipeline
from penstock.data.variables import PARTITION_SHARE

logger = logging.getLogger(__name__)

STATE_VERSION: Final = 1
_numbers = itertools.count()
_complaints: Final = Complaints()


def why_local(loader: Any, *, trust_sampler: bool) -> str | None:
    """Why a loader goes the way that PyTorch has for it; None if it goes ours."""
    if isinstance(loader.dataset, torch_data.IterDataPipe | torch_data.MapDataPipe):
        return "its dataset is a DataPipe, which PyTorch shuffles and divides through its workers"
    if torch_data.get_worker_info() is not None:
        return "it is in a process of another loader"
    if not getattr(loader, "in_order", True):
        return "in_order=False: it wants its batches in the order in which they are ready"
    if is_iterable(loader) and loader.persistent_workers and not trust_sampler:
        return (
            "an iterable dataset with persistent_workers=True goes on in each epoch, random "
            "numbers included, from where its workers were when the last one ended"
        )
    if (
        not loader.num_workers
        and not trust_sampler
        and not is_iterable(loader)
        and not is_known(loader)
    ):
        return (
            f"its sampler {sampler_name(loader)} may depend on the training and, with "
            "num_workers=0, is asked for one batch at a time; use penstock.data.DataLoader to have "
            "it iterated ahead"
        )
    return None


def tell_stays(loader: Any, problem: str, complaints: Complaints = _complaints) -> None:
    """Say, once, that a loader is not served, and why."""
    dataset = type(loader.dataset).__qualname__
    complaints.add(
        f"a {type(loader).__qualname__} of {dataset}", f"stays as PyTorch has it: {problem}"
    )


class TorchBatches(Batches):
    """The iterator of one epoch."""

    def __init__(self, stream: BatchStream, length: Callable[[], int], epochs: Epochs) -> None:
        super().__init__(stream)
        self._length = length
        self._epochs = epochs  # whose local workers live as long, though the loader may be gone

    def begin_again(self, stream: BatchStream, length: Callable[[], int]) -> None:
        """A loader with persistent workers has but one iterator, which begins its next epoch."""
        self.stream, self._length = stream, length

    def __len__(self) -> int:
        return self._length()

    def __next__(self) -> Any:
        if (assumed := self._epochs.assumed) is not None:
            self._epochs.assumed = assumed.checked()
        if (calls := self._epochs.calls) is not None:
            calls.end_step()
        batch = super().__next__()
        return batch if calls is None else calls.deliver(batch)


def finisher(loader: Any) -> Callable[[Any], Any] | None:
    """What is done with a loader's batches where they arrive: they are pinned, if it says so."""
    if not loader.pin_memory or not torch.accelerator.is_available():
        return None
    from torch.utils.data._utils import pin_memory

    pin: Callable[[Any], Any] = pin_memory.pin_memory
    device = torch.accelerator.current_device_index()

    def finish(batch: Any) -> Any:
        torch.accelerator.set_device_index(device)  # of this thread
        return pin(batch)

    return finish


@dataclass(frozen=True)
class _Making:
    """What makes the batches of an epoch, and with which seed."""

    source: Source
    seed: int
    local: LocalWorkers | None
    streams: Streams | None


class Epochs:
    """What is remembered of one DataLoader from epoch to epoch."""

    def __init__(self, *, guarantee: Guarantee | None = None, skip_bad: bool | None = None) -> None:
        self.group = f"loader-{next(_numbers)}"
        self.epoch = 0
        self.stream: BatchStream | None = None
        self.start: dict[str, Any] | None = None  # of the epoch under way
        self.order: EpochOrder | None = None  # of it, if that is not of the loader's sampler
        self.assumed: AssumedOrder | None = None  # nobody has said of several ranks' yet
        self.alone: FreeBatches | None = None  # of it, where the order is free, and nobody shares
        self.resume: dict[str, Any] | None = None
        self.quarantine: list[BadSample] = []
        self.options = StreamOptions(guarantee=guarantee, skip_bad=skip_bad)
        self._complaints = Complaints()
        self._batches: Callable[[], TorchBatches | None] = lambda: None
        self._too_large: list[str] = []  # why its pipeline is not even packed
        self.local: LocalWorkers | None = None  # that live from epoch to epoch
        self.persistent: PersistentPipeline | None = None  # of such
        self.base_seed: int | None = None  # of such
        self.calls: LoaderWork | None = None  # with its batches
        self._chooser = CutChooser()
        self._balance = Balance(PARTITION_SHARE.now())

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a loader, in this process or another, begins with an epoch of its own."""
        return _fresh_epochs, (self.options,)

    def __del__(self) -> None:
        if (local := getattr(self, "local", None)) is not None:
            local.stop()

    def begin(self, loader: Any, *, trust_sampler: bool) -> TorchBatches | None:
        """The next epoch; None when the loader is to go its usual way."""
        problem = why_local(loader, trust_sampler=trust_sampler)
        resume, here = self.resume or {}, self.stream is not None and self.stream.queue.keeps_state
        watched = not loader.num_workers and not trust_sampler
        if problem is None:
            of_process = consumer_of_process()  # of which a loader that stays has no need
            heard = of_process is not None and of_process.has_heard
            consumer, options, shares = self._shared_or_not(loader, resume, here, watched=watched)
            problem = KEEPS_STATE if here and shares is None else None
        if problem is not None:
            tell_stays(loader, problem, self._complaints)
            return None
        self.resume = None
        if self.stream is not None and loader.persistent_workers:
            self.stream.abandon()  # PyTorch, too, has but one iterator then
        self.calls = work_of_loader(loader, before=self.calls, again=self.epoch > 0)
        rank = number_in("RANK", number_in(names.RANK))
        own = self.options.guarantee
        self.assumed = None if resume else AssumedOrder.of(loader, of_process, heard, own)
        self.order, self.alone = None if shares is None else shares.order, None
        if consumer is not None and self.calls is not None:
            consumer.partition.follow(self.calls)
        free = shares is not None and shares.is_free
        if shares is not None and free and shares.packed is not None:
            return self._begin_free(loader, shares, options, rank, resume.get("tiles"))
        arrange, guarantee = self._arrangement(loader, consumer, options.guarantee, rank, free)
        drawn, sampler, indices = self._begin_sampling(loader, arrange, shares, resume)
        ends = resume.get("ends") or {}
        making = self._making(loader, consumer, shares, drawn, ends, watched=watched)
        delivery = self._delivery(loader, trust_sampler=trust_sampler)
        iterated = is_iterable(loader)
        self.stream = (IterableStream if iterated else BatchStream)(
            consumer,
            making.source,
            making.seed,
            BatchId(self.group, rank, self.epoch, 0 if free else int(resume.get("yielded", 0))),
            indices,
            replace(options, guarantee=guarantee, delivery=delivery),
            self.quarantine,
            making.local,
            keeps_local=loader.persistent_workers,
            streams=making.streams,
            # PyTorch asks a sampler for nothing before its first batch is wanted, without workers.
            at_once=iterated or bool(loader.num_workers),
            static=shares is not None,
        )
        if shares is not None:
            shares.follow(self.stream, sampler, self.epoch)
        self.epoch += 1
        return self._iterator(loader, self.stream, lambda: len(sampler))

    def _shared_or_not(
        self, loader: Any, resume: dict[str, Any], here: bool, *, watched: bool
    ) -> tuple[Consumer | None, StreamOptions, SharedLoader | None]:
        """Who takes the epoch's batches, on what terms, and how they are shared, if they are.

        ``here``: this process alone is to make them.
        """
        consumer = consumer_of_process()
        guarantee = self.options.guarantee or options_of(consumer).guarantee
        options = replace(self.options, guarantee=guarantee)
        try:
            shares = None
            if not is_iterable(loader):
                setup = WorkerSetup(loader.dataset, loader.num_workers, 0, loader.worker_init_fn)
                pipeline = partial(indexed_pipeline, loader, setup, watched=watched)
                local = LocalOptions(1, loader.multiprocessing_context, setup)
                terms = (pipeline, local, guarantee, self._complaints)
                begun = begun_in(resume)
                shares = shared_loader(loader, consumer, *terms, begun=begun, stays_here=here)
            served = shares is None or shares.consumer is not None
        except DiffersError:
            shares, served = None, False
        if served:
            return consumer, options, shares
        return None, replace(options, skip_bad=self._skips_bad(consumer)), shares

    def _arrangement(
        self,
        loader: Any,
        consumer: Consumer | None,
        guarantee: Guarantee | None,
        rank: int,
        free: bool,
    ) -> tuple[Callable[[], Any], Guarantee | None]:
        """What makes the epoch's sampler, and what is promised of what that gives.

        ``free``: it comes in the free order of a share group, which has no sampler of its own.
        """
        given = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        arrange: Callable[[], Any] = lambda: given  # noqa: E731  replaced below where nobody shards
        if free:
            return arrange, Guarantee.EXACTLY_ONCE
        if guarantee is Guarantee.UNSHARDED and not is_iterable(loader):
            # Everybody then has all that the program's sampler divides, in an order of its own.
            arrange = lambda: whole(given, rank, self.epoch)  # noqa: E731  one expression
            guarantee = Guarantee.EXACTLY_ONCE
        return self._by_length(loader, arrange, consumer), guarantee

    def _begin_sampling(
        self,
        loader: Any,
        arrange: Callable[[], Any],
        shares: SharedLoader | None,
        resume: dict[str, Any],
    ) -> tuple[int, Any, Iterator[Any]]:
        """The epoch's base seed, its sampler, and what that gives from where the program is."""
        start, position = resume.get("start"), int(resume.get("yielded", 0))
        known = self.base_seed if loader.persistent_workers else None
        if shares is None:
            drawn, sampler, indices, self.start = begin_sampling(
                loader, arrange, start, position, known
            )
            if loader.persistent_workers:
                self.base_seed = drawn  # PyTorch's live on, and so does what the first epoch drew
            return drawn, sampler, indices
        if shares.is_free:
            drawn, self.start = draw_as_alone(loader), None
            self.alone = shares.free_batches(loader, drawn, resume.get("tiles"))
            return drawn, self.alone, iter(self.alone)
        first = 0 if start is None else int(start.get("first", 0))
        if start is None:
            draw_as_alone(loader)
            if not self.epoch:
                self.epoch, first = shares.front(loader)
        drawn, sampler, indices, self.start = begin_sampling(
            loader,
            lambda: shares.batches(loader, arrange(), self.epoch, first),
            start,
            position,
            shares.seed(self.epoch),
        )
        self.start["first"] = first
        return drawn, sampler, indices

    def _making(
        self,
        loader: Any,
        consumer: Consumer | None,
        shares: SharedLoader | None,
        drawn: int,
        ends: dict[int, int],
        *,
        watched: bool,
    ) -> _Making:
        """What makes the epoch's batches; ``ends``: of streams that have ended before."""
        setup, streams = None, None
        pipeline: Pipeline | StreamPipeline
        if is_iterable(loader):
            pipeline = stream_pipeline(loader, watched=watched)
            seed, streams = drawn, Streams(max(1, loader.num_workers), ends)
        else:
            setup = WorkerSetup(loader.dataset, loader.num_workers, drawn, loader.worker_init_fn)
            pipeline = indexed_pipeline(loader, setup, watched=watched)
            again = loader.persistent_workers and self.epoch and shares is None
            seed = derive_seed(drawn, self.epoch) if again else drawn
        if shares is not None and shares.packed is not None:
            batch_stage(self.calls, loader, shared=True)
            return _Making(shares.source, seed, None, streams)
        stage, sent = batch_stage(self.calls, loader, seed), pipeline
        if stage is not None and isinstance(pipeline, Pipeline):
            sent = replace(pipeline, batch_stage=stage)
        local = self._local_workers(loader, consumer, sent, setup)
        token = consumer.token if consumer else job_token()
        return _Making(self._source(pipeline, sent, local, token), seed, local, streams)

    def _iterator(
        self, loader: Any, stream: BatchStream, length: Callable[[], int]
    ) -> TorchBatches:
        """What the program iterates: a loader with persistent workers has one for all epochs."""
        batches = self._batches() if loader.persistent_workers else None
        if batches is None:
            batches = TorchBatches(stream, length, self)
            self._batches = weakref.ref(batches)
        else:
            batches.begin_again(stream, length)
        return batches

    def _skips_bad(self, consumer: Consumer | None) -> bool:
        own = self.options.skip_bad
        return options_of(consumer).skip_bad if own is None else own

    def _begin_free(
        self,
        loader: Any,
        shares: SharedLoader,
        options: StreamOptions,
        rank: int,
        tiles: dict[str, Any] | None,
    ) -> TorchBatches:
        batch_stage(self.calls, loader, shared=True)
        drawn = draw_as_alone(loader)
        delivery = self._delivery(loader, trust_sampler=True)
        options = replace(options, guarantee=Guarantee.EXACTLY_ONCE, delivery=delivery)
        name = BatchId(self.group, rank, self.epoch, 0)
        self.start = None
        self.stream = shares.begin(loader, name, drawn, options, self.quarantine, tiles)
        self.epoch += 1
        steps = steps_of(loader)
        return self._iterator(loader, self.stream, lambda: steps)

    def _by_length(
        self, loader: Any, arrange: Callable[[], Any], consumer: Consumer | None
    ) -> Callable[[], Any]:
        """What makes the sampler of an epoch, as the job says."""
        setup = WorkerSetup(loader.dataset, loader.num_workers, 0, loader.worker_init_fn)
        measure = partial(measured_lengths, loader, consumer, setup)
        asked = options_of(consumer).buckets
        return by_length(loader, arrange, asked, measure, self._complaints)

    def _source(
        self,
        pipeline: Pipeline | StreamPipeline,
        sent: Pipeline | StreamPipeline,
        local: LocalWorkers | None,
        token: str,
    ) -> Source:
        """``pipeline``: of the program itself; ``sent``: of all others."""
        too_large, calls = self._too_large, self.calls

        def pack_now() -> PackedPipeline:
            if too_large:
                raise PipelineTooLargeError(too_large[0])  # it will not have become smaller
            try:
                if isinstance(pipeline, StreamPipeline):
                    return pack_streams(pipeline, token)
                if sent is not pipeline and calls is not None:
                    try:
                        return pack_pipeline(sent, token)
                    except PipelineTooLargeError:
                        calls.refuse("it is too large to be sent beside the dataset")
                return pack_pipeline(pipeline, token)
            except PipelineTooLargeError as error:
                too_large.append(str(error))
                raise

        kept = self.persistent if local is not None and local is self.local else None

        def pack_head(head: Pipeline) -> PackedPipeline:
            pack = partial(pack_pipeline, head, token)
            return pack() if kept is None else kept.pack_cut(pack)

        pack = pack_now if kept is None else partial(kept.pack, pack_now)
        key, whole = b"" if local is None else local.key, sent is pipeline
        cut, chooser = pack_head if whole else None, self._chooser
        return Source(
            pipeline, key, pack, sent=sent, pack_cut=cut, chooser=chooser, balance=self._balance
        )

    def _delivery(self, loader: Any, *, trust_sampler: bool) -> Delivery:
        prefetch, ahead = loader.prefetch_factor or PREFETCH, None
        if not is_iterable(loader) and not is_known(loader):
            ahead = LOOKAHEAD if trust_sampler else prefetch * loader.num_workers
        finish, allocate = finisher(loader), pinned_allocator(loader)
        return Delivery(prefetch, ahead, self.batch_bytes, finish, loader.timeout, allocate)

    @property
    def batch_bytes(self) -> int:
        """Of the largest batch so far; 0 before the first epoch."""
        return self.stream.queue.batch_bytes if self.stream is not None else 0

    def _local_workers(
        self,
        loader: Any,
        consumer: Consumer | None,
        pipeline: Pipeline | StreamPipeline,
        setup: WorkerSetup | None,
    ) -> LocalWorkers | None:
        """The processes that the program asked its loader for."""
        if not loader.num_workers:
            return None
        if self.local is not None and self.local.ours and loader.persistent_workers:
            return self.local
        asked = LocalOptions(loader.num_workers, loader.multiprocessing_context, setup)
        local = start_local_workers(consumer, pipeline, asked)
        if loader.persistent_workers:
            self.local, self.persistent = local, PersistentPipeline(loader.dataset)
        return local

    def state(self, loader: Any) -> dict[str, Any]:
        """Where the program is in the present epoch, or that it is between two."""
        stream = self.stream
        under_way, tiles = stream is not None and not stream.finished, None
        if under_way and isinstance(stream, SharedStream):
            tiles = stream.tiles
        elif under_way and stream is not None and self.alone is not None:
            tiles = self.alone.snapshot(stream.position)
        return {
            "version": STATE_VERSION,
            "epoch": self.epoch - 1 if under_way else self.epoch,
            "yielded": stream.position if under_way and stream is not None else 0,
            **saved_place(self.order, self.start if under_way else None, tiles, loader),
            "generators": [one.get_state() for one in generators_of(loader)],
            "base_seed": self.base_seed,
            "ends": stream.ends if under_way and stream is not None else {},
        }

    def load(self, loader: Any, state: dict[str, Any]) -> None:
        """Go on from there with the next ``iter``."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"version: {state.get('version')!r}; this loader reads {STATE_VERSION}"
            )
        generators = generators_of(loader)
        if len(state["generators"]) != len(generators):
            raise ValueError(
                f"generators: {len(state['generators'])} in the state, {len(generators)} here: the "
                "state is of a loader made in another way"
            )
        check_ranks(state, loader)
        if self.stream is not None:
            self.stream.abandon()
            self.stream = None
        self.epoch = int(state["epoch"])
        self.base_seed = state.get("base_seed")  # a state of an earlier release has none
        if state["start"] is not None or state.get("tiles") is not None:
            self.resume = {
                "tiles": state.get("tiles"),
                "order": state.get("order"),
                "start": state["start"],
                "yielded": state["yielded"],
                "ends": state.get("ends"),  # a state of an earlier release has none
            }
            return
        self.resume = None
        for generator, one in zip(generators, state["generators"], strict=True):
            generator.set_state(one)


def _fresh_epochs(options: StreamOptions) -> Epochs:
    return Epochs(guarantee=options.guarantee, skip_bad=options.skip_bad)


class DataLoader(torch_data.DataLoader[Any]):
    """`torch.utils.data.DataLoader`, the same arguments; see the module's docstring.

    ``num_workers`` are this process's own, beside whatever data workers the job has. Beside that it
    has ``state_dict`` and ``load_state_dict``, ``guarantee``, and ``skip_bad``: leave out
    samples that raise, which are then in ``quarantine``. Both are as the job says, unless given.
    """

    def __init__(
        self,
        *arguments: Any,
        guarantee: Guarantee | None = None,
        skip_bad: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._penstock = Epochs(guarantee=guarantee, skip_bad=skip_bad)

    def __iter__(self) -> Any:
        ours = self._penstock.begin(self, trust_sampler=True)
        return super().__iter__() if ours is None else ours

    @property
    def lost(self) -> int:
        """Steps of the present epoch that were lost; 0 but for `Guarantee.AT_MOST_ONCE`."""
        stream = self._penstock.stream
        return stream.lost if stream is not None else 0

    @property
    def quarantine(self) -> list[BadSample]:
        """Samples that were left out."""
        return self._penstock.quarantine

    def state_dict(self) -> dict[str, Any]:
        """Where the program is: put it into the checkpoint, beside the model that saw it."""
        return self._penstock.state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there with the next ``iter``; ValueError if it is of another loader."""
        self._penstock.load(self, state)


def begin(loader: Any, plain: Callable[[Any], Any]) -> Any:
    """`iter` of a DataLoader of a program that knows nothing of Penstock."""
    if isinstance(loader, DataLoader):
        return plain(loader)
    epochs = loader.__dict__.get("_penstock_epochs")
    if epochs is None:
        epochs = Epochs()
        object.__setattr__(loader, "_penstock_epochs", epochs)
    ours = epochs.begin(loader, trust_sampler=False)
    return plain(loader) if ours is None else ours
