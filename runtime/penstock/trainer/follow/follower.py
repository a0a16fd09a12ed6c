"""Has a program's own checkpoints say where its loaders are, and its loaders go on there.

The processes of a launched world (`penstock.trainer.launch`) begin anew whenever pods come and go,
from the program's own checkpoint. It says which epoch that was at best; which samples of it have
been trained on depends on the worlds that there were. `install` changes three things in PyTorch:

- a loader whose order is known (`penstock.trainer.follow.orders`) is counted while it is iterated;
- what an optimizer's ``state_dict`` gives has one entry more (`KEY`) while such a loader is within
  an epoch; `torch.optim.Optimizer.load_state_dict` ignores it where nobody looks for it;
- after ``load_state_dict`` the loader that begins this epoch hands out what was left of it.

A program that is never stopped gets the batches, and draws the random numbers, that it has without.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils.data import get_worker_info

from penstock.data.complaints import Complaints
from penstock.trainer.follow import FOLLOW
from penstock.trainer.follow.orders import Source, source_of
from penstock.trainer.follow.position import passed_over, size_of
from penstock.trainer.follow.record import Entry, Record, owner_of

logger = logging.getLogger(__name__)

KEY: Final = "penstock_data"
"""In an optimizer's state."""
VERSION: Final = 1
_BYTES: Final = "base64"


@dataclass
class Counting:
    """How a library counts the batches of the epoch that it goes on with.

    Attributes:
        accumulation: batches of one optimizer step.
        passed: batches of this world that it is to take for done, once that is decided.
    """

    accumulation: int = 1
    passed: int = 0

    def of(self, entry: Entry, source: Source) -> int:
        """That number for what is left of an epoch."""
        left = size_of(entry.todo)
        return passed_over(left, source.batches, source.dealing, self.accumulation)


def entries_of(saved: Any) -> list[Entry]:
    """What a checkpoint says of loaders.

    Raises:
        KeyError, TypeError, ValueError: it is not understood.
    """
    if saved["version"] != VERSION:
        raise ValueError(f"version: {saved['version']}, not {VERSION}")
    return [Entry.of(one) for one in saved["loaders"]]


def text_of(where: dict[str, Any]) -> str:
    """What a checkpoint says of loaders as one text, where each value would be one of its own."""

    def of_bytes(state: torch.Tensor) -> dict[str, str]:  # a generator's state
        return {_BYTES: base64.b64encode(bytes(state.tolist())).decode()}

    return json.dumps(where, default=of_bytes)


def of_text(text: Any) -> Any:
    """What such a text says; the text itself where it is none, to be refused as any other."""

    def back(found: dict[str, Any]) -> Any:
        if set(found) != {_BYTES}:
            return found
        return torch.tensor(list(base64.b64decode(found[_BYTES])), dtype=torch.uint8)

    try:
        return json.loads(text, object_hook=back)
    except (TypeError, ValueError):
        return text


class Follower:
    """The loaders of one process."""

    def __init__(self) -> None:
        self._records: weakref.WeakKeyDictionary[Any, Record] = weakref.WeakKeyDictionary()
        self._pending: list[Entry] = []
        self._counting: Counting | None = None
        self._ignores = False
        self.has_trained = False
        self._complaints = Complaints()

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint is to say; None: nothing, since no loader is within an epoch."""
        running = [one.entry() for one in self._records.values() if one.running]
        entries = [*reversed(running), *self._pending]
        if not entries:
            return None
        return {"version": VERSION, "loaders": [one.plain() for one in entries]}

    def load(self, saved: Any) -> None:
        """Go on from what a checkpoint says; a process that has trained only turns back with it."""
        if self._ignores or self.has_trained:
            self._ignores = False
            return
        try:
            self._pending = entries_of(saved)
        except (KeyError, TypeError, ValueError) as error:
            _say(f"the checkpoint's {KEY} is not understood ({error}): epochs begin anew")

    def ignore_next_load(self) -> None:
        """What the next checkpoint says does not count: the program has epochs begin anew."""
        self._ignores = True

    def discard(self) -> None:
        """The program does not want to go on within an epoch."""
        self._pending = []

    def expected(self, source: Source) -> Entry | None:
        """What is left of the epoch that a loader begins, if it is one that was left."""
        trusted = self._counting is not None
        return next((one for one in self._pending if one.fits(source, trusted=trusted)), None)

    def count_on(self, counting: Counting) -> None:
        """A library counts the batches of what is left, and begins with the epoch that was left."""
        self._counting = counting

    def passed(self, loader: Any) -> int | None:
        """How many batches that library is to take for done; None: it begins the epoch anew."""
        record = self._records.get(loader)
        if record is None or self._counting is None:
            return None
        if record.is_resumed:
            return self._counting.passed
        entry = self.expected(record.source)
        return None if entry is None else self._counting.of(entry, record.source)

    # ------------------------------------------------------------------ loaders

    def iterate(self, loader: Any, begin: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Any:
        """A loader's iterator.

        Args:
            loader: of PyTorch's.
            begin: its way of iterating, which may be that of data workers.
            plain: PyTorch's.
        """
        self._records.pop(loader, None)
        if not torch.is_grad_enabled():  # it evaluates
            return begin(loader)
        source = source_of(loader)
        if isinstance(source, str):
            self._name(loader, source)
            return begin(loader)
        record = Record(source, owner_of(loader))
        self._records[loader] = record
        way = plain if self.expected(source) is not None else begin
        batches = way(loader)
        if source.begins_unknown and hasattr(batches, "stream"):
            self._name(loader, "it is made elsewhere in an order that is drawn there")
        return FollowedBatches(batches, record, lambda: way(loader))

    def indices(self, loader: Any, sampler: Any) -> Iterator[Any]:
        """What a loader's sampler gives, or what is left of the epoch in its place."""
        record = self._records.get(loader)
        if record is not None and not record.is_resumed:
            self._begin(record)
        yield from record.batches() if record is not None and record.is_resumed else sampler

    def decide(self) -> None:
        """The program computes gradients."""
        self.has_trained = True
        for record in self._records.values():
            record.decide()

    def _begin(self, record: Record) -> None:
        source = record.source
        entry = self.expected(source)
        alike = [
            one
            for one in self._pending
            if (one.samples, one.shuffled) == (source.samples, source.shuffles)
        ]
        self._pending = [one for one in self._pending if one not in alike]
        if entry is None:
            if any(one.todo and one.epoch is not None for one in alike):
                _say(
                    f"the program goes on with epoch {source.epoch}: the rest of epoch "
                    f"{alike[0].epoch} is left out"
                )
            record.begin()
            return
        batches = None
        if self._counting is not None:
            self._counting.passed = self._counting.of(entry, source)
            batches = source.batches - self._counting.passed
        try:
            record.resume(entry, batches)
            if not entry.todo and source.epoch is None:
                _say("nothing is left of the epoch that was saved: its loader hands out no batch")
        except (TypeError, RuntimeError) as error:
            _say(f"the order of an epoch cannot be drawn again ({error}): it begins anew")
            record.begin()

    def _name(self, loader: Any, why: str) -> None:
        if os.environ.get("RANK", "0") == "0":
            self._complaints.add(
                f"penstock: a {type(loader).__qualname__} of {type(loader.dataset).__qualname__}",
                f"is not followed, since {why}: after a change of the world it begins where the "
                "program has it begin",
            )


class FollowedBatches:
    """A loader's iterator, counted."""

    def __init__(self, batches: Any, record: Record, again: Callable[[], Any]) -> None:
        self._batches = batches
        self._record = record
        self._begin_again = again

    def __iter__(self) -> FollowedBatches:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            if not self._record.comes_again():
                self._record.exhausted = True
                raise
            self._batches = self._begin_again()
            batch = next(self._batches)
        self._record.handed += 1
        return batch

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class FollowedSampler:
    """A loader's sampler of batches, as its iterators take it."""

    def __init__(self, sampler: Any, loader: Any, follower: Follower) -> None:
        self._sampler = sampler
        self._loader = weakref.ref(loader)
        self._follower = follower

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader()
        return (
            iter(self._sampler) if loader is None else self._follower.indices(loader, self._sampler)
        )

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def install(module: Any) -> None:
    """Follow this process's loaders. ``torch`` has been imported."""
    if not os.environ.get(FOLLOW):
        return
    follower = Follower()
    _follow_loaders(module.utils.data.DataLoader, follower)
    _follow_optimizers(module.optim.Optimizer, follower)
    backward = module.autograd.backward

    @functools.wraps(backward)
    def decided(*arguments: Any, **options: Any) -> Any:
        if not module.compiler.is_compiling():
            follower.decide()
        return backward(*arguments, **options)

    module.autograd.backward = decided
    _installed.append(follower)


_installed: Final[list[Follower]] = []  # one, once there is one


def installed() -> Follower | None:
    """This process's, if its loaders are followed."""
    return _installed[0] if _installed else None


def _follow_loaders(loader_class: Any, follower: Follower) -> None:
    begin = loader_class.__iter__
    plain = inspect.unwrap(begin)
    sampler_of = loader_class._index_sampler.fget

    def iterate(self: Any) -> Any:
        if get_worker_info() is not None:
            return begin(self)
        return follower.iterate(self, begin, plain)

    def index_sampler(self: Any) -> Any:
        sampler = sampler_of(self)
        return sampler if self.batch_sampler is None else FollowedSampler(sampler, self, follower)

    iterate.__wrapped__ = plain  # type: ignore[attr-defined]  # for `inspect.unwrap`
    loader_class.__iter__ = iterate
    loader_class._index_sampler = property(index_sampler)


def _follow_optimizers(optimizer_class: Any, follower: Follower) -> None:
    save, load = optimizer_class.state_dict, optimizer_class.load_state_dict

    @functools.wraps(save)
    def state_dict(self: Any) -> Any:
        state = save(self)
        if (where := follower.state()) is not None:
            state[KEY] = where
        return state

    @functools.wraps(load)
    def load_state_dict(self: Any, state_dict: Any) -> Any:
        if KEY in state_dict:
            state_dict = dict(state_dict)
            follower.load(state_dict.pop(KEY))
        return load(self, state_dict)

    optimizer_class.state_dict, optimizer_class.load_state_dict = state_dict, load_state_dict


def _say(what: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        logger.warning("penstock: %s", what)
