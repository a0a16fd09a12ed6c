"""How a pydantic model says what its structural schema needs beyond types and bounds.

The models of this room are the only definition of the custom resources: bounds, enums and defaults
are pydantic's own, and what Kubernetes adds (CEL rules, list types, formats, kept unknown fields)
is declared beside them with the names of this module. `penstock.crds.schema` then derives the
schema. Where a declaration can be checked on one value it is (lists whose items are unique,
objects that must not be empty); a CEL rule is evaluated by the API server alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True)
class Rule:
    """One CEL rule of a schema, with what a person reads when it does not hold.

    Attributes:
        cel: the expression; ``self`` is the value, ``oldSelf`` the one it replaces.
        message: what is wrong and, where it is not obvious, what would be right.
        field_path: the field at fault, relative to the value (``.minReplicas``); None: the value.
    """

    cel: str
    message: str
    field_path: str | None = None

    def as_schema(self) -> dict[str, str]:
        """The rule as an item of ``x-kubernetes-validations``."""
        schema = {"rule": self.cel, "message": self.message}
        return schema if self.field_path is None else {**schema, "fieldPath": self.field_path}


class Model(BaseModel):
    """Base of every object in the API: camelCase on the wire, snake_case in Python, frozen.

    As in the API server, a null is an absent field, and unknown fields are dropped.

    Class attributes that the schema is derived from:
        rules: CEL rules on the object as a whole.
        min_properties: the least number of fields that must be present.
        preserve_unknown: fields that are not declared are kept rather than pruned.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    min_properties: ClassVar[int] = 0
    preserve_unknown: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _count_properties(self) -> Model:
        if len(self.model_fields_set) < self.min_properties:
            names = ", ".join(
                field.alias or name for name, field in type(self).model_fields.items()
            )
            raise PydanticCustomError(
                "min_properties",
                "should have at least {count} of the fields {names}",
                {"count": self.min_properties, "names": names},
            )
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        generated = handler(schema)
        own = handler.resolve_ref_schema(generated)
        if cls.min_properties:
            own["minProperties"] = cls.min_properties
        if cls.preserve_unknown:
            own[PRESERVE_UNKNOWN] = True
        if cls.rules:
            own[VALIDATIONS] = [rule.as_schema() for rule in cls.rules]
        return generated


class Keywords:
    """Annotation: keywords to add to the schema of one field, with CEL rules on its value."""

    def __init__(self, *rules: Rule, **keywords: Any) -> None:
        self._rules = rules
        self._keywords = keywords

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        generated = {**handler(schema), **self._keywords}
        if self._rules:
            present: Sequence[dict[str, str]] = generated.get(VALIDATIONS, [])
            generated[VALIDATIONS] = [*present, *(rule.as_schema() for rule in self._rules)]
        return generated


class UniqueItems:
    """Annotation of a list whose items differ: by one of their fields (a list-map) or as a whole.

    Args:
        key: the field by which the items differ; None: the items themselves (a list-set).
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = key

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        generated = handler(schema)
        if self._key is None:
            return {**generated, "x-kubernetes-list-type": "set"}
        return {
            **generated,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [self._key],
        }

    def _check(self, items: Sequence[Any]) -> Sequence[Any]:
        seen = set()
        for index, item in enumerate(items):
            identity = item if self._key is None else getattr(item, self._key)
            if identity in seen:
                raise PydanticCustomError(
                    "duplicate_item",
                    "item {index} repeats {identity}",
                    {"index": index, "identity": repr(identity)},
                )
            seen.add(identity)
        return items


class KeptAs:
    """Annotation of a plain dict that must fit a model but is kept exactly as it was written.

    Pod templates are such: Penstock declares the few fields that it relies on and leaves the rest,
    known to it or not, to the API server that will receive the pod.
    """

    def __init__(self, shape: type[Model]) -> None:
        self._shape = shape

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            self._check,
            handler.generate_schema(self._shape),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value, return_schema=core_schema.any_schema()
            ),
        )

    @staticmethod
    def _check(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        validate(value)
        return value
