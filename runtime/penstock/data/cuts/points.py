"""Where the way of a sample can be cut, so that its end is made by the program.

That is in front of each stage of a `penstock.data.Loader`, of each transform of the one list that a
dataset goes through, and of collating. Names are those that `penstock profile` gives the stages.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.data.errors import NotCutError
from penstock.data.pipeline import Pipeline
from penstock.data.stages import SeededStages, names_of, seed_stages, seeded_lists
from penstock.throughput.observations.records import DATASET

COLLATE: Final = "collate"
MAX_DEPTH: Final = 4
MAX_SEEN: Final = 1000


@dataclass(frozen=True)
class Point:
    """A cut: ``before`` stages are made elsewhere, ``name`` is the first that the program makes.

    ``listed``: the stages are a list of the dataset's own; else those of the pipeline.
    """

    name: str
    before: int
    listed: bool


def points_of(pipeline: Any) -> list[Point]:
    """All places where a pipeline can be cut, in order.

    Raises:
        NotCutError: there is none; says why.
    """
    if not isinstance(pipeline, Pipeline):
        raise NotCutError("its dataset is iterated")
    if not pipeline.batched:
        raise NotCutError("it gives samples one by one")
    if pipeline.batched_stages:
        raise NotCutError("what is done with its whole batches is done where they are made")
    if getattr(pipeline.dataset, "__getitems__", None) is not None:
        raise NotCutError("its dataset fetches all samples of a batch at once")
    if pipeline.stages:
        functions = [stage.function for stage in pipeline.stages]
        return _points(functions, listed=False)
    return _points(list(list_of(pipeline.dataset)), listed=True)


def point_named(pipeline: Any, name: str) -> Point:
    """The cut in front of a stage.

    Raises:
        NotCutError: there is none; says why.
    """
    points = points_of(pipeline)
    for point in points:
        if point.name == name:
            return point
    raise NotCutError(f"it has no stage {name}: {', '.join(one.name for one in points)}")


def list_of(dataset: Any) -> SeededStages:
    """The list of transforms that the samples of a dataset go through.

    Raises:
        NotCutError: there is not just one.
    """
    seed_stages(dataset)
    lists = seeded_lists(dataset)
    if len(lists) != 1:
        raise NotCutError(f"its dataset has {len(lists)} lists of transforms, and not one")
    return lists[0]


def _points(functions: list[Any], *, listed: bool) -> list[Point]:
    names = [*names_of(functions, {DATASET, COLLATE}), COLLATE]
    least = first_of(functions)
    return [Point(name, at, listed) for at, name in enumerate(names) if at >= least]


def first_of(functions: list[Any]) -> int:
    """Before so many of these transforms there is no cut."""
    least = 0
    for at, function in enumerate(functions):
        if _draws_for_itself(function):
            least = at + 1  # it goes on where its copy was: it stays with what makes whole batches
    return least


def _draws_for_itself(function: Any) -> bool:
    """Whether a transform has a generator of its own, which nobody seeds."""
    kinds: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState)
    if (torch := sys.modules.get("torch")) is not None:
        kinds = (*kinds, torch.Generator)
    seen: set[int] = set()
    left = [(function, 0)]
    while left and len(seen) < MAX_SEEN:
        value, depth = left.pop()
        if isinstance(value, kinds):
            return True
        if id(value) in seen or depth == MAX_DEPTH:
            continue
        seen.add(id(value))
        inner = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        several = value if isinstance(value, list | tuple) else ()
        left += [(one, depth + 1) for one in (*inner.values(), *several)]
    return False
