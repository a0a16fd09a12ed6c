"""CEL as the API server offers it to a custom resource, by way of cel-python.

The test's own: it is to agree with a recorded server, and the production code has another.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel

from penstock.base import quantity

Functions = dict[str, Any]


def _is_quantity(text: celtypes.StringType) -> celtypes.BoolType:
    try:
        quantity.parse(str(text))
    except ValueError:
        return celtypes.BoolType(False)
    return celtypes.BoolType(True)


class _Quantity(celtypes.DoubleType):
    """A quantity: compared only, and every one of the vectors compares with zero."""


def _quantity(text: celtypes.StringType) -> _Quantity:
    return _Quantity(float(quantity.parse(str(text))))


def _compare(left: _Quantity, right: _Quantity) -> celtypes.IntType:
    return celtypes.IntType((left > right) - (left < right))


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(str(separator))])


def _substring(text: celtypes.StringType, start: int, end: int) -> celtypes.StringType:
    return celtypes.StringType(str(text)[int(start) : int(end)])


FUNCTIONS: Functions = {
    "isQuantity": _is_quantity,
    "quantity": _quantity,
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: celtypes.BoolType(left > right),
    "split": _split,
    "substring": _substring,
}


@functools.cache
def _program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression), functions=FUNCTIONS)


@functools.cache
def _evaluated(expression: str, activation: str) -> Any:
    variables = {name: json_to_cel(value) for name, value in json.loads(activation).items()}
    return _program(expression).evaluate(variables)


def evaluate(expression: str, **variables: Any) -> Any:
    """The value of an expression over JSON values; an expression that fails raises CELEvalError."""
    return _evaluated(expression, json.dumps(variables))


def parses(expression: str) -> bool:
    """Whether the expression is CEL at all."""
    return _program(expression) is not None
