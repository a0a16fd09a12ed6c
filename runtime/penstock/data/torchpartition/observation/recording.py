"""What was seen of one step: its calls with tensors of the batch, and what they made of them.

Values are numbered: the tensors of the batch first, then what calls put out. Recordings of several
steps are *alike* if they make the same values in the same way, up to constants and sizes; merged
they say which constants are others in each step. What a call reads that is no value of the step
(numbers, weights, tensors made elsewhere) is a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch.utils._pytree import TreeSpec

from penstock.data.offloading.surroundings import Surroundings
from penstock.data.partition.graph import Trait
from penstock.data.partition.signature import Array, Call, Constant, Signature, Value
from penstock.data.torchpartition.observation.deferred import Meta

COMPARED_BYTES: Final = 64 << 10
"""A tensor that is made anew in each step is a constant if it is as small, and always the same."""
_PORTABLE: Final = (
    torch.Tensor,
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device,
    torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the step, by its number."""

    key: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call.

    Attributes:
        label: for people.
        name: of the function (`functions.name_of`); "": see ``module``.
        module: that was called; None: it was a function.
        flat: arguments (`tree_flatten`): `Ref`, tensors, and plain constants.
        spec: of the arguments.
        outs: what it put out, in order; empty: nothing that is a value of the step.
        out_spec: of that.
        surroundings: in which it was called.
        seconds: that it took.
        traits: why it stays.
        why: the same for people; "": the traits say all.
    """

    label: str
    name: str
    module: Any
    flat: tuple[Any, ...]
    spec: TreeSpec
    outs: tuple[Ref | None, ...] = ()
    out_spec: TreeSpec | None = None
    surroundings: Surroundings | None = None
    seconds: float = 0.0
    traits: frozenset[Trait] = frozenset()
    why: str = ""

    @property
    def inputs(self) -> list[int]:
        """The numbers of the values that it reads, each once."""
        return list(dict.fromkeys(one.key for one in self.flat if isinstance(one, Ref)))

    @property
    def outputs(self) -> list[int]:
        """The numbers of the values that it puts out, each once."""
        return list(dict.fromkeys(one.key for one in self.outs if one is not None))


@dataclass(frozen=True)
class Recording:
    """One step, or several that are alike.

    Attributes:
        paths: of the batch's tensors.
        shapes: likewise.
        metas: of all values.
        owners: of each value the first that lies in the same memory.
        calls: that put out values of the step, in order.
        ends: calls that read such, and put out none.
        entered: by value the module that got it first, not as one call, and as which argument.
        seconds: of the whole step.
    """

    paths: tuple[tuple[Any, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    metas: tuple[Meta, ...]
    owners: tuple[int, ...]
    calls: tuple[RecordedCall, ...]
    ends: tuple[RecordedCall, ...] = ()
    entered: dict[int, tuple[Any, int]] = field(default_factory=dict)
    seconds: float = 0.0

    def signature(self, *, portable: bool = False) -> Signature:
        """What is to be the same in all steps; ``portable``: of all processes, whose modules are
        others: they are named by the order in which they are called first.
        """
        modules: dict[int, int] = {}
        made: dict[int, Value] = {}
        batch = tuple(_array(self.metas[key]) for key in range(len(self.paths)))
        for key in range(len(self.paths)):
            made[key] = Value(-1, key)
        calls = []
        for number, call in enumerate(self.calls):
            arguments = tuple(
                made[one.key] if isinstance(one, Ref) else Constant(_sort(one)) for one in call.flat
            )
            new: list[int] = []
            for key in call.outputs:
                if key not in made:
                    made[key] = Value(number, len(new))
                    new.append(key)
            module = -1 if call.module is None else id(call.module)
            if portable and call.module is not None:
                module = modules.setdefault(module, len(modules))
            function = f"{call.label} {module} {call.spec} {call.out_spec} {call.outs}"
            outputs = tuple(_array(self.metas[key]) for key in new)
            calls.append(Call(function, (*arguments, *self._owned(new)), outputs))
        return Signature(batch, tuple(calls))

    def _owned(self, keys: Iterable[int]) -> list[Constant]:
        return [Constant(f"{key} in {self.owners[key]}") for key in keys]


def merged(recordings: Sequence[Recording]) -> Recording:
    """One of several that are alike; where sizes differ, constants may do so for that."""
    first = recordings[0]
    equal = [one.shapes == first.shapes for one in recordings]
    calls = tuple(
        _merged_call([one.calls[place] for one in recordings], equal)
        for place in range(len(first.calls))
    )
    entered = {
        key: its
        for key, its in first.entered.items()
        if all(one.entered.get(key) == its for one in recordings)
    }
    ends = _merged_ends(recordings)
    seconds = min(one.seconds for one in recordings)
    return replace(first, calls=calls, ends=ends, entered=entered, seconds=seconds)


def _merged_ends(recordings: Sequence[Recording]) -> tuple[RecordedCall, ...]:
    """Those of any recording, each as often as a step makes it and with the least time it took."""
    found: dict[tuple[Any, ...], RecordedCall] = {}
    for one in recordings:
        before: Counter[tuple[Any, ...]] = Counter()
        for end in one.ends:
            call = (end.label, end.name, id(end.module), *end.inputs, end.traits, end.why)
            key = (*call, before[call])
            before[call] += 1
            known = found.get(key)
            if known is None or end.seconds < known.seconds:
                found[key] = end
    return tuple(found.values())


def is_constant(value: Any) -> bool:
    """Whether an argument can travel: it is plain, or a tensor."""
    if isinstance(value, slice):
        return all(isinstance(one, int | None) for one in (value.start, value.stop, value.step))
    return isinstance(value, _PORTABLE)


def is_same(one: Any, other: Any) -> bool:
    """Whether two constants are the same: 1, 1.0 and True are not."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        small = one.numel() * one.element_size() <= COMPARED_BYTES
        return small and Meta.of(one) == Meta.of(other) and bytes_of(one) == bytes_of(other)
    return one == other and repr(one) == repr(other) if one == one else repr(one) == repr(other)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """A dense tensor's numbers."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return b""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _merged_call(calls: Sequence[RecordedCall], equal: Sequence[bool]) -> RecordedCall:
    """``equal``: which are of steps of the first one's sizes."""
    first = calls[0]
    alike = [call for call, same in zip(calls, equal, strict=True) if same]
    traits = frozenset().union(*(one.traits for one in calls))
    why = next((one.why for one in calls if one.why), "")
    for other in alike:
        for place, (own, its) in enumerate(zip(first.flat, other.flat, strict=True)):
            if not isinstance(own, Ref) and not is_same(own, its):
                traits |= {Trait.VARYING}
                why = why or f"argument {place} was {_shown(own)}, and then {_shown(its)}"
    return replace(first, traits=traits, why=why, seconds=min(one.seconds for one in calls))


def _shown(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:60]


def _sort(value: Any) -> str:
    return "tensor" if isinstance(value, torch.Tensor) else "constant"


def _array(meta: Meta) -> Array:
    return Array(meta.dtype, meta.shape)
