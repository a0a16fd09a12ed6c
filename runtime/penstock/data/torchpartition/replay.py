"""A step in which calls are matched with the record, and give what came instead of computing it.

A call matches if it is the next that is due: the same function, arguments and surroundings, and
nothing that it reads was written to in the meantime. What matches not, runs as the program wrote
it. Where it reads a value that is not there, all calls that were matched before are made first, on
the batch itself (the step is *materialised*), so that the program goes on with right values; the
rest of the step is then as without any partition.

`Comparison` is the same with every call made here, and what crosses held against what came.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.data.offloading.arguments import version
from penstock.data.offloading.batch_calls import difference
from penstock.data.offloading.portable import PortableFunction
from penstock.data.partition.graph import Trait
from penstock.data.torchpartition.observation.deferred import (
    Deferred,
    Meta,
    call_plain,
    plain_of,
    with_numbers,
    without_numbers,
)
from penstock.data.torchpartition.observation.functions import EXPOSING
from penstock.data.torchpartition.observation.modes import modes_now
from penstock.data.torchpartition.observation.modules import Door, FrozenModules, tensor_digest
from penstock.data.torchpartition.observation.record import numbers
from penstock.data.torchpartition.observation.recording import Ref, bytes_of, is_same
from penstock.data.torchpartition.plan import Plan
from penstock.data.torchpartition.prefix import Prefix, PrefixCall, Variant

COPIED_BYTES: Final = 256 << 20
"""Of weights; of more there is no copy, since an encoder may take half of the memory there is."""
HEAD_BYTES: Final = 16 << 10
"""Of a constant tensor, looked at with each call: writes past its version are seen there."""


class LostError(RuntimeError):
    """A value was asked for that cannot be had any more."""


@dataclass(frozen=True)
class Came:
    """What came with a batch.

    Attributes:
        place: libraries and processor that made it.
        variant: its number in the prefix.
        values: that cross, by number.
        metas: of all values.
    """

    place: str
    variant: int
    values: dict[int, torch.Tensor]
    metas: Mapping[int, Meta]


class Expected:
    """What all steps of one plan have in common.

    Attributes:
        crossing: numbers of the values that came.
        reading: names of functions that were seen to write to nothing.
    """

    def __init__(self, planned: Plan, frozen: FrozenModules, sent: PortableFunction) -> None:
        """``sent``: the prefix, as it travels."""
        self._sent = sent
        self._opened: Prefix | None = None
        recording = planned.recording
        moved = [recording.calls[place] for place in planned.moved]
        self.crossing = frozenset(planned.crossing)
        self.continuing = {key for call in moved for key in call.inputs}
        self.owners = recording.owners
        self.frozen = frozen
        calls = (*recording.calls, *recording.ends)
        writing = {one.name for one in calls if one.traits & {Trait.MUTATED, Trait.OPAQUE}}
        self.reading = {one.name for one in calls if one.name} - writing - EXPOSING
        tensors = {id(one): one for call in moved for one in call.flat if _is_tensor(one)}
        self._modules = [call.module for call in moved if call.module is not None]
        self._constants = {
            key: (one, version(one), tensor_digest(_head(one)), tensor_digest(one))
            for key, one in tensors.items()
        }

    def constant(self, recorded: torch.Tensor, given: Any) -> bool:
        """Whether an argument is the tensor that was recorded, and has its numbers."""
        if given is not recorded and not is_same(recorded, given):
            return False
        known = self._constants.get(id(recorded))
        if known is None:  # of a variant
            return bool(given is recorded or bytes_of(recorded) == bytes_of(given))
        one, at, head, _ = known
        return version(one) == at and tensor_digest(_head(one)) == head

    def calls_as_sent(self, variant: int, own: Sequence[PrefixCall]) -> Sequence[PrefixCall]:
        """The first calls of a variant, with weights and constants as they were sent.

        ``own``: the same calls, with the program's modules and tensors.

        Raises:
            LostError: weights of which there is no copy were written to.
        """
        if not self._sent.keeps_bytes and (name := self._written(own)):
            raise LostError(
                f"the weights of {name} were written to after it was called, and then a value was "
                f"asked for that is made of them as they were: of more than {COPIED_BYTES >> 20} "
                "MiB there is no copy: run the program with --partition declared"
            )
        if self._opened is None:
            opened = self._sent.open()
            assert isinstance(opened, Prefix), "it was packed"
            self._opened = opened
        return self._opened.variants[variant].calls[: len(own)]

    def _written(self, calls: Sequence[PrefixCall]) -> str:
        """What was written to of what calls rely on; "": nothing."""
        for call in calls:
            if call.module is not None and call.moves and self.frozen.written(call.module):
                return type(call.module).__name__
            for one in call.flat if call.moves else ():
                known = self._constants.get(id(one))
                if known is not None and tensor_digest(one) != known[3]:
                    return f"{call.name or type(call.module).__name__}, a tensor of {one.shape},"
        return ""

    def changed(self) -> str:
        """Which module or tensor has other numbers than it had, by all bytes; "": none."""
        found = self.frozen.changed()
        for module in self._modules:
            if why := found.get(id(module)):
                return f"{type(module).__name__}: {why}"
        for one, at, _, digest in self._constants.values():
            if version(one) != at or tensor_digest(one) != digest:
                return f"a tensor of {tuple(one.shape)} that the step reads was written to"
        return ""


class Replay:
    """One step; see the module's docstring.

    Attributes:
        diverged: why it was materialised; "": it was not, or need not have been.
        difference: what was handed out and is another, computed here; "": nothing that is known.
        changed: what the calls rely on and is no more what it was.
        matched: calls that were.
        used: as `penstock.data.torchpartition.under_way.Work`.
    """

    def __init__(
        self, expected: Expected, variant: Variant, tensors: Sequence[torch.Tensor], came: Came
    ) -> None:
        """``variant``: with the program's own modules and tensors."""
        self.number = next(numbers)
        self.open = True
        self.diverged = self.difference = self.changed = ""
        self.matched = 0
        self.used = False
        self._expected, self._calls, self._came = expected, variant.calls, came
        self._values = dict(enumerate(tensors))
        self._versions = {key: version(one) for key, one in self._values.items()}
        self._touched: set[int] = set()
        self._pending: dict[int, weakref.ref[Deferred]] = {}
        self._whole = False  # it was materialised, or is over
        self._batch = range(len(tensors))
        self.handed = [self._given(key) for key in self._batch]

    @property
    def complete(self) -> bool:
        """Whether all calls were matched."""
        return self.matched == len(self._calls)

    def call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        due = self._due()
        if due is not None and due.name == name and name:
            flat = self._matching(due, args, kwargs)
            if flat is not None:
                return self._give(due, flat, function)
        flat, spec = tree_flatten((args, kwargs))
        return self._run(name, name or str(function), function, flat, spec)

    def module(self, module: Any, args: Any, kwargs: Any, run: Any) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        due, frozen = self._due(), self._expected.frozen
        whole = partial(run, module)
        if due is not None and due.module is module:
            if why := frozen.still(module):
                self.changed = f"{type(module).__name__}: {why}"
            elif (flat := self._matching(due, args, kwargs)) is not None:
                return self._give(due, flat, whole)
        elif frozen.door(module)[0] is Door.OPEN:
            return run(module, *args, **kwargs)
        flat, spec = tree_flatten((args, kwargs))
        return self._run("", type(module).__name__, whole, flat, spec, reads=True)

    def unseen(self, operator: Any, flat: list[Any], spec: TreeSpec) -> Any:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        return self._run("", str(operator), operator, flat, spec)

    def plain(self, tensor: Deferred) -> torch.Tensor:
        """As `penstock.data.torchpartition.observation.deferred.Step`."""
        if tensor._plain is None:
            self._materialise()
        assert tensor._plain is not None, "all are there"
        return tensor._plain

    def finish(self) -> None:
        """The step is over."""
        self.open = False

    def _due(self) -> PrefixCall | None:
        if self._whole or not self.open or self.matched == len(self._calls):
            return None
        return self._calls[self.matched]

    def _matching(self, due: PrefixCall, args: Any, kwargs: Any) -> Sequence[Any] | None:
        """The arguments one by one, if they are those that are due."""
        flat: Sequence[Any]
        if due.simple and not kwargs:
            flat = args  # most calls have no lists in them, and many are made
        else:
            flat, spec = tree_flatten((args, kwargs))
            if spec != due.spec:
                return None
        return flat if self._matches(due, flat) else None

    def _matches(self, due: PrefixCall, flat: Sequence[Any]) -> bool:
        if len(flat) != len(due.flat) or modes_now() != due.modes:
            return False
        for recorded, one in zip(due.flat, flat, strict=True):
            if type(recorded) is Ref:
                own = type(one) is Deferred and one._step is self
                if not own or one._key != recorded.key or self._written(one._key):
                    return False
            elif isinstance(one, torch.Tensor):
                if type(one) is Deferred or not isinstance(recorded, torch.Tensor):
                    return False
                if not self._expected.constant(recorded, one):
                    return False
            elif not is_same(recorded, one):
                return False
        return True

    def _written(self, key: int) -> bool:
        """Whether a value, or what it is a view of, is another than it was."""
        owner = self._expected.owners[key]
        for one in (key, owner) if owner != key else (key,):
            value = self._values.get(one)
            if value is not None and version(value) != self._versions[one]:
                return True
        return bool(self._touched) and (key in self._touched or owner in self._touched)

    def _give(self, due: PrefixCall, flat: Sequence[Any], function: Any) -> Any:
        """What a matched call puts out."""
        self.matched += 1
        self.used = self.used or due.makes
        if not due.moves:
            return call_plain(function, flat, due.spec)
        if due.single is not None:
            return self._output(due.single)
        known = {one._key: one for one in flat if isinstance(one, Deferred)}
        for out in due.outs:
            if out is not None and out.key not in known:
                known[out.key] = self._output(out.key)
        parts = [None if out is None else known[out.key] for out in due.outs]
        return tree_unflatten(parts, due.out_spec)

    def _output(self, key: int) -> Any:
        if key in self._expected.crossing:
            value = relaid(self._came.values[key], self._came.metas[key])
            self._values[key], self._versions[key] = value, version(value)
            return self._given(key)
        pending = without_numbers(self._came.metas[key], self, key)
        self._pending[key] = weakref.ref(pending)
        return pending

    def _given(self, key: int) -> Any:
        """A value that is there, as the program gets it."""
        value = self._values[key]
        return with_numbers(value, self, key) if key in self._expected.continuing else value

    def _run(
        self, name: str, said: str, function: Any, flat: list[Any], spec: TreeSpec,
        *, reads: bool = False,
    ) -> Any:  # fmt: skip
        """A call that is made here."""
        own = [one for one in flat if isinstance(one, Deferred) and one._step is self]
        if not self._whole and self.open:
            if any(one._plain is None for one in own):
                due = self._due()
                wanted = (due.name or type(due.module).__name__) if due is not None else "nothing"
                self.diverged = self.diverged or f"{said} where {wanted} was due"
                self._materialise()
            elif not reads and name not in self._expected.reading:
                # Nobody knows what it does to the values: what was made of them is made before.
                if any(reference() is not None for reference in self._pending.values()):
                    self._materialise()
                self._touched.update(one._key for one in own)
        result = call_plain(function, flat, spec)
        if self.open and not self._whole:
            for one in own:
                if result is one._plain:  # as what moves a batch to the device on which it is
                    return one
        self.used = True
        return result

    def _materialise(self) -> None:
        """Make all calls that were matched, on the batch itself.

        What they read was what it was when they were matched, and may have been written to since.
        """
        if self._whole:
            return
        self._whole = True
        if any(version(self._values[key]) != self._versions[key] for key in self._batch):
            raise LostError(
                "a tensor of the batch was written to by a call that was not seen to write when "
                "the step was recorded, and then a value was asked for that is made of it: run "
                "the program with --partition declared"
            )
        values = {key: self._values[key] for key in self._batch}
        matched = self._calls[: self.matched]
        for call in self._expected.calls_as_sent(self._came.variant, matched):
            if not call.moves:
                continue
            with call.surroundings.applied():
                made = call.make(values)
            for out, one in zip(call.outs, made, strict=True):
                if out is not None:
                    values.setdefault(out.key, one)
        for key, reference in self._pending.items():
            if (deferred := reference()) is not None:
                deferred._plain = values[key]
        for key in self._expected.crossing & values.keys():
            if self._versions.get(key) == version(self._values.get(key, values[key])):
                found = difference(values[key], self._values[key])
                self.difference = self.difference or found or ""


class Comparison(Replay):
    """One step with all calls made here; ``difference`` says what came otherwise."""

    def __init__(
        self, expected: Expected, variant: Variant, tensors: Sequence[torch.Tensor], came: Came
    ) -> None:
        super().__init__(expected, variant, tensors, came)
        self._made: dict[int, torch.Tensor] = {}

    def _give(self, due: PrefixCall, flat: Sequence[Any], function: Any) -> Any:
        if not due.moves:
            return super()._give(due, flat, function)
        made = tree_flatten(call_plain(function, flat, due.spec))[0]
        for out, one in zip(due.outs, made, strict=True):
            if out is not None and out.key not in self._values:
                self._values[out.key], self._versions[out.key] = one, version(one)
                if out.key in self._expected.crossing:
                    self._compare(out.key, one)
        return super()._give(due, flat, function)

    def _compare(self, key: int, own: torch.Tensor) -> None:
        found = compared(own, self._came, key)
        self.difference = self.difference or found

    def _output(self, key: int) -> Any:
        if key in self._expected.crossing:
            return self._given(key)
        return with_numbers(self._values[key], self, key)


def compared(own: Any, came: Came, key: int) -> str:
    """How a value differs, bit by bit and in memory, from what came for it; "": not at all."""
    if not isinstance(own, torch.Tensor):
        return f"value {key} is no tensor there"
    return difference(plain_of(own), relaid(came.values[key], came.metas[key])) or ""


def relaid(tensor: torch.Tensor, meta: Meta) -> torch.Tensor:
    """A tensor that came, as it lay in memory where it was made."""
    if Meta.of(tensor).stride == meta.stride and not meta.offset:
        return tensor
    if any(not stride and size > 1 for size, stride in zip(meta.shape, meta.stride, strict=True)):
        return tensor  # one number in several places
    extent = meta.offset + 1
    for size, stride in zip(meta.shape, meta.stride, strict=True):
        extent += (size - 1) * stride
    with torch.no_grad():
        base = torch.empty(max(extent, 0), dtype=tensor.dtype)
        made = base.as_strided(meta.shape, meta.stride, meta.offset)
        return made.copy_(tensor).detach()


def _head(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach()
    count = max(1, HEAD_BYTES // tensor.element_size())
    return flat.reshape(-1)[:count]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
