"""What each transform of a composed dataset costs, without wrapping one.

``Compose`` goes through its list of transforms for every sample; the list is replaced by one that
looks at the clock between them, for one sample in `EVERY`. It is an ordinary list to everybody
else, in a pickle or a copy too, and its items are the program's own objects: but for the first few
samples of a process, where each is called through one that also looks how large its result is.
Where a sample is cut (`penstock.data.cuts`) that is what would be sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.data.errors import NotPortableError
from penstock.data.stages import composed, datasets_of, names_of, replace_transforms
from penstock.throughput.observations.records import DATASET

EVERY: Final = 8
MOST_STAGES: Final = 32
SIZED: Final = 4
"""Samples of a process whose sizes are looked at."""


class StageTimes:
    """CPU seconds of each stage, and of how many samples."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._samples: dict[str, int] = {}
        self._sizes: dict[str, list[int]] = {}
        self.walks = 0
        """Through a list, since the last call of `take_sizes`."""

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

    def add_size(self, name: str, size: int) -> None:
        """A sample has so many bytes after a stage; 0: it cannot be sent."""
        if name in self._sizes or len(self._sizes) < MOST_STAGES:
            self._sizes.setdefault(name, []).append(size)

    def take_sizes(self, samples: int) -> dict[str, float]:
        """Bytes of a sample by stage since the last call, where it can be cut there.

        Those that go through their list more or less than once cannot.
        """
        found = {}
        if self.walks == samples:
            found = {
                name: sum(sizes) / len(sizes) for name, sizes in self._sizes.items() if all(sizes)
            }
        self.walks = 0
        self._sizes.clear()
        return found


class _Sized:
    """A transform that is asked for the size of its result; it is what it stands for otherwise."""

    def __init__(self, transform: Any, note: Callable[[Any, Any], None]) -> None:
        self.__dict__["_transform"] = transform
        self.__dict__["_note"] = note

    @property  # type: ignore[misc]  # it passes for what it stands for
    def __class__(self) -> Any:
        return type(self.__dict__["_transform"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_transform"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_transform"], name, value)

    def __eq__(self, other: object) -> bool:
        other = other.__dict__["_transform"] if type(other) is _Sized else other
        return bool(self.__dict__["_transform"] == other)

    def __hash__(self) -> int:
        return hash(self.__dict__["_transform"])

    def __call__(self, *values: Any, **named: Any) -> Any:
        made = self.__dict__["_transform"](*values, **named)
        if len(values) == 1 and not named:
            self.__dict__["_note"](values[0], made)
        return made


class TimedStages(list[Any]):
    """Transforms whose CPU time is taken while one sample in `EVERY` is made."""

    def __init__(
        self, transforms: list[Any], names: list[str], times: StageTimes, first: int | None
    ) -> None:
        """``first``: before so many of them no sample can be cut; None: nowhere."""
        super().__init__(transforms)
        self._names = names
        self._times = times
        self._first = first
        self._count = 0

    def __iter__(self) -> Iterator[Any]:
        self._count += 1
        self._times.walks += 1
        if self._first is not None and self._count <= SIZED:
            return self._sized(self._first)
        if self._count % EVERY:
            return super().__iter__()
        return self._timed()

    def _timed(self) -> Iterator[Any]:
        for name, transform in zip(self._names, list(super().__iter__()), strict=False):
            begun = time.thread_time()
            yield transform
            self._times.add(name, time.thread_time() - begun)

    def _sized(self, first: int) -> Iterator[Any]:
        for at, transform in enumerate(list(super().__iter__())):

            def note(given: Any, made: Any, at: int = at) -> None:
                if not at and not first:
                    self._times.add_size(DATASET, _size_of(given))
                if at + 1 >= first and at < len(self._names):
                    self._times.add_size(self._names[at], _size_of(made))

            yield _Sized(transform, note) if callable(transform) else transform

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self[:],)


def time_stages(dataset: Any, times: StageTimes) -> None:
    """Have the composed transforms of a dataset timed; what is composed in another way is not."""
    taken: set[str] = set()
    lists = composed(dataset)
    for compose in lists:
        names = names_of(compose.transforms, taken)
        first = None
        if len(lists) == 1 and _gives_samples(dataset):
            from penstock.data.cuts.points import first_of

            first = first_of(compose.transforms)
        replace_transforms(compose, TimedStages(compose.transforms, names, times, first))


def _gives_samples(dataset: Any) -> bool:
    """Whether samples are asked for one by one, by their index."""
    several = any(getattr(one, "__getitems__", None) is not None for one in datasets_of(dataset))
    return hasattr(dataset, "__getitem__") and not several


def _size_of(value: Any) -> int:
    """Bytes of a sample as it would be sent; 0: it cannot be."""
    from penstock.data.cuts.plain import to_plain
    from penstock.data.transport.batch_codec import pack

    try:
        return pack(to_plain(value)).size
    except (NotPortableError, TypeError, ValueError, RuntimeError, AttributeError):
        return 0
