"""What every object on the wire has in common.

Unknown fields are refused, numbers are finite and bounded, objects are immutable once read. Times
are seconds since the epoch. The modules of this package need pydantic alone, so that a training
image can use them without the web framework.
"""

from __future__ import annotations

from typing import Annotated, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from penstock.base import quantity
from penstock.base.fields import EXACT_INT_MAX, Quantity


class WireModel(BaseModel):
    """Base of requests and answers: snake_case, immutable, nothing unknown, nothing infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


MAX_SECONDS: Final = 1e11
"""Latest time that is read, about the year 5138: later ones are in milliseconds, by mistake."""

Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
"""A moment, in seconds since the epoch."""

Duration = Annotated[float, Field(gt=0, le=86_400)]
MAX_RATE: Final = 1e12
Rate = Annotated[float, Field(ge=0, le=MAX_RATE)]
Cores = Annotated[float, Field(ge=0, le=100_000)]
Bytes = Annotated[int, Field(ge=0, le=EXACT_INT_MAX)]
Counter = Annotated[int, Field(ge=0, le=EXACT_INT_MAX)]
NO_NUL: Final = r"^[^\x00]*$"
"""Text without the character NUL, which PostgreSQL cannot store."""

Name = Annotated[str, Field(max_length=253, pattern=NO_NUL)]
Text = Annotated[str, Field(max_length=1024, pattern=NO_NUL)]
Uid = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*)$")]
"""A job's ``metadata.uid``."""

ItemT = TypeVar("ItemT")


class ListResource(WireModel, Generic[ItemT]):
    """One page of a list."""

    items: list[ItemT]
    """The objects of this page."""
    continue_: str | None = Field(default=None, alias="continue")
    """Give it back as query parameter ``continue`` for the next page; absent on the last one."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def milli_cpu(text: Quantity | None) -> int | None:
    """The milli-cores of an optional quantity."""
    return None if text is None else quantity.parse_milli_cpu(text)


def byte_count(text: Quantity | None) -> int | None:
    """The bytes of an optional quantity."""
    return None if text is None else quantity.parse_bytes(text)
