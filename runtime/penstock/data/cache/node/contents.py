"""What lies in a node's cache: the policy's decisions carried out in an arena, and counted.

For any thread. What is given up while somebody is being sent it keeps its place until that is over,
so that nobody is ever given bytes of another file.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.data.cache.index import Index, index_bytes
from penstock.data.cache.node.arena import Arena, SealedMemory
from penstock.data.cache.node.met import MetFiles
from penstock.data.cache.policy import LARGEST_BYTES, Key, MinIOPolicy, Verdict, key_of
from penstock.data.memory import MemoryMeter

PIECE_BYTES: Final = 8 << 20
"""So much is read at a time."""
RETIRED_SECONDS: Final = 2.0
"""After this a place is used again; to copy a file takes a few milliseconds."""
IDLE_SECONDS: Final = 600.0
"""A data set nobody asked for in so long has no clients: others may have its room."""
ROOM_SHARE: Final = 0.8
"""The part of the free memory that the pages of files are thought to get."""


@dataclass
class Counts:
    """Of one path; sums since the daemon began. Hits on other nodes are among the hits."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    unseen: int = 0
    remote_hits: int = 0
    refused_answers: int = 0


@dataclass(slots=True)
class Held:
    """A file in an arena."""

    key: Key
    shelf: Shelf
    place: int
    crc: int = 0
    users: int = 1  # who reads it in, or is being sent it
    gone: bool = False


class Shelf:
    """The files of one path that the same programs may read, and where they lie."""

    def __init__(self, capacity: int) -> None:
        """Raises OSError: the system has no such memory."""
        self.arena = Arena(capacity)
        self.index_memory = SealedMemory(index_bytes(capacity))
        self.index = Index(self.index_memory.memory)
        self.index.begin()
        self.retired: deque[tuple[float, int, int]] = deque()

    def retire(self, held: Held, now: float) -> None:
        """A file is given up: its place is free once nobody can be copying it any more."""
        self.retired.append((now, held.place, held.key.size))

    def use_retired(self, now: float) -> None:
        """Free what was retired long enough ago."""
        while self.retired and now - self.retired[0][0] > RETIRED_SECONDS:
            _, place, size = self.retired.popleft()
            self.arena.give_back(place, size)

    def close(self) -> None:
        """Have programs let go of it, and let go."""
        self.index.end()
        self.index_memory.close()
        self.arena.close()


class Contents:
    """See the module's docstring."""

    def __init__(
        self,
        memory: int,
        paths: Sequence[str],
        largest: int = LARGEST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError, OSError: there can be no such cache."""
        self.paths = tuple(paths)
        self.counts = {path: Counts() for path in paths}
        self._policy = MinIOPolicy(memory, largest)
        self._shelves: dict[tuple[str, bool], Shelf] = {}  # of a path; whether all may read it
        self._held: dict[Key, Held] = {}
        self._met = MetFiles()
        self._memory = MemoryMeter()
        self._clock = clock
        self._asked = dict.fromkeys(paths, clock())
        self._changed = threading.Condition()
        for path in paths:
            self._shelf(path, True)

    def _shelf(self, path: str, public: bool) -> Shelf:
        found = self._shelves.get((path, public))
        if found is None:
            found = self._shelves[path, public] = Shelf(self._policy.capacity)
        return found

    def shared(self, path: str) -> tuple[int, int]:
        """Descriptors of index and arena of what all who may read a path may read; to be closed."""
        with self._changed:
            shelf = self._shelf(path, True)
            return os.dup(shelf.index_memory.descriptor), os.dup(shelf.arena.descriptor)

    def find(self, key: Key, path: str) -> Held | None:
        """A file, if it is here; `release` it."""
        with self._changed:
            self._asked[path] = self._clock()
            if key not in self._policy:
                return None
            held = self._held[key]
            held.users += 1
            return held

    def meet(self, key: Key, path: str, public: bool) -> tuple[Verdict, Held | None]:
        """A file is about to be read. HIT: `release` it; ADMIT: `read_in` it; others: nothing.

        ``public``: all who may read the path may read the file.
        """
        with self._changed:
            now = self._asked[path] = self._clock()
            self._met.add(key)
            meeting = self._policy.meet(key, path)
            if meeting.verdict is Verdict.PASS and self._drop_idle(now):
                meeting = self._policy.meet(key, path)
            for lost in meeting.given_up:
                self._give_up(lost)
            if meeting.verdict is Verdict.HIT:
                held = self._held[key]
                held.users += 1
                return Verdict.HIT, held
            if meeting.verdict is Verdict.ADMIT:
                shelf = self._shelf(path, public)
                shelf.use_retired(now)
                touched = sum(one.arena.touched for one in self._shelves.values())
                place = shelf.arena.take(key.size, self._policy.capacity - touched)
                if place is None:  # there are gaps, but none so large
                    self._policy.abandon(key)
                    return Verdict.PASS, None
                held = self._held[key] = Held(key, shelf, place)
                return Verdict.ADMIT, held
            return meeting.verdict, None

    def _drop_idle(self, now: float) -> bool:
        """Give up the data sets that nobody reads any more; whether there was one."""
        idle = [
            path
            for path, asked in self._asked.items()
            if now - asked > IDLE_SECONDS and self._policy.held_of(path)
        ]
        for path in idle:
            self._drop(path)
        return bool(idle)

    def read_in(self, held: Held, descriptor: int) -> bool:
        """Read a file that was admitted from its descriptor, and have its pages dropped.

        False: it could not be read, or changed meanwhile; it is not held. Else `release` it.
        """
        try:
            whole = self._read(held, descriptor)
        except OSError:
            whole = False
        with self._changed:
            if whole and not held.gone:
                whole = self._policy.note_read(held.key)
                held.shelf.index.add(held.key, held.place)
            if not whole:
                self._policy.abandon(held.key)
                if self._held.get(held.key) is held:
                    del self._held[held.key]
                held.gone = True
                self._release(held)
            self._changed.notify_all()
        return whole

    def abandon(self, held: Held) -> None:
        """A file that was admitted is not going to be read in."""
        with self._changed:
            self._policy.abandon(held.key)
            if self._held.get(held.key) is held:
                del self._held[held.key]
            held.gone = True
            self._release(held)
            self._changed.notify_all()

    def _read(self, held: Held, descriptor: int) -> bool:
        view = self.view(held)
        at, crc = 0, 0
        while at < len(view):
            piece = view[at : at + PIECE_BYTES]
            got = os.preadv(descriptor, [piece], at)
            if not got:
                return False
            crc = zlib.crc32(piece[:got], crc)
            at += got
        held.crc = crc
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return key_of(os.fstat(descriptor)) == held.key

    def wait(self, key: Key, seconds: float) -> Held | None:
        """A file that somebody else reads in, once it is here; None where it does not come."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while key not in self._policy:
                left = deadline - time.monotonic()
                if key not in self._held or left <= 0:
                    return None
                self._changed.wait(left)
            held = self._held[key]
            held.users += 1
            return held

    def view(self, held: Held) -> memoryview:
        """Its bytes, until it is released."""
        return held.shelf.arena.view(held.place, held.key.size)

    def release(self, held: Held) -> None:
        """Nobody reads these bytes any more who did."""
        with self._changed:
            self._release(held)

    def _release(self, held: Held) -> None:
        held.users -= 1
        if held.gone and not held.users:
            held.shelf.retire(held, self._clock())

    def _give_up(self, key: Key) -> None:
        held = self._held.pop(key)
        held.shelf.index.remove(key)
        held.gone = True
        held.users += 1
        self._release(held)

    def drop(self, path: str | None) -> None:
        """Give up what is held of a path, or everything."""
        with self._changed:
            for one in self.paths if path is None else [path]:
                self._drop(one)
            self._changed.notify_all()

    def _drop(self, path: str) -> None:
        """Give up a path with its memory; what is being sent or read in keeps it until then."""
        for key in self._policy.drop(path):
            self._give_up(key)
        for public in (True, False):
            shelf = self._shelves.pop((path, public), None)
            if shelf is not None:
                shelf.close()

    def note(self, path: str, **more: int) -> None:
        """Add to the counts of a path."""
        with self._changed:
            self._asked[path] = self._clock()
            counts = self.counts[path]
            for name, number in more.items():
                setattr(counts, name, getattr(counts, name) + number)

    @property
    def thrashes(self) -> bool:
        """Whether what is not held here is more than the memory beside it has room for.

        Then its pages are dropped once they are read; else the system's own cache keeps them, and
        to drop them would make the program slower than without this cache.
        """
        with self._changed:
            unheld = self._met.total_bytes - self._policy.held_bytes
            free = self._memory.measure().free - (self._policy.capacity - self._policy.held_bytes)
            return unheld > ROOM_SHARE * max(0, free)

    def report(self) -> dict[str, dict[str, Any]]:
        """The counts of each path, what is held of it, and what share of its reads was seen."""
        with self._changed:
            found: dict[str, dict[str, Any]] = {}
            for path, counts in self.counts.items():
                seen = counts.hits + counts.misses
                found[path] = {
                    **asdict(counts),
                    "seen": seen,
                    "held_bytes": self._policy.held_of(path),
                }
            return found
