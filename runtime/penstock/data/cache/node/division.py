"""Whom the memory of a cache belongs to: what its programs say of their time, and the quotas.

A data set of which too little is known has no quota: it has what nobody has a right to, and is read
from storage otherwise, as without a cache. As long as only one is known there are no quotas at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.cache.allocate import Reading, divide
from penstock.data.cache.node.met import MetFiles
from penstock.data.cache.observed import Observed
from penstock.data.cache.policy import Key

DIVIDE_SECONDS: Final = 2.0
"""So often it is seen whether another division spares enough."""
COUNTED_WITHIN: Final = 0.02
"""The bytes of a data set are known so well."""
_GIB: Final = 1 << 30


@dataclass(slots=True)
class _Seen:
    """What was asked for of a path lately, and which of that is held."""

    met: MetFiles
    admitted: int = 0  # bytes, since the last generation of what was met began
    admitted_before: int = 0

    def age(self, now: float) -> None:
        if self.met.age(now):
            self.admitted, self.admitted_before = 0, self.admitted

    def not_held(self, held: int) -> float:
        """Bytes that were met and are not held: what is found is not met again."""
        return max(0.0, self.met.total_bytes - min(held, self.admitted + self.admitted_before))


class Division:
    """See the module's docstring. Not for several threads at once."""

    def __init__(self, capacity: int, held_of: Callable[[str], int]) -> None:
        """``held_of``: bytes that are held of a path now."""
        self._capacity = capacity
        self._held_of = held_of
        self._seen: dict[str, _Seen] = {}
        self._observed: dict[str, Observed] = {}
        self._readings: dict[str, Reading] = {}
        self._quotas: dict[str, int] = {}
        self._divided: float | None = None

    def meet(self, path: str, key: Key, now: float) -> bool:
        """A file of a path was asked for that is not held; whether for the first time."""
        found = self._seen.get(path)
        if found is None:
            found = self._seen[path] = _Seen(MetFiles(now))
        found.age(now)
        return found.met.add(key)

    def admit(self, path: str, key: Key) -> None:
        """A file that was met is held from now on."""
        self._seen[path].admitted += key.length

    def forget(self, path: str) -> None:
        """What was met of a path says nothing of what will be."""
        self._seen.pop(path, None)

    def not_held(self, now: float) -> float:
        """About how many bytes of files were asked for lately, of all paths, and are not held."""
        for one in self._seen.values():
            one.age(now)
        return sum(one.not_held(self._held_of(path)) for path, one in self._seen.items())

    def note(self, path: str, job: str, said: Mapping[str, int], now: float) -> None:
        """What a program of a job says of its time; see `penstock.data.cache.observed.TIMED`."""
        found = self._observed.get(path)
        if found is None:
            found = self._observed[path] = Observed(now - said.get("elapsed_us", 0) * 1e-6)
        found.add(job, said)

    def divide(self, now: float) -> dict[str, int] | None:
        """The quotas from now on; None: as they are, it is not time yet."""
        if self._divided is not None and now - self._divided < DIVIDE_SECONDS:
            return None
        self._divided = now
        readings = {}
        for path, one in self._observed.items():
            one.fade(now)
            if (seen := self._seen.get(path)) is not None:
                seen.age(now)
            found = one.reading(self._size(path))
            if found is not None:
                readings[path] = found
        self._readings = readings
        shared = len(readings) > 1
        self._quotas = divide(self._capacity, readings, self._quotas) if shared else {}
        return dict(self._quotas)

    def report(self, path: str) -> dict[str, Any]:
        """What a path has, wants, and why; None where it is not known."""
        held = self._held_of(path)
        reading = self._readings.get(path)
        return {
            "held_bytes": held,
            "quota_bytes": self._quotas.get(path),
            "wanted_bytes": None if reading is None else int(reading.enough),
            "data_set_bytes": self._size(path),
            "waiting": None if reading is None else reading.waiting(held),
            "spared_per_gib": None if reading is None else reading.spared * _GIB,
            "why": self._why(path, reading),
        }

    def _why(self, path: str, reading: Reading | None) -> str:
        quota = self._quotas.get(path)
        if reading is None:
            return "not known yet: it has what others leave"
        if reading.cache_rate <= reading.storage_rate:
            return "its storage is as fast as memory"
        if reading.enough < 1:
            return "its jobs do not wait for files"
        if quota is None:
            return "no other data set asks for the memory"
        if quota >= (1 - COUNTED_WITHIN) * reading.enough:
            return "with more its jobs would wait no less"
        return "each byte spares others more waiting" if not quota else "others have the rest"

    def _size(self, path: str) -> int:
        held, seen = self._held_of(path), self._seen.get(path)
        return held if seen is None else held + int(seen.not_held(held))
