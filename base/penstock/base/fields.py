"""Types of fields that several resources share, each with its bounds and its notation.

Every string, list and map of the API is bounded (so is the cost of the CEL rules on it), and no
number is a float. Patterns are RE2, as the API server reads them: without look-around.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from penstock.base import quantity
from penstock.base.enums import Role
from penstock.base.structural import VALIDATIONS, Keywords, Rule

MAX_REPLICAS: Final = 4096
"""Most replicas of one role, and so the number of possible ranks."""

INT32_MAX: Final = 2**31 - 1
EXACT_INT_MAX: Final = 2**53 - 1
"""Largest integer that every JSON reader holds exactly; a larger bound breaks the API server's."""

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1123 label, as names of containers and volumes are."""

JOB_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""RFC 1035 label: a job's Service bears its name."""

CAMEL_CASE: Final = r"^[A-Z][A-Za-z0-9]*$"
RANK: Final = r"^(0|[1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-5])$"

Int32 = Annotated[int, Field(strict=True), Keywords(format="int32")]
Int64 = Annotated[int, Field(strict=True), Keywords(format="int64")]
Flag = Annotated[bool, Field(strict=True)]

Count = Annotated[Int32, Field(ge=0, le=INT32_MAX)]
Replicas = Annotated[Int32, Field(ge=0, le=MAX_REPLICAS)]
Generation = Annotated[Int64, Field(ge=0, le=EXACT_INT_MAX)]

CamelCase = Annotated[str, Field(min_length=1, max_length=63, pattern=CAMEL_CASE)]
ShortText = Annotated[str, Field(min_length=1, max_length=63)]
DisplayCount = Annotated[str, Field(min_length=1, max_length=16)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
VolumeName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]


def write_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, the resolution of the Kubernetes API."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """One rule for whatever is wrong: no time, none of a calendar, or one of no zone."""
    if isinstance(value, str | datetime):
        with suppress(ValidationError):
            return read(value)
    raise ValueError("should be a time with its zone, such as 2026-01-31T12:00:00Z")


Timestamp = Annotated[
    AwareDatetime,
    WrapValidator(_moment),
    PlainSerializer(write_time, return_type=str, when_used="json"),
]
"""A moment; in JSON RFC 3339 in UTC with whole seconds, the resolution of the Kubernetes API."""


RANKS_RULE: Final = Rule(
    cel=f"self.all(rank, rank.matches('{RANK}'))",
    message=f"each key must be a rank, a whole number from 0 to {MAX_REPLICAS - 1} without "
    "leading zeros",
)


def _rank(value: Any) -> Any:
    """A key of a map by rank: JSON has it as a string, Python as an integer."""
    if not isinstance(value, str):
        return value
    if not re.fullmatch(RANK, value):
        raise PydanticCustomError("rank", RANKS_RULE.message)
    return int(value)


Rank = Annotated[int, BeforeValidator(_rank), Field(strict=True, ge=0, lt=MAX_REPLICAS)]

T = TypeVar("T")


def _without_nulls(value: Any) -> Any:
    """In a map as in an object, a null is an absent field."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item is not None}
    return value


def _known_roles(value: Any) -> Any:
    """As of an object: unknown fields are dropped, and a null is an absent field."""
    if isinstance(value, Mapping):
        return {role: value[role] for role in Role if value.get(role) is not None}
    return value


NullsAreAbsent: Final = BeforeValidator(_without_nulls)
"""Annotation of a map whose nulls are absent; the last one, as bounds must meet the map itself."""

ByRank = Annotated[dict[Rank, T], Field(max_length=MAX_REPLICAS), Keywords(RANKS_RULE)]
"""A map by rank (in Python: integers) within one role."""


class PerRole:
    """Annotation of a ``dict[Role, ...]``: an object with one optional property for each role.

    Args:
        description: of one property; ``{role}`` stands for the role in words.
        rules: CEL rules of the roles that have any beyond those of their model.
    """

    def __init__(self, description: str, rules: Mapping[Role, tuple[Rule, ...]] | None = None):
        self._description = description
        self._rules = rules or {}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_known_roles, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        generated = handler(schema)
        value = generated.pop("additionalProperties")
        generated.pop("propertyNames", None)
        generated["properties"] = {}
        for role in Role:
            described = {**value, "description": self._description.format(role=role.in_words)}
            if rules := self._rules.get(role):
                described[VALIDATIONS] = [
                    *described.get(VALIDATIONS, []),
                    *(rule.as_schema() for rule in rules),
                ]
            generated["properties"][role.value] = described
        return generated


QUANTITY_RULE: Final = Rule(
    cel="type(self) == int ? self >= 0 : "
    "(isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0)",
    message="must be a quantity that is not negative, such as 500m, 4 or 1.5Gi",
)
POSITIVE_MESSAGE: Final = "must be a quantity above zero, such as 500m, 4 or 1.5Gi"
POSITIVE_INT_OR_STRING_RULE: Final = Rule(
    cel="type(self) == int ? self > 0 : "
    "(isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))",
    message=POSITIVE_MESSAGE,
)
POSITIVE_STRING_RULE: Final = Rule(
    cel="isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
    message=POSITIVE_MESSAGE,
)


def _quantity(rule: Rule, above_zero: bool) -> AfterValidator:
    """What the rule says, checked here too."""

    def check(text: str) -> str:
        try:
            value = quantity.parse(text)
        except ValueError:
            value = Decimal(-1)
        if value < 0 or (above_zero and value == 0):
            raise PydanticCustomError("quantity", rule.message)
        return text

    return AfterValidator(check)


def _integer_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _int_or_string(rule: Rule) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": quantity.MAX_LENGTH,
            "pattern": quantity.PATTERN,
            VALIDATIONS: [rule.as_schema()],
        }
    )


Quantity = Annotated[
    str,
    StringConstraints(max_length=quantity.MAX_LENGTH),
    _quantity(QUANTITY_RULE, above_zero=False),
    BeforeValidator(_integer_as_text),
    _int_or_string(QUANTITY_RULE),
]
"""An amount of a resource, zero allowed; an integer of the YAML is text here."""

PositiveQuantity = Annotated[
    str,
    StringConstraints(max_length=quantity.MAX_LENGTH),
    _quantity(POSITIVE_INT_OR_STRING_RULE, above_zero=True),
    BeforeValidator(_integer_as_text),
    _int_or_string(POSITIVE_INT_OR_STRING_RULE),
]
"""An amount of a resource above zero; an integer of the YAML is text here."""

PositiveQuantityText = Annotated[
    str,
    Field(min_length=1, max_length=quantity.MAX_LENGTH, pattern=quantity.PATTERN),
    _quantity(POSITIVE_STRING_RULE, above_zero=True),
    Keywords(POSITIVE_STRING_RULE),
]
"""As `PositiveQuantity`, but a string in the YAML too.

For maps by rank: up to Kubernetes 1.32 the estimate of a rule's cost ignores the bound on a value
that may also be an integer, and refuses the rule in a large map.
"""
