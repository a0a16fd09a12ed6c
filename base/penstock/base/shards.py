"""How the jobs of a cluster are divided over processes of the controller: names and numbers.

A job is of one of ``number`` shards by its namespace and name, which its Scales and pods name too.
Each shard has a Lease. Who holds it writes into it under which number: the division is another one
with another number, and two processes that go by different numbers would share jobs. The number in
force is one value in the cluster (`NUMBER_OBJECT`); without it there is one shard, of all jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

MOST_SHARDS: Final = 16
"""Every one reads all events, so that more bring ever less; and the roles name their Leases."""
NUMBER_OBJECT: Final = "penstock-controller-shards"
"""The ConfigMap that says the number, in the namespace of the Leases."""
NUMBER_KEY: Final = "shards"
FIRST_LEASE: Final = "penstock-controller"
_HOLDER: Final = re.compile(r"^(?P<identity>.+) shard (?P<shard>\d+) of (?P<number>\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """One shard of a division: without arguments, all jobs."""

    shard: int = 0
    number: int = 1

    def owns(self, namespace: str, name: str) -> bool:
        """Whether the job of that namespace and name is in it."""
        return self.number == 1 or shard_of(namespace, name, self.number) == self.shard

    def __str__(self) -> str:
        return f"shard {self.shard} of {self.number}"


ALL_JOBS: Final = Share()


def shard_of(namespace: str, name: str, number: int) -> int:
    """Which of ``number`` shards a job is in; the same in every process."""
    digest = blake2b(f"{namespace}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % number


def lease_name(shard: int, first: str = FIRST_LEASE) -> str:
    """The Lease of a shard; the first one's is that of a controller without shards."""
    return first if shard == 0 else f"{first}-{shard}"


def lease_names(first: str = FIRST_LEASE) -> list[str]:
    """Those of all shards that there can be."""
    return [lease_name(shard, first) for shard in range(MOST_SHARDS)]


def holder_of(identity: str, share: Share) -> str:
    """What the holder of a shard writes into its Lease."""
    return identity if share.number == 1 else f"{identity} {share}"


def read_holder(holder: str, shard: int = 0) -> Share:
    """Of which share the holder of a shard's Lease is; one that names none holds all jobs."""
    found = _HOLDER.match(holder)
    return Share(shard, 1) if found is None else Share(shard, int(found["number"]))


def read_number(text: str | None) -> int:
    """How many shards there are to be.

    Raises:
        ValueError: it is no number that can be.
    """
    if text is None:
        return 1
    if not (text.strip().isdecimal() and 1 <= int(text) <= MOST_SHARDS):
        raise ValueError(
            f"ConfigMap {NUMBER_OBJECT}, {NUMBER_KEY} = {text!r}: must be a whole number from 1 to "
            f"{MOST_SHARDS}"
        )
    return int(text)


def different_numbers(holders: Iterable[str]) -> list[int]:
    """The numbers by which living holders go, where they are not all the same."""
    numbers = sorted({read_holder(holder).number for holder in holders if holder})
    return numbers if len(numbers) > 1 else []
