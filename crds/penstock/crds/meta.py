"""What every Kubernetes object has: its metadata and the conditions of its status.

`ObjectMeta` holds the part that Penstock reads. The schema of a custom resource may say almost
nothing about metadata, which the API server owns: only the name, which a rule refers to.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from penstock.base.fields import CamelCase, Generation, Timestamp
from penstock.base.structural import Model, UniqueItems

ConditionStatus = Literal["True", "False", "Unknown"]


def _empty(value: object) -> bool:
    return not value


class OwnerReference(Model):
    """The object that this one belongs to and is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model):
    """The metadata that Penstock reads; what the server has not set yet is None."""

    name: str = Field(default="", exclude_if=_empty)
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    labels: dict[str, str] = Field(default_factory=dict, exclude_if=_empty)
    annotations: dict[str, str] = Field(default_factory=dict, exclude_if=_empty)
    owner_references: list[OwnerReference] = Field(default_factory=list, exclude_if=_empty)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "object", "properties": {"name": {"type": "string"}}}


class Condition(Model):
    """One aspect of the object as it was last observed."""

    type: CamelCase = Field(description="Which aspect, in CamelCase; one condition for each.")
    status: ConditionStatus = Field(description="Whether the condition holds.")
    observed_generation: Generation | None = Field(
        default=None, description="The metadata.generation that this condition is about."
    )
    last_transition_time: Timestamp = Field(
        description="When status last changed from one value to another."
    )
    reason: CamelCase = Field(
        description="Why status is what it is: one CamelCase word of the documented catalogue."
    )
    message: Annotated[str, Field(max_length=4096)] = Field(
        description="The reason in words, for people; may be empty."
    )

    @property
    def is_true(self) -> bool:
        """Whether the status is True (neither False nor Unknown)."""
        return self.status == "True"


Conditions = Annotated[list[Condition], Field(max_length=16), UniqueItems("type")]
"""The conditions of a status; appliers of different types do not overwrite one another."""
