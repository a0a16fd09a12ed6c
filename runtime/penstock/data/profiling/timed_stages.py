"""What each transform of a composed dataset costs, without wrapping one.

``Compose`` goes through its list of transforms for every sample; the list is replaced by one that
looks at the clock between them, for one sample in `EVERY`. It is an ordinary list to everybody
else, in a pickle or a copy too, and its items are the program's own objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from penstock.data.stages import composed, names_of

EVERY: Final = 8
MOST_STAGES: Final = 32


class StageTimes:
    """CPU seconds of each stage, and of how many samples."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def add(self, name: str, seconds: float) -> None:
        """One sample more."""
        if name in self._seconds or len(self._seconds) < MOST_STAGES:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
            self._samples[name] = self._samples.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Seconds a sample by stage since the last call."""
        found = {name: self._seconds[name] / self._samples[name] for name in self._seconds}
        self._seconds.clear()
        self._samples.clear()
        return found


class TimedStages(list[Any]):
    """Transforms whose CPU time is taken while one sample in `EVERY` is made."""

    def __init__(self, transforms: list[Any], names: list[str], times: StageTimes) -> None:
        super().__init__(transforms)
        self._names = names
        self._times = times
        self._count = 0

    def __iter__(self) -> Iterator[Any]:
        self._count += 1
        if self._count % EVERY:
            return super().__iter__()
        return self._timed()

    def _timed(self) -> Iterator[Any]:
        for name, transform in zip(self._names, list(super().__iter__()), strict=False):
            begun = time.thread_time()
            yield transform
            self._times.add(name, time.thread_time() - begun)

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self[:],)


def time_stages(dataset: Any, times: StageTimes) -> None:
    """Have the composed transforms of a dataset timed; what is composed in another way is not."""
    taken: set[str] = set()
    for compose in composed(dataset):
        names = names_of(compose.transforms, taken)
        compose.transforms = TimedStages(compose.transforms, names, times)
