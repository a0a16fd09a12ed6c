"""What copies may take of the pod's memory beside what its program will take again.

Between two steps of a training much of its memory is free: what a step computes with is given back,
and taken again by the next. A copy that was made in that room would have the program killed some
milliseconds later. So the most memory that this process ever had counts as taken, without what
copies had of it; of what is left `ROOM_SHARE` may be used. Other processes of the pod count with
what they have now: what they take again is not known.

Shared memory is left out of that sum, as the system tells its size now and not its size then: what
lies there is taken now, and it is not expected to come and go with steps. What did go, and what a
step does not take, such as the copies of a state that is taken up, would count as the program's own
for ever: `SpareMemory.forget_peak` has the system count anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.data import cgroups
from penstock.data.cgroups import PROC
from penstock.data.memory import ROOM_SHARE, Memory, read_memory

_RESET_PEAK: Final = "5"


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory of one process that it does not share, in bytes: now, and at its most so far."""

    now: int
    most: int


@dataclass(frozen=True, slots=True)
class Room:
    """What is free, and what is spoken for, in bytes.

    Attributes:
        free: before something is killed.
        limit: of the pod; where it has none, the machine's memory.
        regrowth: what the program had at its most, above what it has now.
    """

    free: int
    limit: int
    regrowth: int

    @property
    def unclaimed(self) -> int:
        """What is free and not expected to be taken by the program."""
        return max(0, self.free - self.regrowth)

    @property
    def spare(self) -> int:
        """What a copy may take."""
        return int(ROOM_SHARE * self.unclaimed)


def read_resident(proc: Path = PROC) -> Resident:
    """Of this process; nothing where the system does not say, as on another one than Linux."""
    table = cgroups.table(proc / "self/status")
    shared = table.get("RssShmem:", 0)
    now = table.get("VmRSS:", 0) - shared
    return Resident(max(0, now) * 1024, max(0, now, table.get("VmHWM:", 0) - shared) * 1024)


def reset_peak(proc: Path = PROC) -> bool:
    """Have the system count the most memory of this process from now on; False: it does not."""
    with contextlib.suppress(OSError):
        (proc / "self/clear_refs").write_text(_RESET_PEAK)
        return True
    return False


class SpareMemory:
    """Of this process: what it may take for copies, and what its copies have taken."""

    def __init__(
        self,
        read: Callable[[], Memory] = read_memory,
        resident: Callable[[], Resident] = read_resident,
        reset: Callable[[], bool] = reset_peak,
    ) -> None:
        """What is asked of the system.

        Args:
            read: what the pod may take.
            resident: what this process has.
            reset: has the most that it had counted anew.
        """
        self._read = read
        self._resident = resident
        self._reset = reset
        self._lock = threading.Lock()
        self._held = 0  # by copies
        self._most_held = 0  # since the process was looked at
        self._seen = 0  # the most that it was ever seen to have had
        self._own = 0  # the same without copies

    def look(self) -> Room:
        """What is free now, and what is spoken for."""
        with self._lock:
            return self._look()

    def take(self, size: int) -> bool:
        """Count so many bytes as a copy's if they may be taken; False: they may not."""
        if not size:
            return True
        with self._lock:
            if size > self._look().spare:
                return False
            self._held += size
            self._most_held = max(self._most_held, self._held)
            return True

    def give_back(self, size: int) -> None:
        """A copy of so many bytes is gone."""
        with self._lock:
            self._held -= size

    def forget_peak(self) -> None:
        """Leave out what the process had since the last look: it was no step's, and is given back.

        What was known then stays: the program takes that again. Where the system does not count
        anew nothing changes, and fewer copies are made than there is room for.
        """
        with self._lock:
            if self._reset():
                self._seen, self._most_held = 0, self._held

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """For what takes memory once and gives it back: it is no step's."""
        self.look()
        yield
        self.forget_peak()

    def _look(self) -> Room:
        memory, resident = self._read(), self._resident()
        if resident.most > self._seen:
            self._seen = resident.most
            self._own = max(self._own, resident.most - self._most_held)
        self._most_held = self._held
        regrowth = max(0, self._own - (resident.now - self._held))
        return Room(memory.free, memory.limit, regrowth)
