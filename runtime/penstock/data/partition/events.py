"""What happens to a partition's proof: all that `penstock.data.partition.proof` is told of.

``epoch`` is the membership epoch of the group that the event is about. Steps are numbered as the
program counts them; a step that is done again after a restore is one of a later epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grouped:
    """A membership epoch begins: members came, went, were replaced or healed, or went back.

    Attributes:
        epoch: its number; greater than those before.
        members: by name the digest of the prefix that each can have moved, as `Chosen` named it;
            empty: it has recorded nothing.
        first_step: the first that the group does in this epoch; no member has begun it in this one.
    """

    epoch: int
    members: Mapping[str, str]
    first_step: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A member is about to begin a step, and needs to know how far it may go and in which way."""

    epoch: int
    member: str
    step: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A member has recorded a step; ``signature``: the digest of what it called."""

    epoch: int
    member: str
    step: int
    signature: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to move, now that all members have recorded alike.

    Attributes:
        epoch: of the group.
        prefix: digest of what moves and of its surroundings (libraries, flags, kinds of devices);
            empty: nothing is to.
        why: for people.
    """

    epoch: int
    prefix: str
    why: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A member has computed a step's prefix itself, unobserved, and held it against what came.

    ``difference``: the first one, bit by bit; None: all bits are equal.
    """

    epoch: int
    member: str
    step: int
    difference: str | None = None


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Nothing came for a step that was to be compared, as without workers of a stage."""

    epoch: int
    member: str
    step: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """A step called other things than were recorded; the member has run it on the raw batch."""

    epoch: int
    member: str
    step: int
    why: str


@dataclass(frozen=True, slots=True)
class Changed:
    """What the prefix relies on was written: a frozen weight, an option, a library's flag."""

    epoch: int
    member: str
    step: int
    why: str


Report = Asked | Recorded | Compared | NotCompared | Diverged | Changed
"""What one member says."""
Event = Grouped | Chosen | Report
