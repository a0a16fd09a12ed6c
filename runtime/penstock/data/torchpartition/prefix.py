"""What moves, as a value that travels: calls by name, modules and tensors, and where they are made.

It is called with a batch where that is made, and gives what crosses and what all values in between
are like. For each class of sizes that was recorded there is a *variant*, since arguments may be
sizes; where two of different sizes have equal arguments, one is for all sizes.

What it computes lies in memory as it did when it was recorded, or there is no result: a kernel may
round otherwise for another layout, and the program could write to one value through another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from operator import is_
from types import MappingProxyType
from typing import Any, Final

import msgpack
import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.data.offloading.surroundings import Surroundings
from penstock.data.torchpartition.observation.batch_tensors import BatchTensors
from penstock.data.torchpartition.observation.deferred import Meta
from penstock.data.torchpartition.observation.functions import function_named
from penstock.data.torchpartition.observation.modes import modes_of
from penstock.data.torchpartition.observation.recording import RecordedCall, Recording, Ref, is_same
from penstock.data.torchpartition.plan import Plan

NO_VARIANT: Final = -1


class OtherwiseError(ValueError):
    """What was computed is not like what was recorded."""


@dataclass(frozen=True)
class PrefixCall:
    """One call; see `penstock.data.torchpartition.observation.recording.RecordedCall`.

    ``moves``: it is made where the batch is; if not, the program makes it, and another that is the
    same in all but its place moves.
    """

    name: str
    module: Any
    flat: tuple[Any, ...]
    spec: TreeSpec
    outs: tuple[Ref | None, ...]
    out_spec: TreeSpec
    surroundings: Surroundings
    moves: bool

    @cached_property
    def modes(self) -> tuple[Any, ...]:
        """Its surroundings, as they are compared."""
        return modes_of(self.surroundings)

    @cached_property
    def simple(self) -> bool:
        """Whether its arguments are by position, and none is a list, tuple or dict."""
        args, kwargs = tree_unflatten(list(self.flat), self.spec)
        return not kwargs and len(args) == len(self.flat) and all(map(is_, args, self.flat))

    @cached_property
    def single(self) -> int | None:
        """The value that it puts out, if it is one, and a new one."""
        out = self.outs[0]
        if len(self.outs) != 1 or out is None or not self.out_spec.is_leaf():
            return None
        again = any(isinstance(one, Ref) and one == out for one in self.flat)
        return None if again else out.key

    @cached_property
    def makes(self) -> bool:
        """Whether it puts out anything that it does not read."""
        read = {one.key for one in self.flat if isinstance(one, Ref)}
        return any(one is not None and one.key not in read for one in self.outs)

    def __reduce__(self) -> tuple[Any, ...]:
        """What its result is built like is for the program alone; specs are not pickled."""
        arguments = tree_unflatten(list(self.flat), self.spec)
        return _opened, (
            self.name, self.module, arguments, self.outs, self.surroundings, self.moves
        )  # fmt: skip

    def make(self, values: dict[int, torch.Tensor]) -> list[Any]:
        """What it puts out (`tree_flatten`), of the values that it reads."""
        flat = [values[one.key] if type(one) is Ref else one for one in self.flat]
        function = self._function if self.name else self.module
        if self.simple:
            result = function(*flat)
        else:
            args, kwargs = tree_unflatten(flat, self.spec)
            result = function(*args, **kwargs)
        found: list[Any] = [result] if type(result) is torch.Tensor else tree_flatten(result)[0]
        return found

    @cached_property
    def _function(self) -> Any:
        return function_named(self.name)


@dataclass(frozen=True)
class Variant:
    """The calls for a class of sizes.

    Attributes:
        shapes: of the batch's tensors; None: any.
        calls: in order.
        kinds: of all values, by number (`Meta.kind`), and of each the value that owns its memory.
    """

    shapes: tuple[tuple[int, ...], ...] | None
    calls: tuple[PrefixCall, ...]
    kinds: dict[int, tuple[tuple[str, int], int]]

    def values(
        self, tensors: Sequence[torch.Tensor], wanted: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[list[Any]]]:
        """Those that are wanted, and what all are like, of the batch's tensors.

        All others are let go with the last call that names them: the next one finds their memory
        still warm, where a fresh page costs as much as the numbers in it.

        Raises:
            OtherwiseError: one is not as it was recorded.
        """
        made = _Made(tensors)
        kept = {*range(len(tensors)), *wanted}
        for surroundings, calls in self._runs:
            with surroundings.applied():
                for call, last in calls:
                    if call.moves:
                        self._take(call, made)
                    for key in last:
                        if key not in kept:
                            made.let_go(key)
        return [made.values[key] for key in wanted], made.metas

    @cached_property
    def _runs(self) -> list[tuple[Surroundings, list[tuple[PrefixCall, list[int]]]]]:
        """The calls in each surroundings, and the values that no later one names."""
        named = ((call, self._last.get(place, [])) for place, call in enumerate(self.calls))
        runs = groupby(named, key=lambda one: one[0].surroundings)
        return [(surroundings, list(calls)) for surroundings, calls in runs]

    @cached_property
    def _last(self) -> dict[int, list[int]]:
        """By the place of a call, the values that no later one names."""
        named: dict[int, int] = {}
        for place, call in enumerate(self.calls):
            refs = (one for one in call.flat if isinstance(one, Ref))
            named |= dict.fromkeys((*(one.key for one in refs), *_outs(call)), place)
        found: dict[int, list[int]] = {}
        for key, place in named.items():
            found.setdefault(place, []).append(key)
        return found

    def _take(self, call: PrefixCall, made: _Made) -> None:
        found = call.make(made.values)
        if len(found) != len(call.outs):
            raise OtherwiseError(f"{call.name or call.module} gave {len(found)} values")
        for out, one in zip(call.outs, found, strict=True):
            if (out is None) is not (one is None):
                raise OtherwiseError(f"{call.name or call.module} gave another kind of result")
            if out is None:
                continue
            if (known := made.values.get(out.key)) is not None:
                if known is not one:
                    raise OtherwiseError(f"{call.name or call.module} gave a copy or an alias")
                continue
            if made.add(out.key, one) != self.kinds[out.key]:
                raise OtherwiseError(f"{call.name or call.module}: its result lies otherwise there")


class _Made:
    """The values of a batch that are still there, and what all were like."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.values: dict[int, torch.Tensor] = {}
        self.metas: list[list[Any]] = []
        self._owners: dict[int, int] = {}  # by memory
        self._users: Counter[int] = Counter()  # values, by memory
        for key, one in enumerate(tensors):
            self.add(key, one)

    def add(self, key: int, value: torch.Tensor) -> tuple[tuple[str, int], int]:
        """What it is like: its kind, and the first value that had its memory."""
        memory = value.untyped_storage()._cdata
        self._users[memory] += 1
        meta = Meta.of(value)
        self.values[key] = value
        self.metas.append([key, *meta])
        return meta.kind, self._owners.setdefault(memory, key)

    def let_go(self, key: int) -> None:
        """It is read no more; its memory is nobody's once all values in it are gone."""
        value = self.values.pop(key, None)
        if value is None:
            return
        memory = value.untyped_storage()._cdata
        self._users[memory] -= 1
        if not self._users[memory]:
            del self._users[memory], self._owners[memory]


@dataclass
class Prefix:
    """See the module's docstring.

    Attributes:
        kinds: of a batch that it is for (`BatchTensors.kinds`).
        variants: of it.
        crossing: the numbers of the values that it gives.
    """

    kinds: tuple[Any, ...]
    variants: tuple[Variant, ...]
    crossing: tuple[int, ...]
    _seen: dict[str, Any] = field(default_factory=dict, repr=False)

    def variant(self, batch: BatchTensors) -> int:
        """The place of the variant for a batch, or `NO_VARIANT`."""
        if batch.problem or batch.kinds != self.kinds:
            return NO_VARIANT
        shapes = batch.shapes
        places = (place for place, one in enumerate(self.variants) if one.shapes in (None, shapes))
        return next(places, NO_VARIANT)

    def __call__(self, batch: Any) -> list[Any]:
        """The variant's place, what crosses, and what all values are like (`metas_of`)."""
        found = BatchTensors(batch)
        place = self.variant(found)
        if place == NO_VARIANT:
            return [NO_VARIANT, [], b""]
        values, metas = self.variants[place].values(found.tensors, self.crossing)
        # One piece: each list and number of its own would be looked at four times on its way.
        return [place, values, msgpack.packb(metas)]


@lru_cache(maxsize=64)
def metas_of(written: bytes) -> Mapping[int, Meta]:
    """What values are like, by their numbers: of batches of the same sizes it is the same."""
    found = msgpack.unpackb(written)
    return MappingProxyType(
        {
            key: Meta(tuple(shape), tuple(stride), offset, dtype)
            for key, shape, stride, offset, dtype in found
        }
    )


def prefix_of(planned: Plan, others: Sequence[Recording] = ()) -> Prefix:
    """What moves by a plan; ``others``: recordings of the same of other sizes (`fits`)."""
    found: list[Variant] = []
    for recording in (planned.recording, *others):
        variant = _variant(planned, recording)
        equal = next((one for one in found if _equal(one, variant)), None)
        if equal is None:
            found.append(variant)
        elif equal.shapes != variant.shapes:
            found[found.index(equal)] = Variant(None, equal.calls, equal.kinds)
    # One for any size is asked last.
    found.sort(key=lambda one: one.shapes is None)
    recording = planned.recording
    kinds = tuple((path, *recording.metas[key].kind) for key, path in enumerate(recording.paths))
    return Prefix(kinds, tuple(found), planned.crossing)


def fits(planned: Plan, recording: Recording) -> bool:
    """Whether a recording of other sizes makes the same values of the same things."""
    if recording.signature().digest != planned.recording.signature().digest:
        return False
    for place in planned.moved:
        own, its = planned.recording.calls[place], recording.calls[place]
        if its.traits or own.surroundings != its.surroundings:
            return False
        for one, other in zip(own.flat, its.flat, strict=True):
            if isinstance(one, torch.Tensor) and not is_same(one, other):
                return False
    return True


def _variant(planned: Plan, recording: Recording) -> Variant:
    moved = set(planned.moved)
    calls = tuple(
        _portable(recording.calls[place], moves=place in moved)
        for place in sorted(moved | set(_twins(planned)))
    )
    keys = {*range(len(recording.paths)), *(key for call in calls for key in _outs(call))}
    kinds = {key: (recording.metas[key].kind, recording.owners[key]) for key in sorted(keys)}
    return Variant(recording.shapes, calls, kinds)


def _twins(planned: Plan) -> Iterator[int]:
    """Calls that stay, and are one that moves in all but their place."""
    calls = planned.recording.calls
    moved = [calls[place] for place in planned.moved]
    for place, call in enumerate(calls):
        if place not in planned.moved and any(_same_call(call, one) for one in moved):
            yield place


def _same_call(one: RecordedCall, other: RecordedCall) -> bool:
    if (one.name, one.module, len(one.flat)) != (other.name, other.module, len(other.flat)):
        return False
    return one.spec == other.spec and all(
        own == its if isinstance(own, Ref) or isinstance(its, Ref) else is_same(own, its)
        for own, its in zip(one.flat, other.flat, strict=True)
    )


def _portable(call: RecordedCall, *, moves: bool) -> PrefixCall:
    assert call.surroundings is not None, "it was recorded"
    assert call.out_spec is not None, "it gave something"
    return PrefixCall(
        call.name, call.module, call.flat, call.spec, call.outs, call.out_spec, call.surroundings,
        moves,
    )  # fmt: skip


def _opened(name: str, module: Any, arguments: Any, *others: Any) -> PrefixCall:
    flat, spec = tree_flatten(arguments)
    outs, surroundings, moves = others
    return PrefixCall(name, module, tuple(flat), spec, outs, spec, surroundings, moves)


def _outs(call: PrefixCall) -> Iterator[int]:
    return (one.key for one in call.outs if one is not None)


def _equal(one: Variant, other: Variant) -> bool:
    """Whether they do the same."""
    return all(
        isinstance(its, Ref) or is_same(own, its) or isinstance(own, torch.Tensor)
        for call, another in zip(one.calls, other.calls, strict=True)
        for own, its in zip(call.flat, another.flat, strict=True)
    )
