"""PyTorch's DataLoader with its batches made by data workers; otherwise the same.

    from penstock.data import DataLoader      # instead of torch.utils.data

Under ``penstock run`` the same happens to `torch.utils.data.DataLoader` itself, in a program that
does not know of it (`intercept`). The program's own sampler is iterated in the program's process;
``dataset[i]``, augmentation and ``collate_fn`` move. What cannot move stays as PyTorch does it, and
one line of the log says why.

Random numbers: the loader draws its base seed from its generator when an epoch begins, exactly as
PyTorch does, so the sampler then draws what it would have drawn without Penstock. Samples are
seeded from that base seed and their index. The program's own generators are left as they were.
"""

from __future__ import annotations

import copy
import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.crds import environment as names
from penstock.data.batch_stream import BadSample, Batches, BatchStream, StreamOptions, options_of
from penstock.data.errors import NotPortableError
from penstock.data.ledger import derive_seed
from penstock.data.pipeline import BatchId, Pipeline, pack_pipeline
from penstock.data.process import consumer_of_process, job_token, number_in

logger = logging.getLogger(__name__)

STATE_VERSION: Final = 1
_KNOWN_SAMPLERS: Final = (
    torch_data.SequentialSampler,
    torch_data.RandomSampler,
    torch_data.SubsetRandomSampler,
    torch_data.WeightedRandomSampler,
    torch_data.BatchSampler,
    torch_data.DistributedSampler,
)
_numbers = itertools.count()


def why_local(loader: Any, *, trust_sampler: bool) -> str | None:
    """Why a loader's batches cannot be made elsewhere; None if they can."""
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return "its dataset is iterable: it has no indices to hand out"
    if loader.worker_init_fn is not None:
        return "it has a worker_init_fn, which may do anything to the process it runs in"
    if torch_data.get_worker_info() is not None:
        return "it is in a process of another loader"
    if not trust_sampler:
        for sampler in (loader.sampler, loader.batch_sampler):
            if sampler is not None and type(sampler) not in _KNOWN_SAMPLERS:
                return (
                    f"its sampler {type(sampler).__qualname__} may depend on the training; use "
                    "penstock.data.DataLoader to have it iterated ahead"
                )
    return None


class TorchBatches(Batches):
    """The iterator of one epoch."""

    def __init__(
        self, stream: BatchStream, length: Callable[[], int], finish: Callable[[Any], Any]
    ) -> None:
        super().__init__(stream)
        self._length = length
        self._finish = finish

    def __next__(self) -> Any:
        return self._finish(next(self.stream))

    def __len__(self) -> int:
        return self._length()


def _unchanged(batch: Any) -> Any:
    return batch


def _finisher(loader: Any) -> Callable[[Any], Any]:
    if loader.pin_memory and torch.accelerator.is_available():
        from torch.utils.data._utils.pin_memory import pin_memory

        return cast("Callable[[Any], Any]", pin_memory)
    return _unchanged


class Epochs:
    """What is remembered of one DataLoader from epoch to epoch."""

    def __init__(self, *, guarantee: Guarantee | None = None, skip_bad: bool | None = None) -> None:
        self.group = f"loader-{next(_numbers)}"
        self.epoch = 0
        self.stream: BatchStream | None = None
        self.start: dict[str, Any] | None = None  # of the epoch under way
        self.resume: dict[str, Any] | None = None
        self.quarantine: list[BadSample] = []
        self.options = StreamOptions(guarantee=guarantee, skip_bad=skip_bad)
        self.told = False

    def begin(self, loader: Any, *, trust_sampler: bool) -> TorchBatches | None:
        """The next epoch; None when the loader is to go its usual way."""
        problem = why_local(loader, trust_sampler=trust_sampler)
        batched = loader.batch_sampler is not None
        pipeline = Pipeline(loader.dataset, loader.collate_fn, batched=batched)
        consumer = consumer_of_process()
        if problem is None:
            try:
                packed = pack_pipeline(pipeline, consumer.token if consumer else job_token())
            except NotPortableError as error:
                problem = str(error)
        if problem is not None:
            if not self.told:
                logger.warning(
                    "a DataLoader of %s stays in this process: %s",
                    type(loader.dataset).__qualname__,
                    problem,
                )
                self.told = True
            return None
        if self.stream is not None:
            self.stream.abandon()
        resume, self.resume = self.resume, None
        start = resume["start"] if resume is not None else None
        position = int(resume["yielded"]) if resume is not None else 0
        rank = number_in("RANK", number_in(names.RANK))
        guarantee = self.options.guarantee or options_of(consumer).guarantee
        given, epoch = loader.batch_sampler if batched else loader.sampler, self.epoch
        arrange: Callable[[], Any] = lambda: given  # noqa: E731  replaced below where nobody shards
        if guarantee is Guarantee.UNSHARDED:
            # Everybody then has all that the program's sampler divides, in an order of its own.
            arrange, guarantee = lambda: whole(given, rank, epoch), Guarantee.EXACTLY_ONCE
        seed, sampler, indices, self.start = _begin(loader, arrange, start, position)
        batch = BatchId(self.group, rank, self.epoch, position)
        options = replace(self.options, guarantee=guarantee)
        self.stream = BatchStream(
            consumer, pipeline, packed, seed, batch, indices, options, self.quarantine
        )
        self.epoch += 1
        return TorchBatches(self.stream, lambda: len(sampler), _finisher(loader))

    def state(self, loader: Any) -> dict[str, Any]:
        """Where the program is in the present epoch, or that it is between two."""
        stream = self.stream
        under_way = stream is not None and not stream.finished
        return {
            "version": STATE_VERSION,
            "epoch": self.epoch - 1 if under_way else self.epoch,
            "yielded": stream.position if under_way and stream is not None else 0,
            "start": self.start if under_way else None,
            "generators": [one.get_state() for one in _generators(loader)],
        }

    def load(self, loader: Any, state: dict[str, Any]) -> None:
        """Go on from there with the next ``iter``."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"version: {state.get('version')!r}; this loader reads {STATE_VERSION}"
            )
        generators = _generators(loader)
        if len(state["generators"]) != len(generators):
            raise ValueError(
                f"generators: {len(state['generators'])} in the state, {len(generators)} here: the "
                "state is of a loader made in another way"
            )
        if self.stream is not None:
            self.stream.abandon()
            self.stream = None
        self.epoch = int(state["epoch"])
        if state["start"] is not None:
            self.resume = {"start": state["start"], "yielded": state["yielded"]}
            return
        self.resume = None
        for generator, one in zip(generators, state["generators"], strict=True):
            generator.set_state(one)


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators of its own that a loader and its samplers draw from."""
    found: list[torch.Generator] = []
    holders = [loader, loader.sampler, loader.batch_sampler]
    holders.append(getattr(loader.batch_sampler, "sampler", None))
    for holder in holders:
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not one for one in found):
            found.append(generator)
    return found


def _global_state() -> list[Any]:
    return [random.getstate(), np.random.get_state(), torch.get_rng_state()]


def _set_global_state(state: list[Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def whole(sampler: Any, rank: int, epoch: int) -> Any:
    """A sampler of PyTorch's for one rank that is to see all samples, in an order of its own.

    Another sampler is the program's own business and is given back as it is.
    """
    if type(sampler) is torch_data.BatchSampler:
        inner = whole(sampler.sampler, rank, epoch)
        return torch_data.BatchSampler(inner, sampler.batch_size, sampler.drop_last)
    if type(sampler) is torch_data.DistributedSampler:
        seed = derive_seed(sampler.seed, rank) >> 2  # the epoch is added to it
        everything: Any = torch_data.DistributedSampler(
            sampler.dataset, 1, 0, sampler.shuffle, seed
        )
        everything.set_epoch(sampler.epoch)
        return everything
    if type(sampler) is torch_data.RandomSampler and rank:
        own = copy.copy(sampler)
        seeded = torch.initial_seed() if own.generator is None else own.generator.initial_seed()
        own.generator = torch.Generator().manual_seed(derive_seed(derive_seed(seeded, rank), epoch))
        return own
    return sampler


def _begin(
    loader: Any, arrange: Callable[[], Any], start: dict[str, Any] | None, position: int
) -> tuple[int, Any, Iterator[Any], dict[str, Any]]:
    """Draw the base seed and begin the sampler, or do so again as in an epoch that was cut short.

    The sampler is made by ``arrange`` when the generators stand as at the epoch's beginning, since
    what it makes may depend on their seeds. The process's own generators go back to what the
    program has them at when an epoch is resumed.
    """
    generators = _generators(loader)
    here = _global_state()
    if start is None:
        start = {"global": here, "generators": [one.get_state() for one in generators]}
    else:
        _set_global_state(start["global"])
        for generator, state in zip(generators, start["generators"], strict=True):
            generator.set_state(state)
    sampler = arrange()
    indices = iter(sampler)
    drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    for _ in itertools.islice(indices, position):
        pass
    if position:
        first = next(indices, None)  # what is drawn late is drawn before the state goes back
        indices = iter(()) if first is None else itertools.chain([first], indices)
        _set_global_state(here)
    return int(drawn), sampler, indices, start


class DataLoader(torch_data.DataLoader[Any]):
    """`torch.utils.data.DataLoader`, the same arguments; see the module's docstring.

    ``num_workers`` and what belongs to it are not used: data workers are counted by the job. Beside
    that it has ``state_dict`` and ``load_state_dict``, ``guarantee``, and ``skip_bad``: leave out
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
        return self._penstock.begin(self, trust_sampler=True) or super().__iter__()

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
    return epochs.begin(loader, trust_sampler=False) or plain(loader)
