"""The tiles that one data worker holds for a group of jobs, and which it makes next: pure.

A tile is some samples of the dataset, made once as an *instance*: with random numbers of its own. A
member (a training process's loader) takes each tile once in an epoch, of whichever instance, and no
instance twice. So members of different speed, or that came later, share what lies here without a
common order, and nobody waits for anybody (ephemeral sharing of tf.data service, SoCC 23, section
3.5, gives up samples instead).

Guarantees, for any interleaving of calls: what is held is within the window, but for one instance
that is larger; a member is given a tile once for each time that it says it lacks it, and an
instance at most once; where room is short, that is dropped which the fewest lack now, the oldest
first. Until then what everybody has had stays as well: whoever comes next lacks it, and programs
that are started together do not begin together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_MEMBERS: Final = 256
"""Loaders that share; a byte a tile is kept for each."""

Lacks = NDArray[np.bool_]


class SharingError(Exception):
    """What a member asks for cannot be; says what."""


class Pick(NamedTuple):
    """A tile for a member; ``held``: it lies here, and is otherwise to be made now."""

    tile: int
    instance: int
    held: bool


@dataclass(slots=True)
class _Instance:
    tile: int
    size: int
    had: set[str]
    needed: int = 0  # members that lack its tile now, and could have it


@dataclass(slots=True)
class _Member:
    lacks: Lacks
    ready: dict[int, int] = field(default_factory=dict)  # instances that it could have: tiles
    making: dict[int, int] = field(default_factory=dict)  # that are made for it


class Pool:
    """See the module's docstring. ``window``: bytes; ``tiles``: of the whole dataset."""

    def __init__(self, tiles: int, window: int, chance: random.Random) -> None:
        """``chance``: what is made in which order is drawn from it.

        Raises:
            ValueError: no tiles, or no room.
        """
        for name, value in (("tiles", tiles), ("window", window)):
            if value < 1:
                raise ValueError(f"{name}: {value}; at least 1")
        self.window = window
        self.made = self.taken = self.evicted = 0
        self.held_bytes = 0
        self._dropped: list[int] = []
        self._tiles = tiles
        self._chance = chance
        self._lacking: NDArray[np.int32] = np.zeros(tiles, np.int32)  # members that lack each
        self._members: dict[str, _Member] = {}
        self._held: dict[int, _Instance] = {}
        self._of_tile: dict[int, dict[int, None]] = {}
        self._by_need: dict[int, dict[int, None]] = {}
        self._next = 0

    # ------------------------------------------------------------------ members

    @property
    def members(self) -> frozenset[str]:
        """Who shares now."""
        return frozenset(self._members)

    @property
    def held(self) -> dict[int, int]:
        """The tile of each instance that lies here."""
        return {number: one.tile for number, one in self._held.items()}

    def join(self, member: str, lacks: Lacks) -> None:
        """A member begins, begins an epoch, or has another part: what it is to get from here.

        Which instances it had is remembered as long as it does not leave.

        Raises:
            SharingError: there are too many, or it is no array of all tiles.
        """
        if lacks.dtype != np.bool_ or lacks.shape != (self._tiles,):
            raise SharingError(
                f"an array of {lacks.dtype} of shape {lacks.shape}; {self._tiles} booleans are "
                "wanted"
            )
        if member not in self._members:
            if len(self._members) >= MAX_MEMBERS:
                raise SharingError(f"{MAX_MEMBERS} loaders share already")
            self._members[member] = _Member(np.zeros(self._tiles, np.bool_))
        one = self._members[member]
        self._lacking += lacks.astype(np.int32) - one.lacks
        one.lacks = lacks.copy()
        for number in list(one.ready):
            self._note_ready(one, number, ready=False)
        for number, held in self._held.items():
            if lacks[held.tile] and member not in held.had:
                self._note_ready(one, number, ready=True)

    def leave(self, member: str) -> None:
        """It has ended, or is lost: nothing is kept for it."""
        one = self._members.pop(member, None)
        if one is None:
            return
        self._lacking -= one.lacks
        for number in list(one.ready):
            self._note_ready(one, number, ready=False)
        for held in self._held.values():
            held.had.discard(member)

    def lacks(self, member: str) -> int:
        """Tiles that a member lacks of those that it is to get from here."""
        return int(np.count_nonzero(self._member(member).lacks))

    def ready(self, member: str) -> int:
        """Tiles that lie here and that a member lacks; one of two instances counts twice."""
        one = self._members.get(member)
        return 0 if one is None else len(one.ready)

    @property
    def idle(self) -> bool:
        """Whether nobody is to get anything more from here."""
        return not self._lacking.any()

    def resize(self, window: int) -> None:
        """From now on so many bytes; what does not fit is dropped."""
        self.window = max(1, window)
        self._make_room()

    # ------------------------------------------------------------------ instances

    def choose(self, member: str, count: int) -> list[Pick]:
        """Tiles for a member: what lies here longest, and then what most others lack too.

        They are had from then on; whatever is not held is to be told of by `note_made` or
        `note_failed`. Empty: it lacks fewer than ``count`` of those that it is to get from here.
        """
        one = self._member(member)
        if self.lacks(member) < count:
            return []
        chosen: dict[int, Pick] = {}
        for number, tile in one.ready.items():
            if len(chosen) == count:
                break
            chosen.setdefault(tile, Pick(tile, number, held=True))
        for tile in self._most_lacked(one.lacks, list(chosen), count - len(chosen)):
            self._next += 1
            chosen[tile] = Pick(tile, self._next, held=False)
            one.making[self._next] = tile
        for pick in chosen.values():
            one.lacks[pick.tile] = False
            self._lacking[pick.tile] -= 1
            for number in list(self._of_tile.get(pick.tile, ())):
                self._note_ready(one, number, ready=False)
            if pick.held:
                self._held[pick.instance].had.add(member)
        self.taken += count
        return list(chosen.values())

    def note_made(self, member: str, instance: int, size: int) -> bool:
        """A tile is made for a member; whether it stays, for others who lack it."""
        self.made += 1
        one = self._members.get(member)
        tile = one.making.pop(instance, None) if one is not None else None
        if tile is None:
            return False
        self._held[instance] = _Instance(tile, size, {member})
        self._of_tile.setdefault(tile, {})[instance] = None
        self._by_need.setdefault(0, {})[instance] = None
        self.held_bytes += size
        for name, other in self._members.items():
            if name != member and other.lacks[tile]:
                self._note_ready(other, instance, ready=True)
        self._make_room()
        return instance in self._held

    def note_failed(self, member: str, instance: int) -> None:
        """A tile could not be made; whoever it was for sees to it."""
        if (one := self._members.get(member)) is not None:
            one.making.pop(instance, None)

    def take_dropped(self) -> list[int]:
        """The instances that are held no more, of which the last call did not tell."""
        found, self._dropped = self._dropped, []
        return found

    # ------------------------------------------------------------------ inside

    def _member(self, name: str) -> _Member:
        try:
            return self._members[name]
        except KeyError:
            raise SharingError(f"{name} has not joined") from None

    def _most_lacked(self, lacks: Lacks, chosen: list[int], count: int) -> list[int]:
        """Of the tiles that a member lacks, those that most others lack too; ties by chance."""
        if not count:
            return []
        wanted = lacks.copy()
        wanted[chosen] = False
        tiles = np.flatnonzero(wanted)
        ties = np.random.default_rng(self._chance.getrandbits(64)).random(len(tiles))
        rank = ties - self._lacking[tiles]
        if count < len(tiles):  # in an epoch of a million tiles sorting all would take 0.1 s
            first = np.argpartition(rank, count)[:count]
            tiles, rank = tiles[first], rank[first]
        return [int(tile) for tile in tiles[np.argsort(rank)]]

    def _note_ready(self, member: _Member, number: int, *, ready: bool) -> None:
        """Whether a member could have an instance now."""
        one = self._held[number]
        if ready:
            member.ready[number] = one.tile
        elif member.ready.pop(number, None) is None:
            return
        self._by_need[one.needed].pop(number)
        one.needed += 1 if ready else -1
        self._by_need.setdefault(one.needed, {})[number] = None

    def _make_room(self) -> None:
        while self.held_bytes > self.window and len(self._held) > 1:
            least = min(need for need, numbers in self._by_need.items() if numbers)
            self._drop(next(iter(self._by_need[least])))
            self.evicted += least > 0

    def _drop(self, number: int) -> None:
        for member in self._members.values():
            self._note_ready(member, number, ready=False)
        one = self._held.pop(number)
        self._dropped.append(number)
        self._by_need[one.needed].pop(number)
        numbers = self._of_tile[one.tile]
        numbers.pop(number)
        if not numbers:
            del self._of_tile[one.tile]
        self.held_bytes -= one.size

    def check_invariants(self) -> None:
        """Assert what is guaranteed: for tests, after every event."""
        assert self.held_bytes == sum(one.size for one in self._held.values())
        assert self.held_bytes <= self.window or len(self._held) == 1
        counted = np.zeros(self._tiles, np.int32)
        for name, member in self._members.items():
            counted += member.lacks
            assert member.ready == {
                number: one.tile
                for number, one in self._held.items()
                if member.lacks[one.tile] and name not in one.had
            }
        assert (counted == self._lacking).all()
        for number, one in self._held.items():
            assert one.needed == sum(number in member.ready for member in self._members.values())
            assert number in self._by_need[one.needed]
            assert number in self._of_tile[one.tile]
            assert one.had <= self._members.keys(), "somebody had it who has gone"
