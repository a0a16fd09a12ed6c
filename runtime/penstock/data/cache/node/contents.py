"""What lies in a node's cache: the policy's decisions carried out in an arena, and counted.

For any thread. What is given up while somebody is being sent it keeps its place until that is over,
so that nobody is ever given bytes of another file.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.data.cache.node.division import Division
from penstock.data.cache.node.shelves import Held, Shelves
from penstock.data.cache.policy import LARGEST_BYTES, Key, MinIOPolicy, Verdict, key_of
from penstock.data.complaints import Complaints
from penstock.data.memory import ROOM_SHARE, MemoryMeter

PIECE_BYTES: Final = 8 << 20
"""So much is read at a time."""
CLAIM_SECONDS: Final = 2.0
"""For so long nobody is asked for room who had none to give."""
IDLE_SECONDS: Final = 600.0
"""A data set nobody asked for in so long has no clients: others may have its room."""


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
        self.largest = min(largest, memory)
        """Bytes of the largest file that is kept as a whole."""
        self.counts = {path: Counts() for path in paths}
        self._clock = clock
        self._policy = MinIOPolicy(memory, largest)
        self._shelves = Shelves(memory, len(paths))
        self._held: dict[Key, Held] = {}
        self._division = Division(memory, self._policy.held_of)
        self._memory = MemoryMeter()
        self._asked = dict.fromkeys(paths, clock())
        self._claims_from = 0.0
        self._changed = threading.Condition()
        self._complaints = Complaints()
        for path in paths:
            self._shelves.of(path, True)

    def keeps(self, key: Key) -> bool:
        """Whether such a file may be kept, or such a range of one."""
        return self._policy.keeps(key)

    def shared(self, path: str, part: int | None = None) -> int | None:
        """A descriptor, to be closed, of what all who may read a path may read.

        ``part``: of the arena; None: its index. The answer is None where there is no such part.
        """
        with self._changed:
            shelf = self._shelves.of(path, True)
            found = shelf.index_memory.descriptor if part is None else shelf.arena.descriptor(part)
            return None if found is None else os.dup(found)

    def find(self, key: Key, path: str, *, any_size: bool = False) -> Held | None:
        """A file, if it is here; `release` it. ``any_size``: that of the key is not known."""
        with self._changed:
            self._asked[path] = self._clock()
            if any_size:
                found = self._policy.version(key.piece)
                if found is None or found.changed_ns != key.changed_ns:
                    return None
                key = found
            if key not in self._policy:
                return None
            held = self._held[key]
            held.use()
            return held

    def meet(
        self, key: Key, path: str, public: bool, *, little: bool = False
    ) -> tuple[Verdict, Held | None]:
        """A file is about to be read. HIT: `release` it; ADMIT: `read_in` it; others: nothing.

        ``public``: all who may read the path may read the file. ``little``: only a little of it is
        read, so that to read all of it is worth it only if that is not for the first time.
        """
        with self._changed:
            now = self._asked[path] = self._clock()
            if self._division.meet(path, key, now) and little:
                return Verdict.PASS, None
            if key.there and key.length > self._policy.largest:
                self._complaints.add(
                    f"{path}:", "a cache of so little memory keeps nothing of its larger files"
                )
            meeting = self._policy.meet(key, path)
            for lost in meeting.given_up:
                self._give_up(lost)
            if meeting.verdict is Verdict.PASS and (
                self._drop_idle(now) or self._make_room(path, key.length)
            ):
                meeting = self._policy.meet(key, path)
            if meeting.verdict is Verdict.HIT:
                held = self._held[key]
                held.use()
                return Verdict.HIT, held
            if meeting.verdict is Verdict.ADMIT:
                self._division.admit(path, key)
                placed = self._placed(key, path, public, now)
                return (Verdict.PASS if placed is None else Verdict.ADMIT), placed
            return meeting.verdict, None

    def _placed(self, key: Key, path: str, public: bool, now: float) -> Held | None:
        """A place for a file that is admitted; None: there is no gap so large, or no memory."""
        try:
            shelf = self._shelves.of(path, public)
        except OSError:  # no memory, or no descriptor, for another one
            self._policy.abandon(key)
            return None
        place = shelf.arena.take(key.length, self._shelves.free_memory, now)
        if place is None:
            self._shelves.give_back_empty()
            self._make_room(path, key.length)
            place = shelf.arena.take(key.length, self._shelves.free_memory, now)
        if place is None:
            self._policy.abandon(key)
            return None
        held = Held(key, shelf, place)
        self._held[key] = held
        return held

    def _make_room(self, path: str, size: int) -> bool:
        """Have others give up what they have beyond their quotas; whether they did."""
        now = self._clock()
        if now < self._claims_from or not self._policy.may_claim(path, size):
            return False
        lots = self._shelves.lots(path)
        chosen = self._policy.lots_to_give(size, path, list(lots))
        if not chosen:  # not again for each file that is missed
            self._claims_from = now + CLAIM_SECONDS
        for lot in chosen:
            keys = list(lots[lot])
            self._policy.give_up(keys)
            for key in keys:
                self._give_up(key)
        self._shelves.give_back_empty()
        return bool(chosen)

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
            whole = _read(held, descriptor)
        except OSError:
            whole = False
        with self._changed:
            if whole and not held.gone:
                whole = self._policy.note_read(held.key)
                held.shelf.index.add(held.key, held.place)
            if not whole:
                self.abandon(held)
            self._changed.notify_all()
        return whole

    def note_stored(self, held: Held, crc: int) -> bool:
        """What was admitted was written to its place; `release` it, unless this is False."""
        with self._changed:
            held.crc = crc
            whole = not held.gone and self._policy.note_read(held.key)
            if not whole:
                self.abandon(held)
            self._changed.notify_all()
        return whole

    def abandon(self, held: Held) -> None:
        """A file that was admitted is not going to be read in."""
        with self._changed:
            if self._held.get(held.key) is held:  # else it was given up, and maybe admitted again
                self._policy.abandon(held.key)
                del self._held[held.key]
                held.give_up(self._clock())
            held.release(self._clock())
            self._changed.notify_all()

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
            held.use()
            return held

    def release(self, held: Held) -> None:
        """Nobody reads these bytes any more who did."""
        with self._changed:
            held.release(self._clock())

    def _give_up(self, key: Key) -> None:
        held = self._held.pop(key)
        held.shelf.index.remove(key)
        held.give_up(self._clock())

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
        self._division.forget(path)
        self._shelves.close(path)

    def note(self, path: str, **more: int) -> None:
        """Add to the counts of a path."""
        with self._changed:
            self._asked[path] = self._clock()
            counts = self.counts[path]
            for name, number in more.items():
                setattr(counts, name, getattr(counts, name) + number)

    def note_times(self, path: str, job: str, said: Mapping[str, int]) -> None:
        """What a program of a job says of its time; now and then the memory is divided anew."""
        with self._changed:
            now = self._asked[path] = self._clock()
            self._division.note(path, job, said, now)
            quotas = self._division.divide(now)
            if quotas is not None:
                self._policy.set_quotas(quotas)

    @property
    def thrashes(self) -> bool:
        """Whether what is not held here is more than the memory beside it has room for.

        Then its pages are dropped once they are read; else the system's own cache keeps them, and
        to drop them would make the program slower than without this cache.
        """
        with self._changed:
            unheld = self._division.not_held(self._clock())
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
                    **self._division.report(path),
                }
            return found


def _read(held: Held, descriptor: int) -> bool:
    """Read a file from its descriptor to its place; whether it is what it was meanwhile."""
    view = held.view
    at, crc = 0, 0
    while at < len(view):
        piece = view[at : at + PIECE_BYTES]
        got = os.preadv(descriptor, [piece], held.key.start + at)
        if not got:
            return False
        crc = zlib.crc32(piece[:got], crc)
        at += got
    held.crc = crc
    whole = not held.key.number  # of a file of no length, the system takes all
    length = 0 if whole else held.key.length
    os.posix_fadvise(descriptor, held.key.start, length, os.POSIX_FADV_DONTNEED)
    return key_of(os.fstat(descriptor), held.key.number) == held.key
