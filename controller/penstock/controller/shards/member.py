"""When a process may look after a shard, and when it has to stop: pure.

`step(member, event, now) -> (member, orders)`. A member looks at the number in force and at Leases,
again and again, and holds at most one shard.

- **No job has two owners.** One shard has one Lease. Of two divisions with different numbers: a
  member begins only if, in a look that began after it had got its own Lease, no other Lease that
  may still be held was written under another number. Of two such members the one that got its
  Lease later sees the other's; so at most one of them begins.
- **None is long without one.** A member that sees another number than its own stops and gives its
  Lease back, whether it works or waits to begin; so those of the old number are gone a look later,
  and what a dead one left runs out. Where as many members live as there are shards, a job is
  without an owner for no longer than a Lease lasts and a few looks take.

Whether a Lease is still held is seen by its being renewed, not by its times: clocks differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from penstock.base.shards import Share, read_holder

_NONE: Final[Mapping[int, tuple[str, float]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lease:
    """A shard's Lease as it was read.

    Attributes:
        holder: who holds it; empty: nobody, or there is none yet.
        version: what changes whenever it is renewed.
    """

    shard: int
    holder: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """The number in force, and the Lease of every shard, where `needs_leases`."""

    number: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Blind:
    """The number or a Lease could not be read."""


@dataclass(frozen=True, slots=True)
class Got:
    """The Lease of the share that was contended for is ours."""

    share: Share


@dataclass(frozen=True, slots=True)
class Lost:
    """Our Lease is not ours any more, or was not got."""


Event = Looked | Blind | Got | Lost


@dataclass(frozen=True, slots=True)
class Contend:
    """Try to get the Lease of a share, which was seen to be free; `version` is as it was seen."""

    share: Share
    version: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Look after the jobs of the share."""

    share: Share


@dataclass(frozen=True, slots=True)
class Stop:
    """Look after no job any more, and then give the Lease back."""

    share: Share
    why: str


Order = Contend | Begin | Stop


@dataclass(frozen=True, slots=True)
class Member:
    """One process.

    Attributes:
        identity: what tells it from others.
        lease_seconds: for so long a Lease is held after it was renewed.
        blind_seconds: without having seen the number for so long it stops.
        share: what it has the Lease of.
        works: whether it looks after the jobs of its share.
        seen: of each Lease, how it was seen last and since when it has been so.
        looked: when the number was seen last.
    """

    identity: str
    lease_seconds: float
    blind_seconds: float
    share: Share | None = None
    works: bool = False
    seen: Mapping[int, tuple[str, float]] = field(default_factory=lambda: _NONE)
    looked: float | None = None

    @property
    def needs_leases(self) -> bool:
        """Whether the next look is at the Leases, too: of all shards that there can be, so that
        what a dead one left of another number runs out while its own is waited for.
        """
        return not self.works


def step(member: Member, event: Event, now: float) -> tuple[Member, tuple[Order, ...]]:
    """What follows from an event."""
    match event:
        case Got(share):
            return replace(member, share=share, works=False), ()
        case Lost():
            return replace(member, share=None, works=False), ()
        case Blind():
            return _blind(member, now)
        case Looked():
            return _looked(member, event, now)


def _blind(member: Member, now: float) -> tuple[Member, tuple[Order, ...]]:
    since = member.looked
    if member.share is None or (since is not None and now - since < member.blind_seconds):
        return member, ()
    return _stopped(member, "how many shards there are could not be read")


def _looked(member: Member, look: Looked, now: float) -> tuple[Member, tuple[Order, ...]]:
    seen = dict(member.seen)
    for lease in look.leases:
        known = seen.get(lease.shard)
        if known is None or known[0] != lease.version:
            seen[lease.shard] = (lease.version, now)
    member = replace(member, seen=seen, looked=now)
    own = member.share
    if own is None:
        return member, _contend(member, look, now)
    if own.number != look.number:
        return _stopped(member, f"there are {look.number} shards now")
    if member.works:
        return member, ()
    others = [
        lease
        for lease in look.leases
        if lease.shard != own.shard
        and _is_held(member, lease, now)
        and read_holder(lease.holder, lease.shard).number != own.number
    ]
    if others:
        return member, ()
    return replace(member, works=True), (Begin(own),)


def _contend(member: Member, look: Looked, now: float) -> tuple[Order, ...]:
    """For the first shard that is free, each member from another one on."""
    free = [
        lease
        for lease in look.leases
        if lease.shard < look.number and not _is_held(member, lease, now)
    ]
    if not free:
        return ()
    first = int.from_bytes(blake2b(member.identity.encode(), digest_size=4).digest(), "big")
    chosen = min(free, key=lambda lease: (lease.shard - first) % look.number)
    return (Contend(Share(chosen.shard, look.number), chosen.version),)


def _is_held(member: Member, lease: Lease, now: float) -> bool:
    """Whether the holder of a Lease may still act on it."""
    if not lease.holder:
        return False
    return now - member.seen[lease.shard][1] < member.lease_seconds


def _stopped(member: Member, why: str) -> tuple[Member, tuple[Order, ...]]:
    assert member.share is not None
    return replace(member, share=None, works=False), (Stop(member.share, why),)
