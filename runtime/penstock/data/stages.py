"""The stages of a dataset that its author composed: random numbers of each are its own.

``Compose([crop, flip, normalise])`` says where a sample's way can be cut, so that a part of it runs
somewhere else. Each of its stages draws from (seed of the epoch, index, stage), whether or not
there is a cut: what a later stage draws does not depend on who ran the earlier ones, and moving the
cut changes no bit. (tf.data service and FastFlow, which cut pipelines too, leave that open.) Where
a sample goes through the list more than once, as for two views of a picture, each time draws its
own.

Nothing is wrapped: the list of transforms is replaced by one that seeds between its items while a
sample is made, and after the last of them, so that what a dataset draws later does not depend on
them either. It is an ordinary list to everybody else, in a pickle or a copy too. What composes in
another way is one stage, and so are datasets that fetch a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.data.seeding import seed_stage, times_begun

MAX_DEPTH: Final = 8
MAX_DATASETS: Final = 64
_STAGES_APART: Final = 1000
"""Numbers of stages of two lists do not meet."""
_TIMES_APART: Final = _STAGES_APART * 1000
"""Nor do those of a list that a sample goes through more than once."""


class SeededStages(list[Any]):
    """Transforms that are each seeded for themselves while a sample is made."""

    def __init__(self, transforms: list[Any], first: int) -> None:
        super().__init__(transforms)
        self._first = first
        self._end: tuple[int, Callable[..., Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        first = self._first + times_begun(self._first) * _TIMES_APART
        for number, transform in enumerate(super().__iter__()):
            if self._end is not None and number == self._end[0]:
                break
            seed_stage(first + number)
            yield transform
        if self._end is not None:
            yield self._end[1]
        seed_stage(first + len(self))

    @contextmanager
    def ended(self, before: int, by: Callable[..., Any]) -> Iterator[None]:
        """Have a sample go through those before ``before`` alone, and then through ``by``."""
        self._end = before, by
        try:
            yield
        finally:
            self._end = None

    def rest(self, begin: int) -> list[tuple[int, Any]]:
        """Those from ``begin`` on, with the number of each for `seed_stage`, first time round."""
        return [(self._first + begin + at, one) for at, one in enumerate(self[begin:])]

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self[:],)


def seed_stages(dataset: Any) -> int:
    """Have the composed stages of a dataset seeded each for itself; says how many lists there are.

    Datasets that hold others (``Subset``, ``ConcatDataset``) are looked into. Numbers follow the
    order of attributes, which is the same in all processes that have the dataset.
    """
    found = 0
    for compose in _composing(dataset):
        transforms = compose.transforms
        if type(transforms) is list and transforms:
            seeded = SeededStages(transforms, (found + 1) * _STAGES_APART)
            if not replace_transforms(compose, seeded):
                continue
        found += 1
    return found


def replace_transforms(compose: Any, transforms: list[Any]) -> bool:
    """Have another list in its place; an object that cannot be changed (frozen) stays one stage."""
    try:
        compose.transforms = transforms
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def seeded_lists(dataset: Any) -> list[SeededStages]:
    """The lists of a dataset whose stages are seeded, each once."""
    found = {id(one.transforms): one.transforms for one in _composing(dataset)}
    return [one for one in found.values() if isinstance(one, SeededStages)]


def names_of(transforms: list[Any], taken: set[str] | None = None) -> list[str]:
    """What each of a list of transforms is called; ``taken``: by others, and then by these too."""
    names: list[str] = []
    taken = set() if taken is None else taken
    for transform in transforms:
        plain = getattr(transform, "__name__", None) or type(transform).__name__
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain} ({number})", number + 1
        taken.add(name)
        names.append(name)
    return names


def composed(dataset: Any) -> list[Any]:
    """The objects in a dataset that hold a plain list of transforms, each once."""
    found: dict[int, Any] = {}
    for compose in _composing(dataset):
        if type(compose.transforms) is list and compose.transforms:
            found.setdefault(id(compose), compose)
    return list(found.values())


def _composing(dataset: Any) -> Iterator[Any]:
    for holder in datasets_of(dataset):
        for value in list(getattr(holder, "__dict__", {}).values()):
            for compose in (value, getattr(value, "transform", None)):
                transforms = getattr(compose, "__dict__", {}).get("transforms")
                if callable(compose) and isinstance(transforms, list):
                    yield compose


def datasets_of(dataset: Any, depth: int = 0) -> Iterator[Any]:
    """A dataset, and those that it holds."""
    yield dataset
    if depth == MAX_DEPTH:
        return
    inner = getattr(dataset, "__dict__", {})
    if "dataset" in inner:
        yield from datasets_of(inner["dataset"], depth + 1)
    several = inner.get("datasets")
    if isinstance(several, list | tuple):
        for one in several[:MAX_DATASETS]:
            yield from datasets_of(one, depth + 1)
