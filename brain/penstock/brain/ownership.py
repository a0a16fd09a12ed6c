"""Which of several Brains administers which job: each job has one owner among those that live.

The owner of a job is the replica with the highest hash of the two (rendezvous hashing), so that all
replicas that see the same others agree without a word. A replica that comes takes an equal part
from each of the others, one that goes leaves its part to all of them, and no other job moves; jobs
that come and end move none either.

Guarantees, checked by tests: a replica takes what is free and its own, and lets go only of what
belongs to another that lives. So what is free has one taker, and where all see the same replicas
nothing moves twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice


@dataclass(frozen=True, slots=True)
class Moves:
    """What a replica does about its leases: uids to take and to let go."""

    take: tuple[str, ...] = ()
    release: tuple[str, ...] = ()


def owner(uid: str, living: Collection[str]) -> str:
    """Which of the living replicas a job belongs to.

    Raises:
        ValueError: No replica lives.
    """
    return max(living, key=lambda replica: (_weight(uid, replica), replica))


def moves(
    replica: str, living: Collection[str], held: Iterable[str], free: Iterable[str], most: int
) -> Moves:
    """What `replica`, which lives, takes of the jobs that nobody holds and lets go of its own.

    `most` bounds each of the two; where there is more, the next look finds it.
    """
    if len(living) <= 1:
        return Moves(take=tuple(islice(free, most)))
    theirs = (uid for uid in held if owner(uid, living) != replica)
    ours = (uid for uid in free if owner(uid, living) == replica)
    return Moves(take=tuple(islice(ours, most)), release=tuple(islice(theirs, most)))


def _weight(uid: str, replica: str) -> bytes:
    return blake2b(f"{replica} {uid}".encode(), digest_size=8).digest()
