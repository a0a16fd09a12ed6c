"""Signatures of steps: equal for the same computation whatever its sizes, for no other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.partition.errors import PartitionError
from penstock.data.partition.signature import (
    MAX_CALLS,
    Argument,
    Array,
    Call,
    Constant,
    Signature,
    Value,
)

PIXELS = Array("uint8", (8, 3))
FLOATS = Array("float32", (8, 3))
STEP = Signature(
    (PIXELS,),
    (
        Call("aten.to", (Value(-1), Constant("float32")), (FLOATS,)),
        Call("aten.div", (Value(0), Constant("255")), (FLOATS,)),
    ),
)


def with_call(number: int, **changes: object) -> Signature:
    calls = list(STEP.calls)
    calls[number] = replace(calls[number], **changes)  # type: ignore[arg-type]  # of any field
    return replace(STEP, calls=tuple(calls))


def random_signature(chance: random.Random) -> Signature:
    """A small step out of few names, so that equal ones come up."""

    def arrays(least: int) -> tuple[Array, ...]:
        kinds = chance.choices(["float32", "int64"], k=chance.randint(least, 2))
        return tuple(Array(kind, (chance.randint(1, 2), 3)) for kind in kinds)

    batch = arrays(1)
    calls: list[Call] = []
    for _ in range(chance.randint(0, 2)):
        there: list[Argument] = [Value(-1, one) for one in range(len(batch))]
        for at, call in enumerate(calls):
            there += [Value(at, one) for one in range(len(call.outputs))]
        there.append(Constant(chance.choice("12")))
        arguments = chance.choices(there, k=chance.randint(0, 1))
        calls.append(Call(chance.choice(["add", "mul"]), tuple(arguments), arrays(0)))
    return Signature(batch, tuple(calls))


SIGNATURES = st.integers(0, 1 << 32).map(lambda seed: random_signature(random.Random(seed)))


def resized(array: Array, by: int) -> Array:
    return replace(array, shape=tuple(size + by for size in array.shape))


@given(SIGNATURES, SIGNATURES)
@settings(max_examples=300)
def test_digests_are_equal_where_there_is_no_difference_and_only_there(
    one: Signature, other: Signature
) -> None:
    same = one.difference(other) is None
    assert same == (one.digest == other.digest)
    assert same == (other.difference(one) is None)
    shapes = [array.shape for array in one.batch] == [array.shape for array in other.batch]
    assert (same and shapes) == (one.shape_class == other.shape_class)


@given(SIGNATURES, st.integers(1, 5))
@settings(max_examples=100)
def test_sizes_make_another_shape_class_of_the_same_computation(step: Signature, by: int) -> None:
    calls = tuple(
        replace(call, outputs=tuple(resized(one, by) for one in call.outputs))
        for call in step.calls
    )
    larger = Signature(tuple(resized(one, by) for one in step.batch), calls)
    assert step.difference(larger) is None
    assert step.digest == larger.digest
    assert step.shape_class != larger.shape_class


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (with_call(1, function="aten.mul"), "call 1: aten.mul where aten.div was due"),
        (with_call(1, arguments=(Value(0),)), "call 1: aten.div: 1 arguments where 2 were due"),
        (
            with_call(1, arguments=(Value(0), Constant("256"))),
            "call 1: aten.div: argument 1 is another constant",
        ),
        (
            with_call(1, arguments=(Value(-1), Constant("255"))),
            "call 1: aten.div: argument 0 is another value",
        ),
        (
            with_call(0, outputs=(Array("float64", (8, 3)),)),
            "call 0: aten.to: puts out float64[2]@cpu where float32[2]@cpu were due",
        ),
        (with_call(1, outputs=()), "puts out none where"),
        (replace(STEP, calls=STEP.calls[:1]), "call 1: the step ended where aten.div was due"),
        (replace(STEP, batch=(FLOATS,)), "the batch has other arrays"),
        (replace(STEP, batch=(replace(PIXELS, device="cuda"),)), "the batch has other arrays"),
    ],
)
def test_the_first_difference_is_named(other: Signature, said: str) -> None:
    found = STEP.difference(other)
    assert found is not None
    assert said in found
    assert STEP.digest != other.digest


def test_a_step_that_goes_on_is_another() -> None:
    shorter = replace(STEP, calls=STEP.calls[:1])
    assert shorter.difference(STEP) == "call 1: aten.div where the step had ended"


@pytest.mark.parametrize("value", [Value(0), Value(1), Value(-1, 1), Value(-2), Value(-1, -1)])
def test_a_value_has_to_be_there_before_it_is_used(value: Value) -> None:
    with pytest.raises(PartitionError, match=r"calls\[0\]: f: output -?\d of call -?\d is not"):
        Signature((PIXELS,), (Call("f", (value,), (FLOATS,)),))


def test_a_step_has_not_more_calls_than_it_may() -> None:
    with pytest.raises(PartitionError, match=f"a step has at most {MAX_CALLS}"):
        Signature((), (Call("f", ()),) * (MAX_CALLS + 1))
