"""What members of a group say to each other, as plain lists that any transport carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any, Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition.declared import Standing
from penstock.data.partition.errors import ProofError
from penstock.data.partition.events import (
    Asked,
    Changed,
    Chosen,
    Compared,
    Diverged,
    Event,
    NotCompared,
    Recorded,
)

_SAID: Final = {
    kind.__name__: kind
    for kind in (Asked, Changed, Chosen, Compared, Diverged, NotCompared, Recorded)
}
_TYPES: Final = {"int": int, "str": str, "str | None": str | None}


def written(event: Event) -> list[Any]:
    """An event that a member says."""
    return [type(event).__name__, *astuple(event)]


def read(word: Any) -> Event:
    """The event that was written.

    Raises:
        ProofError: it is none.
    """
    kind = _SAID.get(word[0]) if isinstance(word, Sequence) and word else None
    if kind is None or len(word) != 1 + len(fields(kind)):
        raise ProofError(f"{str(word)[:100]}: is nothing that a member says")
    for field, value in zip(fields(kind), word[1:], strict=True):
        if not isinstance(value, _TYPES[str(field.type)]) or isinstance(value, bool):
            raise ProofError(f"{kind.__name__}: {field.name}: {value!r}; must be {field.type}")
    event: Event = kind(*word[1:])
    return event


def standing_written(standing: Standing) -> list[Any]:
    """How a member stands."""
    return [
        standing.epoch,
        standing.heard,
        standing.phase.value,
        standing.prefix,
        standing.recordings,
        [list(one) for one in standing.divergences],
        standing.why,
        standing.has,
    ]


def standing_read(word: Any) -> Standing:
    """The standing that was written.

    Raises:
        ProofError: it is none.
    """
    try:
        epoch, heard, phase, prefix, recordings, divergences, why, has = word
        return Standing(
            int(epoch),
            int(heard),
            Phase(phase),
            str(prefix),
            int(recordings),
            tuple((int(of), str(member), int(step)) for of, member, step in divergences),
            str(why),
            str(has),
        )
    except (TypeError, ValueError) as error:
        raise ProofError(f"{str(word)[:100]}: is no standing of a member") from error
