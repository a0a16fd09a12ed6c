"""What is to be expected of a job that is not there yet."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from penstock.base.enums import Strategy
from penstock.wire.base import Name, WireModel
from penstock.wire.jobs import Signature

Amount = Annotated[float, Field(ge=0)]


class ForecastRequest(WireModel):
    """A job: the body of ``POST /v1/forecasts``."""

    strategy: Strategy
    signature: Signature
    namespace: Name = ""
    """The namespace whose jobs count; empty: all, for who may list those."""

    @model_validator(mode="after")
    def _like_something(self) -> Self:
        if not self.signature.finds_jobs:
            raise ValueError(
                "signature names nothing that jobs are alike by: say model, dataset or user"
            )
        return self


class Expected(WireModel):
    """One figure."""

    value: Amount
    """Most likely: the median of the newest jobs that are alike."""
    low: Amount | None = None
    """Nine of ten lie between `low` and `high`; absent with fewer than 20 comparisons."""
    high: Amount | None = None
    jobs: int
    """That were alike."""
    level: list[str]
    """What of the signature they share with it."""
    comparisons: int
    """Earlier estimates that were compared with what came."""


class Forecast(WireModel):
    """What finished jobs say of it; a figure of which nothing is known is absent."""

    seconds: Expected | None = None
    """From its registration, when its trainer is there, to its end."""
    core_seconds: Expected | None = None
    gib_seconds: Expected | None = None
    """Of memory."""
    accelerator_seconds: Expected | None = None
    cost: Expected | None = None
    """In the currency of the prices; absent where the Brain has none, too."""
    currency: str | None = None
    finished_jobs: int
    """That share any part of the signature, of the last four weeks."""
