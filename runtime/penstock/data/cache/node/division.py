"""Whom the memory of a cache belongs to: what its programs say of their time, and the quotas.

A data set of which too little is known has no quota: it has what nobody has a right to, and is read
from storage otherwise, as without a cache. As long as only one is known there are no quotas at all.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Division:
    """See the module's docstring. Not for several threads at once."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._met: dict[str, MetFiles] = {}
        self._observed: dict[str, Observed] = {}
        self._readings: dict[str, Reading] = {}
        self._quotas: dict[str, int] = {}
        self._divided: float | None = None

    def meet(self, path: str, key: Key) -> bool:
        """A file of a path was asked for; whether for the first time."""
        found = self._met.get(path)
        if found is None:
            found = self._met[path] = MetFiles()
        return found.add(key)

    @property
    def total_bytes(self) -> float:
        """About how many bytes the files of all paths have."""
        return sum(one.total_bytes for one in self._met.values())

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
            found = one.reading(self._size(path))
            if found is not None:
                readings[path] = found
        self._readings = readings
        shared = len(readings) > 1
        self._quotas = divide(self._capacity, readings, self._quotas) if shared else {}
        return dict(self._quotas)

    def report(self, path: str, held: int) -> dict[str, Any]:
        """What a path has, wants, and why; None where it is not known."""
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
        found = self._met.get(path)
        return 0 if found is None else int(found.total_bytes)
