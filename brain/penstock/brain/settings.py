"""What every part of the configuration has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Base of every part: typed, immutable, and an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """``yes`` and ``on`` are True in YAML, and True would pass for 1."""
        name = info.field_name
        if isinstance(value, bool) and name and cls.model_fields[name].annotation in {int, float}:
            raise PydanticCustomError("number", "should be a number")
        return value
