"""The calls of declared functions that a program makes with the batches of one loader.

Each call that is new is recorded three times; if it is stateless, and the same each time, whoever
makes the loader's batches from its next epoch on makes the call as well. What came is used as
`penstock.data.partition.declared` says. Any doubt ends it: the function then runs in the program as
written, and one line says why.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.errors import PipelineTooLargeError
from penstock.data.generator_states import Draws
from penstock.data.offloading.arguments import Argument, BatchParts, has_leaf, leaves_of
from penstock.data.offloading.batch_calls import (
    DRAWS,
    BatchCall,
    BatchCalls,
    Result,
    difference,
    problem_of,
    split,
    tensors_in,
    told_of_places,
    versions,
)
from penstock.data.offloading.frozen import Frozen
from penstock.data.offloading.pace import Pace
from penstock.data.offloading.portable import pack_function
from penstock.data.offloading.seeded import call_seeded
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.partition import declared
from penstock.data.partition.declared import Declared, Kind
from penstock.data.partition.proof import Mode
from penstock.data.partition.signature import Array, Call, Constant, Signature, Value
from penstock.data.pipeline import MAX_PIPELINE_BYTES
from penstock.data.protocol import PartitionNote
from penstock.data.transport.batch_codec import Packer
from penstock.data.weight_bundle import MAX_BYTES
from penstock.data.written_bytes import WRITES, Writes

logger = logging.getLogger(__name__)

MAX_CALLS: Final = 8
"""Of one loader."""
KEPT_BATCHES: Final = 2
"""Some programs take the next batch before they use the last one."""
GONE_LOADERS: Final = 2
"""Loaders that were dropped after a function was called with their batches, before it is said."""
MAX_UNUSED: Final = 100
"""Results in a row that the program does not ask for."""
NOT_OF_A_BATCH: Final = (
    "it was called with what is no part of a batch that a loader has just given, or was written to"
)
_numbers = itertools.count()


@dataclass
class Function:
    """A function that the program declared.

    Attributes:
        name: for people.
        run: calls it here, as the program wrote it.
        root: the function or module, to be looked at.
        portable: makes of it what is sent.
        random: it draws random numbers, and each of its calls is seeded for itself.
        moves: data workers may call it; if not, it is only seeded.
        calls: that the program made.
        moved: of these those that used the result of a data worker.
        compared: of these those that were held against one.
        why: it runs in the program; "": it has moved, or may still.
        found: it was called with a part of a loader's batch.
    """

    name: str
    run: Callable[..., Any] = field(repr=False)
    root: Any = field(repr=False)
    portable: Callable[[], Any] = field(repr=False)
    random: bool = False
    moves: bool = True
    calls: int = 0
    moved: int = 0
    compared: int = 0
    why: str = ""
    found: bool = False
    _loaders: list[weakref.ref[LoaderCalls]] = field(default_factory=list, repr=False)
    _is_told: bool = False

    def met_in(self, loader: LoaderCalls) -> None:
        """It is called with a batch of a loader for the first time."""
        gone = sum(one() is None for one in self._loaders)
        if gone >= GONE_LOADERS and not self.moved and not self._is_told:
            self._is_told = True
            logger.warning(
                "offload: %s has not moved: the program makes another loader for each epoch, and "
                "with a loader's batches functions move from its second epoch on; make the loader "
                "once, before the first epoch",
                self.name,
            )
        self._loaders = [*self._loaders[-GONE_LOADERS:], weakref.ref(loader)]

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of what was declared is not declared."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()

    def stays(self, why: str) -> None:
        """It runs in the program; said once for each reason."""
        if self.why != why:
            self.why = why
            logger.warning("offload: %s runs in the program, as written: %s", self.name, why)


def _nothing() -> None:
    return None


@dataclass
class _Batch:
    """One that the program has got not long ago."""

    parts: BatchParts
    results: dict[int, Result]


class LoaderCall:
    """One call; see the module's docstring."""

    def __init__(self, function: Function, positional: Argument, named: Argument) -> None:
        self.number = next(_numbers)
        self.function = function
        self.state = Declared()
        self.sent: BatchCall | None = None
        self._positional, self._named = positional, named
        self._surroundings = Surroundings.here()
        self._frozen: Frozen | None = None
        self._always_writes = True  # in all recorded calls: the first may well fill a cache
        self._unused = 0

    def give_up(self, why: str) -> None:
        """It runs in the program from now on; said once."""
        if self.state.phase is not Phase.FELL_BACK:
            self._tell(declared.give_up(self.state, why), why)

    def check(self) -> None:
        """Before an epoch: whether the function still is what is sent."""
        if self._frozen is not None and (why := self._frozen.change()) is not None:
            self.give_up(why)

    def note_unused(self) -> None:
        """A result came that the program did not ask for."""
        self._unused += 1
        if self._unused == MAX_UNUSED:
            self.give_up(f"the program did not ask for {MAX_UNUSED} results in a row")

    def __call__(
        self, result: Result | None, run: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """What the function returns; ``run`` calls it here."""
        if self._frozen is not None and self.sent is not None:
            self.check()
        kind = None if result is None else Kind(result.place, _sizes(args, kwargs))
        if result is not None and result.why:
            self.give_up(result.why)
        self.state, mode = declared.ask(self.state, kind)
        if mode is Mode.RECORD:
            return self._record(run, args, kwargs)
        if mode is Mode.RAW or result is None or kind is None:
            return run(*args, **kwargs)
        self._unused = 0
        if mode is Mode.PARTITIONED:
            self.function.moved += 1
            return result.value
        value = run(*args, **kwargs)
        self.function.compared += 1
        found = difference(value, result.value)
        if found is not None:
            found += told_of_places(result.place)
        self._tell(declared.compare(self.state, kind, found), f"as a data worker has it, {found}")
        return value

    def _record(self, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        frozen = self._frozen = self._frozen or Frozen(self.function.root)
        if frozen.problem is not None:
            self.give_up(frozen.problem)
            return run(*args, **kwargs)
        before, draws, writes = versions((args, kwargs)), Draws(), Writes()
        value = run(*args, **kwargs)
        self._always_writes &= writes.seen()
        why = DRAWS if draws.seen() else problem_of(value, (args, kwargs), before, Packer())
        if not why and frozen.holds(tensors_in(value)):
            why = "its result is a part of itself"
        why = why or frozen.change_of_numbers() or ""
        if why:
            self.give_up(why)
            return value
        self._tell(declared.record(self.state, self._signature(args, kwargs, value)))
        if self.state.proof.recorded_alike and self._always_writes:
            self.give_up(WRITES)
        elif self.state.proof.recorded_alike:
            self._choose()
        return value

    def _choose(self) -> None:
        try:
            function = pack_function(self.function.portable())
        except PipelineTooLargeError:
            pickled, weights = MAX_PIPELINE_BYTES >> 20, MAX_BYTES >> 30
            self.give_up(
                f"it has more than {pickled} MiB when pickled, or {weights} GiB of weights"
            )
        except Exception as error:  # noqa: BLE001 - pickling runs code of the program's classes
            self.give_up(f"it cannot be pickled: {type(error).__name__}: {error}"[:500])
        else:
            self.sent = BatchCall(
                self.number,
                function,
                self._positional,
                self._named,
                self._surroundings,
                self.function.random,
            )
            self._tell(declared.choose(self.state, function.digest))

    def _signature(self, args: Any, kwargs: Any, value: Any) -> str:
        arguments: list[Constant | Value] = []
        batch = []
        for leaf in itertools.chain(leaves_of(self._positional), leaves_of(self._named)):
            digest = hashlib.sha256(repr(leaf).encode()).hexdigest()
            arguments.append(Constant(digest))
        for number, tensor in enumerate(tensors_in((args, kwargs))):
            batch.append(_array(tensor))
            arguments.append(Value(-1, number))
        outputs = tuple(_array(one) for one in tensors_in(value))
        call = Call(self.function.name, tuple(arguments), outputs)
        return Signature(tuple(batch), (call,)).digest

    def _tell(self, state: Declared, why: str = "") -> None:
        before, self.state = self.state.phase, state
        if state.phase is Phase.FELL_BACK and before is not Phase.FELL_BACK:
            self.sent = None
            self.function.stays(why or state.proof.why)
        elif state.phase is Phase.ON and before is Phase.VERIFYING:
            logger.info("offload: %s has moved: %s", self.function.name, state.proof.why)


class LoaderCalls:
    """The calls that a program makes with one loader's batches."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """``clock``: of seconds."""
        self._clock = clock
        self._calls: dict[Any, LoaderCall] = {}
        self._strays: dict[int, Function] = {}
        self._batches: deque[_Batch] = deque(maxlen=KEPT_BATCHES)
        self._pace = Pace()
        self._epochs = self._seed = 0

    def begin_epoch(self, why_not: str = "", seed: int | None = None) -> BatchCalls | None:
        """What is done with each batch of the epoch where it is made; None: nothing.

        ``why_not``: the loader's batches cannot have results. ``seed``: of the epoch; None: there
        is none that others have.
        """
        self._epochs += 1
        self._seed = self._epochs if seed is None else seed
        calls = [call for call in self._calls.values() if call.sent is not None]
        slower = self._pace.begin_epoch(moved=bool(calls))
        for call in calls:
            call.check()
            if why := why_not or slower:
                call.give_up(why)
        self._batches.clear()
        able = (call for call in calls if seed is not None or not call.function.random)
        sent = tuple(call.sent for call in able if call.sent is not None)
        return BatchCalls(sent) if sent else None

    def end_step(self) -> None:
        """The program wants its next batch: its calls know by themselves which one they are of."""

    def refuse(self, why: str) -> None:
        """Data workers cannot be sent the functions."""
        for call in self._calls.values():
            call.give_up(why)

    def deliver(self, given: Any, *, first: bool = True) -> Any:
        """What the program gets of what was made."""
        batch, results = split(given)
        self._pace.step(self._clock())
        if len(self._batches) == KEPT_BATCHES:
            left = self._batches[0].results
            for call in self._calls.values():
                if call.number in left:
                    call.note_unused()
        found = {one.call: one for one in results}
        self._batches.append(_Batch(BatchParts(batch), found))
        _recent.note(self)
        return batch

    def notes(self) -> dict[int, PartitionNote]:
        """As `penstock.data.torch_loading.loader_work.LoaderWork` says; one for each function."""
        calls = list(self._calls.values())
        functions = {id(one.function): one.function for one in calls} | dict(self._strays)
        sent = {id(one.function) for one in calls if one.sent is not None}
        return {key: _note(one, sent=key in sent) for key, one in functions.items()}

    def note_stray(self, function: Function) -> None:
        """A function was called with what is of no loader's batch, after one of this one's."""
        if len(self._strays) < MAX_CALLS:
            self._strays[id(function)] = function

    def find(self, args: Any, kwargs: Any) -> tuple[_Batch, Argument, Argument] | None:
        """The batch that a call is of, and its arguments as parts of that."""
        for batch in reversed(self._batches):
            positional = batch.parts.argument(args)
            named = batch.parts.argument(kwargs)
            if positional is None or named is None:
                continue
            if has_leaf(positional) or has_leaf(named):
                return batch, positional, named
        return None

    def call(self, function: Function, found: Any, args: Any, kwargs: Any) -> Any:
        """A call with what `find` gave."""
        batch, positional, named = found
        key = (id(function), positional, named, Surroundings.here())
        call = self._calls.get(key)
        run = partial(self._seeded, function) if function.random else function.run
        if call is None:
            if len(self._calls) == MAX_CALLS:
                function.stays(f"a loader's batches are used in more than {MAX_CALLS} calls")
                return run(*args, **kwargs)
            if all(one.function is not function for one in self._calls.values()):
                function.met_in(self)
            call = self._calls[key] = LoaderCall(function, positional, named)
            if not function.moves:
                call.give_up("nothing moves with --partition never")
        return call(batch.results.pop(call.number, None), run, args, kwargs)

    def _seeded(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        return call_seeded(self._seed, function.run, args, kwargs)


@dataclass
class _Recent:
    """The loaders that have given a batch, the last one first."""

    loaders: list[weakref.ref[LoaderCalls]] = field(default_factory=list)
    wanted: bool = False

    def note(self, calls: LoaderCalls) -> None:
        if self.loaders and self.loaders[0]() is calls:
            return
        others = [one for one in self.loaders if one() not in (None, calls)]
        self.loaders = [weakref.ref(calls), *others[:15]]


_recent: Final = _Recent()


def declare() -> None:
    """From now on loaders look what the program does with their batches."""
    _recent.wanted = True


def calls_of_loader() -> LoaderCalls | None:
    """For a loader; None: no function is declared."""
    return LoaderCalls() if _recent.wanted else None


def call_declared(function: Function, args: Any, kwargs: Any) -> Any:
    """A call of a declared function by the program."""
    function.calls += 1
    for reference in _recent.loaders:
        loader = reference()
        if loader is not None and (found := loader.find(args, kwargs)) is not None:
            if not function.found:
                function.found, function.why = True, ""
            return loader.call(function, found, args, kwargs)
    if _recent.loaders and not function.found:
        function.stays(NOT_OF_A_BATCH)
        if (last := _recent.loaders[0]()) is not None:
            last.note_stray(function)
    return function.run(*args, **kwargs)


def _note(function: Function, *, sent: bool) -> PartitionNote:
    """What has become of a function; ``sent``: data workers call it."""
    phase = Phase.VERIFYING if sent else Phase.RECORDING
    if function.why:
        phase = Phase.FELL_BACK
    elif function.moved:
        phase = Phase.ON
    return PartitionNote(
        name=function.name,
        state=phase,
        prefix=function.name if sent else "",
        steps=function.calls,
        moved=function.moved,
        why=function.why,
    )


def _array(tensor: torch.Tensor) -> Array:
    return Array(str(tensor.dtype)[6:], tuple(tensor.shape), tensor.device.type)


def _sizes(args: Any, kwargs: Any) -> str:
    shapes = [(tuple(one.shape), tuple(one.stride())) for one in tensors_in((args, kwargs))]
    texts = [len(one) for one in (*args, *kwargs.values()) if isinstance(one, list)]
    return f"{shapes} {texts}"
