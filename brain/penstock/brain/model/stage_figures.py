"""What a job says of the stages of its input, in each of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """One stage: batches that its workers made, and the share of their time that it took."""

    made_per_second: float
    busy_share: float


def dump(stages: Sequence[StageFigures]) -> str:
    """As JSON, for the store."""
    return _ADAPTER.dump_json(tuple(stages)).decode()


def load(text: str | None) -> tuple[StageFigures, ...]:
    """What `dump` gave; empty where it is nothing, or of a release that says something else."""
    if text is None:
        return ()
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError:
        return ()


_ADAPTER: Final = TypeAdapter(tuple[StageFigures, ...])
