"""A step that is written down: every call runs as the program wrote it, on plain tensors.

What a call does is found by what it did: whether a generator of the process stands elsewhere after
it, whether a tensor that it got was written to, what it gives. Its result is a value of the step,
and looked at in turn, unless something of that makes it the training's own.

Memory that anybody writes to in the step is found when the step is over, by the versions of all
values, and of frozen modules by their bytes: also what optimizers, moving averages and others did
who never touched a value.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.data.generator_states import Draws
from penstock.data.offloading.arguments import version
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.partition.graph import Trait
from penstock.data.torchpartition.observation.batch_tensors import BatchTensors
from penstock.data.torchpartition.observation.deferred import (
    Deferred,
    Meta,
    call_plain,
    plain_of,
    with_numbers,
)
from penstock.data.torchpartition.observation.functions import EXPOSING
from penstock.data.torchpartition.observation.modules import Door, FrozenModules, tensor_digest
from penstock.data.torchpartition.observation.recording import (
    RecordedCall,
    Recording,
    Ref,
    is_constant,
)
from penstock.data.written_bytes import WRITES, Writes

MAX_CALLS: Final = 5_000
numbers: Final = itertools.count()
"""Of steps."""


class Recorder:
    """One step; see the module's docstring.

    Attributes:
        problem: why the step is no record of anything; "": it is.
    """

    def __init__(
        self,
        batch: BatchTensors,
        frozen: FrozenModules,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """``clock``: seconds of this thread, so that other programs of a machine do not count."""
        self.number = next(numbers)
        self.open = True
        self.problem = ""
        self._batch, self._frozen, self._clock = batch, frozen, clock
        self._plains: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._metas: list[Meta] = []
        self._owners: list[int] = []
        self._memory: dict[int, int] = {}
        self._written: dict[int, str] = {}
        self._constants: dict[int, tuple[torch.Tensor, int, int]] = {}
        self._calls: list[RecordedCall] = []
        self._ends: list[RecordedCall] = []
        self._entered: dict[int, tuple[Any, int]] = {}
        self.handed = [self._value(one) for one in batch.tensors]
        self._began = clock()

    def call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        flat, spec = tree_flatten((args, kwargs))
        if not self.open:
            return call_plain(function, flat, spec)
        label = name.removeprefix("torch.").removesuffix(".__get__")
        call = self._begin(label or getattr(function, "__name__", "a function"), flat, spec)
        if not name:
            call = _stays(call, Trait.OPAQUE, "nobody can say what it is")
        elif name in EXPOSING:
            call = _stays(call, Trait.PINNED, "it gives away the memory of its tensor")
            for key in call.inputs:
                self._written.setdefault(self._owners[key], "its memory was given away")
        return self._observe(replace(call, name=name), flat, function)

    def module(self, module: Any, args: Any, kwargs: Any, run: Any) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        flat, spec = tree_flatten((args, kwargs))
        if not self.open:
            return call_plain(partial(run, module), flat, spec)
        door, why = self._frozen.door(module)
        if door is not Door.WHOLE:
            for place, one in enumerate(flat):
                if isinstance(one, Deferred) and one._step is self:
                    self._entered.setdefault(one._key, (module, place))
        if door is Door.OPEN:
            return run(module, *args, **kwargs)
        call = replace(self._begin(type(module).__name__, flat, spec), module=module)
        if door is Door.PLAIN:
            trained = any(one.requires_grad for one in module.parameters())
            trait = Trait.MUTATED if why else Trait.TRAINED if trained else Trait.OPAQUE
            call = _stays(call, trait, why or ("" if trained else "it cannot be looked into"))
        return self._observe(call, flat, partial(run, module))

    def unseen(self, operator: Any, flat: list[Any], spec: TreeSpec) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        if self.open:
            collective = str(operator).startswith(("c10d", "_c10d_functional"))
            trait = Trait.COLLECTIVE if collective else Trait.OPAQUE
            call = _stays(self._begin(str(operator), flat, spec), trait, "")
            return self._observe(call, flat, operator)
        return call_plain(operator, flat, spec)

    @property
    def used(self) -> bool:
        """Whether anything was called with a value of the step, and gave another."""
        gave = any(set(call.outputs) - set(call.inputs) for call in self._calls)
        return bool(self._ends or self._entered or gave)

    def plain(self, tensor: Deferred) -> torch.Tensor:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        assert tensor._plain is not None, "all are computed"
        return tensor._plain

    def finish(self) -> Recording:
        """The step is over."""
        self.open = False
        seconds = self._clock() - self._began
        for key, (plain, before) in enumerate(zip(self._plains, self._versions, strict=True)):
            if version(plain) != before:
                self._written.setdefault(self._owners[key], "it was written to in the step")
        for constant, at, digest in self._constants.values():
            if version(constant) != at or tensor_digest(constant) != digest:
                self._written_constant(constant)
        changed = self._frozen.changed()
        calls = tuple(self._finished(call, changed) for call in self._calls)
        recording = Recording(
            self._batch.paths,
            self._batch.shapes,
            tuple(self._metas),
            tuple(self._owners),
            calls,
            tuple(self._ends),
            self._entered,
            seconds,
        )
        self._plains, self._constants = [], {}
        return recording

    def _value(self, plain: torch.Tensor) -> Deferred:
        """A new value of the step."""
        key = len(self._plains)
        owner = self._memory.setdefault(plain.untyped_storage()._cdata, key)
        self._plains.append(plain)
        self._versions.append(version(plain))
        self._metas.append(Meta.of(plain))
        self._owners.append(owner)
        return with_numbers(plain, self, key)

    def _begin(self, label: str, flat: list[Any], spec: TreeSpec) -> RecordedCall:
        arguments: list[Any] = []
        traits, why = frozenset[Trait](), ""
        for one in flat:
            if isinstance(one, Deferred) and one._step is self:
                arguments.append(Ref(one._key))
                continue
            plain = plain_of(one)
            arguments.append(plain)
            if isinstance(plain, torch.Tensor):
                if plain.requires_grad:
                    traits |= {Trait.TRAINED}
                    continue
                known = plain, version(plain), tensor_digest(plain)
                self._constants.setdefault(id(plain), known)
                if plain.device.type != "cpu" or plain.layout is not torch.strided:
                    traits |= {Trait.OPAQUE}
                    why = f"an argument is on {plain.device}: data workers compute on CPUs"
            elif isinstance(plain, torch.Generator):
                traits |= {Trait.RANDOM}
            elif not is_constant(plain):
                traits |= {Trait.OPAQUE}
                why = f"an argument is a {type(plain).__qualname__}"
        return RecordedCall(
            label, "", None, tuple(arguments), spec,
            surroundings=Surroundings.here(), traits=traits, why=why,
        )  # fmt: skip

    def _observe(self, call: RecordedCall, flat: list[Any], function: Any) -> Any:
        """Make the call, and write down what it did."""
        plain = list(map(plain_of, flat))
        args, kwargs = tree_unflatten(plain, call.spec)
        before, draws = _versions(plain), Draws()
        writes = Writes() if call.module is not None and not call.traits else None
        began = self._clock()
        out = function(*args, **kwargs)
        call = replace(call, seconds=self._clock() - began)
        if writes is not None and writes.seen():
            call = _stays(call, Trait.MUTATED, WRITES)
        try:
            return self._noted(call, flat, plain, before, draws, out)
        except Exception as error:  # noqa: BLE001 - the program's call is made, and is not ours
            self.open = False
            self.problem = f"{call.label} cannot be written down: {type(error).__name__}: {error}"
            return out

    def _noted(
        self,
        call: RecordedCall,
        flat: list[Any],
        plain: list[Any],
        before: list[int],
        draws: Draws,
        out: Any,
    ) -> Any:
        """Write down what a call did; what the program gets of it."""
        if draws.seen():
            call = _stays(call, Trait.RANDOM, "")
        if (after := _versions(plain)) != before:
            call = _stays(call, Trait.MUTATED, "it writes to its arguments")
            for one, was, now in zip(call.flat, before, after, strict=True):
                if was != now and isinstance(one, Ref):
                    self._written.setdefault(self._owners[one.key], f"{call.label} wrote to it")
        if call.module is not None and not call.traits:
            call = self._of_module(call)
        flat_out, out_spec = tree_flatten(out)
        call = self._with_result(call, flat_out, plain)
        if len(self._calls) + len(self._ends) >= MAX_CALLS:
            self.problem = f"a step makes more than {MAX_CALLS} calls with its batch"
            return out
        if call.traits:
            # What else it read is not kept: that may be all activations of the step.
            read = tuple(one for one in call.flat if isinstance(one, Ref))
            self._ends.append(replace(call, flat=read))
            return out
        known = {id(one): at for one, at in zip(plain, flat, strict=True) if type(at) is Deferred}
        wrapped: list[Deferred | None] = []
        for one in flat_out:
            if one is not None and id(one) not in known:
                known[id(one)] = self._value(one)
            wrapped.append(None if one is None else known[id(one)])
        outs = tuple(None if one is None else Ref(one._key) for one in wrapped)
        self._calls.append(replace(call, outs=outs, out_spec=out_spec))
        return tree_unflatten(wrapped, out_spec)

    def _of_module(self, call: RecordedCall) -> RecordedCall:
        why = self._frozen.change(call.module, numbers=True)
        return _stays(call, Trait.MUTATED, why) if why else call

    def _with_result(
        self, call: RecordedCall, flat_out: list[Any], plain: list[Any]
    ) -> RecordedCall:
        """The call, and why it stays, if what it gave makes it."""
        constants = {
            one.untyped_storage()._cdata
            for one, at in zip(plain, call.flat, strict=True)
            if isinstance(one, torch.Tensor)
            and not isinstance(at, Ref)
            and one.layout is torch.strided
        }
        tensors = []
        for one in flat_out:
            if one is None:
                continue
            if isinstance(one, bool | int | float | str | list):
                return _stays(call, Trait.PINNED, "the program looks at its numbers")
            if not isinstance(one, torch.Tensor):
                return _stays(call, Trait.OPAQUE, f"it gives a {type(one).__qualname__}")
            if one.requires_grad:
                return _stays(call, Trait.TRAINED, "")
            if one.is_inference():
                return _stays(call, Trait.OPAQUE, "in inference mode nobody counts what is written")
            if type(one) is not torch.Tensor or one.layout is not torch.strided:
                return _stays(call, Trait.OPAQUE, f"it gives a {type(one).__qualname__}")
            if one.device.type != "cpu":
                why = f"it gives a tensor on {one.device}: data workers compute on CPUs"
                return _stays(call, Trait.PINNED, why)
            tensors.append(one)
            if one.untyped_storage()._cdata in constants:
                return _stays(call, Trait.MUTATED, "its result is a part of a constant")
        if call.module is not None and not call.traits and self._frozen.holds(call.module, tensors):
            return _stays(call, Trait.MUTATED, "its result is a part of itself")
        if not flat_out:
            return _stays(call, Trait.OPAQUE, "it gives nothing")
        return call

    def _written_constant(self, constant: torch.Tensor) -> None:
        for place, call in enumerate(self._calls):
            if any(one is constant for one in call.flat):
                self._calls[place] = _stays(call, Trait.MUTATED, "a constant of it was written to")

    def _finished(self, call: RecordedCall, changed: dict[int, str]) -> RecordedCall:
        if call.module is not None and (why := changed.get(id(call.module))):
            call = _stays(call, Trait.MUTATED, why)
        for key in (*call.inputs, *call.outputs):
            if why := self._written.get(self._owners[key], ""):
                return _stays(call, Trait.MUTATED, why)
        return call


def _stays(call: RecordedCall, trait: Trait, why: str) -> RecordedCall:
    return replace(call, traits=call.traits | {trait}, why=call.why or why)


def _versions(values: list[Any]) -> list[int]:
    return [version(one) if isinstance(one, torch.Tensor) else 0 for one in values]
