"""What one step called, so that two steps can be told to be the same computation.

A step is a sequence of calls. An argument is a value of the step, named by the call that put it
out; or a constant, named by a digest of what it is. Two steps are of one *signature* where all of
that is equal. Sizes are no part of it: the last batch of an epoch is smaller, buckets differ in
length, and a recording must not be held against either. They make the *shape class*; what was
proven for one class is not proven for another, since libraries choose their algorithms by shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Final

from penstock.data.partition.errors import PartitionError

MAX_CALLS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Value:
    """An argument that the step itself has: output ``output`` of call ``call``.

    Call -1 is the batch: its leaves, in order, are the outputs.
    """

    call: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument from outside of the step, the same in each: a number, a weight, an option."""

    digest: str


Argument = Value | Constant


@dataclass(frozen=True, slots=True)
class Array:
    """What is known of an array beside its numbers.

    Attributes:
        kind: of its elements: ``float32``.
        shape: sizes of its dimensions.
        device: the class of place where it lies: ``cpu``, ``cuda``.
    """

    kind: str
    shape: tuple[int, ...]
    device: str = "cpu"

    @property
    def fixed(self) -> tuple[str, int, str]:
        """All but the sizes: kind, number of dimensions, device."""
        return self.kind, len(self.shape), self.device


@dataclass(frozen=True, slots=True)
class Call:
    """One operation, or one frozen module, that a step called.

    Attributes:
        function: its full name, overload included.
        arguments: in order; of named ones the name is part of a constant before each.
        outputs: the arrays that it put out.
    """

    function: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Array, ...] = ()

    def difference(self, other: Call) -> str | None:
        """How another call is another computation; None: it is the same but for sizes."""
        if self.function != other.function:
            return f"{other.function} where {self.function} was due"
        if len(self.arguments) != len(other.arguments):
            return (
                f"{self.function}: {len(other.arguments)} arguments where "
                f"{len(self.arguments)} were due"
            )
        for place, (own, its) in enumerate(zip(self.arguments, other.arguments, strict=True)):
            if own != its:
                return f"{self.function}: argument {place} is another {_noun(own, its)}"
        if [one.fixed for one in self.outputs] != [one.fixed for one in other.outputs]:
            return f"{self.function}: puts out {_arrays(other)} where {_arrays(self)} were due"
        return None


@dataclass(frozen=True)
class Signature:
    """The calls of one step, or of its prefix, and the batch that it was given.

    Raises:
        PartitionError: a value is used before there is one, or there are too many calls.
    """

    batch: tuple[Array, ...]
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        """Every value has to be there when it is used."""
        if len(self.calls) > MAX_CALLS:
            raise PartitionError(f"calls: {len(self.calls)}; a step has at most {MAX_CALLS}")
        for number, call in enumerate(self.calls):
            for value in call.arguments:
                if isinstance(value, Value) and not self._has(value, before=number):
                    raise PartitionError(
                        f"calls[{number}]: {call.function}: output {value.output} of call "
                        f"{value.call} is not there before it"
                    )

    @cached_property
    def digest(self) -> str:
        """Equal for steps that are the same computation but for sizes, and for no others."""
        calls = [
            (call.function, list(map(_text, call.arguments)), [one.fixed for one in call.outputs])
            for call in self.calls
        ]
        return _digest([[one.fixed for one in self.batch], calls])

    @cached_property
    def shape_class(self) -> str:
        """Equal for steps of one signature whose batches have equal sizes, and for no others."""
        return _digest([self.digest, [one.shape for one in self.batch]])

    def difference(self, other: Signature) -> str | None:
        """The first way in which another step is another computation; None: there is none."""
        if [one.fixed for one in self.batch] != [one.fixed for one in other.batch]:
            return "the batch has other arrays"
        for number, (own, its) in enumerate(zip_longest(self.calls, other.calls)):
            if own is None:
                return f"call {number}: {its.function} where the step had ended"
            if its is None:
                return f"call {number}: the step ended where {own.function} was due"
            if (found := own.difference(its)) is not None:
                return f"call {number}: {found}"
        return None

    def _has(self, value: Value, before: int) -> bool:
        if not -1 <= value.call < before or value.output < 0:
            return False
        there: Sequence[Array] = self.batch if value.call < 0 else self.calls[value.call].outputs
        return value.output < len(there)


def _noun(own: Argument, its: Argument) -> str:
    return "value" if isinstance(own, Value) and isinstance(its, Value) else "constant"


def _arrays(call: Call) -> str:
    return ", ".join(f"{one.kind}[{len(one.shape)}]@{one.device}" for one in call.outputs) or "none"


def _text(argument: Argument) -> list[int | str]:
    if isinstance(argument, Value):
        return [argument.call, argument.output]
    return [argument.digest]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
