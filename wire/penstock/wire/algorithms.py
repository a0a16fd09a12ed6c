"""The planning algorithms and how they are configured."""

from __future__ import annotations

from typing import Any

from penstock.base.enums import Stage, Strategy, Trigger
from penstock.wire.base import Name, Text, WireModel


class AlgorithmView(WireModel):
    """One algorithm, its parameters and their schema."""

    name: Name
    version: Name
    summary: Text
    enabled: bool
    shadow: bool
    """True: its plans are recorded beside the applied ones, and never applied."""
    stages: list[Stage]
    triggers: list[Trigger]
    strategies: list[Strategy]
    params: dict[str, Any]
    """Every parameter with its present value."""
    params_schema: dict[str, Any]
    """JSON schema of the parameters, with their defaults and what they mean."""


class AlgorithmPatch(WireModel):
    """Changes to one algorithm: the body of ``PATCH /v1/algorithms/{name}``."""

    enabled: bool | None = None
    shadow: bool | None = None
    params: dict[str, Any] | None = None
    """Parameters to change; the others stay as they are."""
