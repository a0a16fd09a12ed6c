"""What can happen to a ledger: a journal is a list of these, and its replay gives the state back.

Every change of a ledger is one event that was first decided (with the clock as an argument) and
then applied; applying needs no clock and cannot fail, so that a replay always repeats the past.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from penstock.data.ledger.errors import SnapshotError


@dataclass(frozen=True, slots=True)
class Leased:
    """Slots ``start..stop`` were handed to a holder under a new fencing number."""

    fence: int
    holder: str
    start: int
    stop: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Completed:
    """The consumer acknowledged slots ``start..stop``, held under ``fence``."""

    fence: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A lease ended (given back, expired, its holder replaced); what was open goes to the front."""

    fence: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A holder failed on one slot, which goes back to the front or into quarantine.

    ``holder`` is who failed, where several share the lease; empty: whose lease it is.
    """

    fence: int
    slot: int
    holder: str = ""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The model is at ``position``: exactly the slots below it count as consumed."""

    position: int


Event = Leased | Completed | Returned | Failed | RolledBack

_BY_TAG: Final[dict[str, type[Event]]] = {
    "lease": Leased,
    "done": Completed,
    "return": Returned,
    "fail": Failed,
    "rollback": RolledBack,
}
_TAGS: Final = {kind: tag for tag, kind in _BY_TAG.items()}
_FIELDS: Final = {kind: tuple(field.name for field in fields(kind)) for kind in _TAGS}


def to_record(event: Event) -> list[Any]:
    """The event as a plain list, for msgpack or JSON."""
    kind = type(event)
    return [_TAGS[kind], *[getattr(event, name) for name in _FIELDS[kind]]]


def from_record(record: object) -> Event:
    """The event that `to_record` wrote; raises SnapshotError for anything else."""
    if not isinstance(record, list | tuple) or not record:
        raise SnapshotError(f"not a ledger event: {record!r}")
    kind = _BY_TAG.get(record[0]) if isinstance(record[0], str) else None
    if kind is None:
        raise SnapshotError(f"not a ledger event: {record!r}")
    try:
        return kind(*record[1:])
    except TypeError as error:
        raise SnapshotError(f"not a ledger event: {record!r} ({error})") from error
