"""``session.loader(dataset, num_workers=2)``: the batches of a session's steps, made ahead of them.

Which slots are a worker's is agreed step by step, so the loader predicts: in later steps they are
those of the same range. The step is the one truth: where it hands out another slot than was
predicted, because members came, went or became slower, or because a step is done again, what is
under way is dropped, and a new prediction begins at that slot. Batches that are made and are still
this worker's are kept. What is made ahead is counted by nobody: a slot counts when its step is
committed.

A batch depends on (the session's seed, epoch, indices) alone, not on who made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypedDict

from torch.utils import data as torch_data

from penstock.data.ledger import SampleOrder, derive_seed
from penstock.data.pinned.allocator import pinned_allocator
from penstock.data.queue.batch_queue import Delivery
from penstock.data.queue.credits import PREFETCH
from penstock.data.torch_loading.torch_loader import finisher
from penstock.trainer.group.division import WHOLE, Division
from penstock.trainer.group.group_channels import SessionError
from penstock.trainer.group.step import MicroBatch, Step
from penstock.trainer.group.step_slots import predict_slots
from penstock.trainer.loader.batch_makers import BatchMakers
from penstock.trainer.loader.slot_stream import SlotStream


class LoaderOptions(TypedDict, total=False):
    """What a loader may be told: as `torch.utils.data.DataLoader`, with its defaults.

    Attributes:
        collate_fn: makes a batch of the list of a micro-batch's samples.
        num_workers: processes of this worker that make batches, beside the job's data workers;
            without either the training process makes them itself.
        pin_memory: whether batches are copied to page-locked memory.
        timeout: seconds after which the wait for a batch is an error; 0: none is.
        worker_init_fn: called in each process that makes batches, with its number.
        prefetch_factor: batches that each of them is asked for ahead.
        multiprocessing_context: how processes are started.
    """

    collate_fn: Callable[[list[Any]], Any] | None
    num_workers: int
    pin_memory: bool
    timeout: float
    worker_init_fn: Callable[[int], Any] | None
    prefetch_factor: int | None
    multiprocessing_context: Any


_SESSIONS: Final = {
    "batch_size": "global_batch and slots_per_step of elastic.session say how large a batch is",
    "shuffle": "shuffle and seed of elastic.session say in which order samples come",
    "sampler": "the session's steps say which samples come",
    "batch_sampler": "the session's steps say which samples come",
    "drop_last": "a session trains on every sample",
    "generator": "seed of elastic.session is what random numbers depend on",
    "persistent_workers": "a session's workers live as long as the session",
}
"""What PyTorch's loader is told and a session's is not."""
_SHARDED: Final = "its model is in several processes, which all have to make the same calls"


class SlotSession(Protocol):
    """The session that a loader belongs to."""

    order: SampleOrder

    def skips(self, slot: int) -> bool:
        """Whether a slot, counted over all epochs, is in quarantine."""


class SessionLoader:
    """See the module's docstring; made by `Session.loader`."""

    def __init__(
        self,
        session: SlotSession,
        dataset: Any,
        options: LoaderOptions,
        division: Division = WHOLE,
        *,
        sharded: bool = False,
        place: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        """Nothing is started before the first step. ``sharded``: the model is, over processes.

        ``place``: the number of the group that trains, and this worker's index in it; None: it
        trains alone.

        Raises:
            TypeError, ValueError: the dataset or an argument cannot be used; says which and why.
        """
        _check(dataset, session.order.dataset_size, options)
        self._session = session
        self._division = division
        self._place = place
        # PyTorch's own checks and defaults; it is never iterated.
        self._loader: Any = torch_data.DataLoader(dataset, batch_size=1, **options)
        seed = derive_seed(session.order.seed, 0)
        self._makers = BatchMakers(self._loader, seed, _SHARDED if sharded else "")
        self._epoch = -1
        self._made_otherwise = False
        self._plan: tuple[SampleOrder, range] | None = None
        self._streams: deque[SlotStream] = deque()
        self._kept: dict[int, Any] = {}
        self._batch_bytes = 0
        self._closed = False

    def load(self, step: Step) -> Iterator[tuple[MicroBatch, Any]]:
        """This worker's micro-batches of a step, each with its batch: what ``collate_fn`` returns.

        Raises:
            SessionError: the step was begun already, or the session is over.
            Exception: whatever the dataset raises, with a note that names the micro-batch.
        """
        if self._closed:
            raise SessionError("the session is over: its loader gives no more batches")
        if step.micros:
            raise SessionError(
                f"step {step.number} was begun already: iterate over loader.load(step) once, "
                "instead of over the step"
            )
        place = self._place()
        if self._epoch != step.epoch:
            self._epoch = step.epoch
            seed = derive_seed(self._session.order.seed, step.epoch)
            self._made_otherwise |= self._makers.begin_epoch(seed, in_group=place is not None)
        if place is not None:
            self._makers.begin_step(step.number, *place)
        if self._made_otherwise or self._plan != (self._session.order, step.slots):
            self._predict(step, step.slots.start)
        for micro in step:
            batch = self._take(step, micro.slot.micro)
            yield micro, self._makers.deliver(batch, first=len(step.micros) == 1)

    def says(self) -> list[Any] | None:
        """What all workers of the group are to hear of this step; None: nothing."""
        return self._makers.says()

    def hears(self, words: Sequence[Any], next_step: int) -> None:
        """What all workers have said of this step, by their index."""
        self._makers.hears(words, next_step)

    def close(self) -> None:
        """Nothing more is wanted: its processes end."""
        self._closed = True
        self._drop()
        self._kept.clear()
        self._makers.close()

    # ------------------------------------------------------------------ inside

    def _take(self, step: Step, micro: int) -> Any:
        slot = step.number * self._session.order.slots_per_step + micro
        if slot not in self._kept:
            while self._streams and self._streams[0].next_slot is None:
                self._streams.popleft().close()
            if not self._streams or self._streams[0].next_slot != slot:
                self._predict(step, micro)
        if slot in self._kept:
            return self._kept.pop(slot)
        stream = self._streams[0]
        try:
            batch = stream.take()
        except BaseException:
            self._drop()  # whoever goes on after an error goes on from the step's next slot
            raise
        self._batch_bytes = max(self._batch_bytes, stream.queue.batch_bytes)
        self._look_ahead()
        return batch

    def _predict(self, step: Step, micro: int) -> None:
        """Have batches made from a slot of a step on; what is made already is kept."""
        order = self._session.order
        first = step.number * order.slots_per_step + micro
        self._kept.update(self._drop())
        if self._plan is not None and self._plan[0] != order:
            self._kept.clear()  # numbers of slots mean others now
        self._kept = {
            slot: batch
            for slot, batch in self._kept.items()
            if slot >= first and slot % order.slots_per_step in step.slots
        }
        self._plan = order, step.slots
        self._open(step.epoch, first)
        self._look_ahead()

    def _drop(self) -> dict[int, Any]:
        """End all streams; the batches that were made, by slot."""
        made: dict[int, Any] = {}
        while self._streams:
            made.update(self._streams.popleft().withdraw())
        return made

    def _look_ahead(self) -> None:
        """Begin the next epoch when all of this one is under way."""
        last = self._streams[-1]
        if (
            len(self._streams) == 1
            and last.under_way
            and last.epoch + 1 < self._session.order.epochs
        ):
            self._open(last.epoch + 1, 0)

    def _open(self, epoch: int, first: int) -> None:
        """A stream of an epoch's slots from number ``first`` on, without those that are kept."""
        assert self._plan is not None
        order, own = self._plan
        begin = max(epoch * order.steps_per_epoch, first // order.slots_per_step)
        steps = range(begin, (epoch + 1) * order.steps_per_epoch)
        kept = frozenset(self._kept)
        predicted = (
            slot
            for slot in predict_slots(order, own, self._session.skips, steps, self._division)
            if slot.number >= first and slot.number not in kept
        )
        loader = self._loader
        delivery = Delivery(
            loader.prefetch_factor or PREFETCH,
            batch_bytes=self._batch_bytes,
            finish=finisher(loader),
            timeout_seconds=loader.timeout,
            allocate=pinned_allocator(loader),
        )
        source = self._makers.source(anew=self._made_otherwise)
        self._made_otherwise = False
        self._streams.append(SlotStream(source, order, epoch, predicted, delivery))


class SessionLoaders:
    """All loaders of a session, and what their workers say to each other of each step."""

    def __init__(self) -> None:
        self._loaders: list[SessionLoader] = []

    def add(self, loader: SessionLoader) -> SessionLoader:
        """One more."""
        self._loaders.append(loader)
        return loader

    def says(self) -> list[Any] | None:
        """What all workers of the group are to hear of this step, by loader; None: nothing."""
        words = [loader.says() for loader in self._loaders]
        return words if any(word is not None for word in words) else None

    def hears(self, said: Sequence[Any], next_step: int) -> None:
        """What each worker has said, by its index; None or fewer: it has no such loaders yet."""
        for place, loader in enumerate(self._loaders if said else ()):
            loader.hears(
                [words[place] if words and place < len(words) else None for words in said],
                next_step,
            )

    def close(self) -> None:
        """The session is over."""
        for loader in self._loaders:
            loader.close()


def _check(dataset: Any, size: int, options: LoaderOptions) -> None:
    for name in options:
        if name in _SESSIONS:
            raise TypeError(f"{name}: not for a session's loader: {_SESSIONS[name]}")
        if name not in LoaderOptions.__annotations__:
            known = ", ".join(sorted(LoaderOptions.__annotations__))
            raise TypeError(f"{name}: not an argument of a session's loader; it has {known}")
    kind = type(dataset).__qualname__
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"dataset: a {kind} cannot be indexed; a session names the samples of each step by "
            "index: give a dataset with dataset[index]"
        )
    if hasattr(dataset, "__len__") and len(dataset) != size:
        raise ValueError(
            f"dataset: {len(dataset)} samples; the session has dataset_size {size}, and names "
            "samples by their index in that"
        )
