"""Calls that are made of a batch where it is made, and travel with it.

A batch with results is a dict of plain data (`with_results`, `split`), so that it goes the way that
all batches go. A result that could not be had, or that another process could not have (it is no
plain data, or shares memory with what it was made of), is a reason instead: the program then calls
the function itself.
"""

from __future__ import annotations

import contextlib
import time
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from penstock.data.batch_difference import first_difference
from penstock.data.errors import NotPortableError
from penstock.data.generator_states import Draws
from penstock.data.offloading.arguments import Argument, fill, version
from penstock.data.offloading.portable import PortableFunction
from penstock.data.offloading.seeded import call_seeded
from penstock.data.offloading.surroundings import Surroundings, place
from penstock.data.transport.batch_codec import Packer
from penstock.data.weight_bundle import Weights

_MARK: Final = "penstock: a batch with results"
DRAWS: Final = "it draws random numbers"


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave.

    Attributes:
        call: its number.
        value: what the function returned.
        why: there is no value, and why; "": there is one.
        place: libraries and processor that made it.
        seconds: that the call took.
    """

    call: int
    value: Any
    why: str
    place: str
    seconds: float


@dataclass
class BatchCall:
    """One call: a function as it is sent, and with what it is called.

    Attributes:
        number: of the call, among those of its program.
        function: as it is sent.
        positional: arguments, as parts of the batch.
        named: likewise.
        surroundings: that the program has.
        random: it draws, and is seeded for itself.
    """

    number: int
    function: PortableFunction
    positional: Argument
    named: Argument
    surroundings: Surroundings
    random: bool = False
    _opened: Callable[..., Any] | None = field(default=None, repr=False)
    _packer: Packer | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_packer": None}

    def __call__(self, batch: Any, seed: int = 0) -> Result | None:
        """The call's result with a batch; never raises what the function raises.

        ``seed``: of the epoch. None: what the function consists of has not come yet, so the program
        calls it.
        """
        if not self.function.there:
            return None
        began = time.perf_counter()
        value, why = None, ""
        try:
            value, why = self._call(batch, seed)
        except Exception as error:  # noqa: BLE001 - the program's function: the program gets to know
            why = f"a data worker cannot call it: {type(error).__name__}: {error}"[:500]
        return Result(self.number, value, why, place(), time.perf_counter() - began)

    def open(self) -> None:
        """Open the function, or import its code until its weights come; never raises.

        What is wrong with it is said of the call.
        """
        with contextlib.suppress(Exception):
            if not self.function.there:
                self.function.import_modules()
            elif self._opened is None:
                self._opened = self.function.open()

    def _call(self, batch: Any, seed: int) -> tuple[Any, str]:
        if self._opened is None:
            self._opened = self.function.open()  # it was signed with its pipeline
        positional = fill(self.positional, batch)
        named = fill(self.named, batch)
        before, draws = versions((positional, named)), Draws()
        with self.surroundings.applied():
            if self.random:
                value = call_seeded(seed, self._opened, positional, named)
            else:
                value = self._opened(*positional, **named)
        if draws.seen():
            return None, DRAWS
        self._packer = self._packer or Packer()
        why = problem_of(value, (positional, named), before, self._packer)
        return (None, why) if why else (value, "")


@dataclass(frozen=True)
class BatchCalls:
    """What is done with a whole batch: all calls that the program makes with it."""

    calls: tuple[BatchCall, ...]

    @property
    def weights(self) -> tuple[Weights, ...]:
        """Of the functions, as far as they have any."""
        found = (call.function.weights for call in self.calls)
        return tuple(one for one in found if one is not None)

    def open(self) -> None:
        """Open all functions before there is a batch for which somebody waits."""
        for call in self.calls:
            call.open()

    def with_seed(self, seed: int) -> Callable[[Any], Any]:
        """The same, for batches of an epoch with that seed."""
        return partial(self, seed=seed)

    def __call__(self, batch: Any, seed: int = 0) -> Any:
        """The batch with the results."""
        results = (call(batch, seed) for call in self.calls)
        return with_results(batch, [one for one in results if one is not None])


def with_results(batch: Any, results: list[Result]) -> dict[str, Any]:
    """A batch and results as plain data."""
    plain = [[one.call, one.value, one.why, one.place, one.seconds] for one in results]
    return {"batch": batch, _MARK: plain}


def split(batch: Any) -> tuple[Any, list[Result]]:
    """What a loader gives, as `with_results` had it: a batch without any has no results."""
    if type(batch) is not dict or _MARK not in batch:
        return batch, []
    return batch["batch"], [Result(*one) for one in batch[_MARK]]


def versions(value: Any) -> list[int]:
    """Of the tensors in it, in order."""
    return [version(one) for one in tensors_in(value)]


def problem_of(value: Any, arguments: Any, before: list[int], packer: Packer) -> str:
    """Why a result could not be used in another process; "": it could.

    ``before``: the `versions` of the arguments before the call. ``packer``: of the call's results,
    most of which are built as the one before, so that little of each has to be looked at.
    """
    if versions(arguments) != before:
        return "it writes to its arguments"
    memory = {one.untyped_storage().data_ptr() for one in tensors_in(arguments)}
    for tensor in tensors_in(value):
        if tensor.requires_grad:
            return "its result requires a gradient"
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return f"it returns a tensor of layout {tensor.layout} on {tensor.device}"
        own = tensor.untyped_storage().data_ptr()
        if own in memory and tensor.numel():
            return "its result shares memory with its arguments, or with another part of it"
        memory.add(own)
    try:
        packer.pack(value)
    except NotPortableError as error:
        return f"its result cannot be sent: {error}".replace("the batch holds", "it holds")
    return ""


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | UserDict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)


def difference(own: Any, its: Any) -> str | None:
    """What is another in a result, bit by bit and as it lies in memory; None: nothing."""
    found = first_difference(own, its, "its result")
    if found is not None:
        return found
    for number, (one, other) in enumerate(zip(tensors_in(own), tensors_in(its), strict=True)):
        if _layout(one) != _layout(other):
            return f"tensor {number} of its result lies otherwise in memory there"
    return None


def told_of_places(where: str) -> str:
    """How a place where results are others differs from this one, behind what is another."""
    here, threads = place(), torch.get_num_threads()
    said = f"; it was made with {where}, and the program runs with {here}" if where != here else ""
    if threads > 1:
        said += f"; data workers compute with one thread, and the program with {threads}"
    return said


def _layout(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Strides of the dimensions that have any effect."""
    if not tensor.numel():
        return []
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, stride) for size, stride in sizes if size > 1]
