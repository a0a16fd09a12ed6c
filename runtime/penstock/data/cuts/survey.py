"""What each stage of a sample's way costs, and how large a sample is after it, from a few samples.

They are made in the program, once, in the state and with the random numbers of any other batch, one
stage after the other; so it is known, too, that they can be made in two places.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.data.cuts.head_and_tail import Begun, go_on, head_of, opened, stages_from
from penstock.data.cuts.plain import to_plain
from penstock.data.cuts.points import COLLATE, points_of
from penstock.data.errors import NotCutError, NotPortableError
from penstock.data.pipeline import Pipeline
from penstock.data.seeding import ALL
from penstock.data.transport.batch_codec import pack
from penstock.throughput.observations.records import DATASET
from penstock.throughput.profiles.stage import StageCost

SAMPLES: Final = 8


def survey(pipeline: Pipeline, seed: int, indices: list[Any]) -> list[StageCost]:
    """Costs of a batch of so many samples, stage by stage: the dataset, each stage, collating.

    Of a stage after which a sample cannot be sent the size is 0, which is unknown.

    Raises:
        NotCutError: they cannot be made in two places; says why.
        Exception: whatever the user's code raises.
    """
    some, points = indices[:SAMPLES], points_of(pipeline)
    times = len(indices) / len(some)
    head = head_of(pipeline, points[0])
    spent, (begun, why) = _timed(lambda: opened(head.make(seed, some)))
    if not isinstance(begun, Begun):
        raise NotCutError(why)
    found = [_cost(DATASET, "opaque", spent, begun.samples, times)]
    for point, stage in zip(points, stages_from(pipeline, points[0]), strict=False):
        spent, samples = _timed(partial(go_on, [stage], seed, some, begun, ALL))
        begun = replace(begun, samples=samples)
        found.append(_cost(point.name, "transform", spent, samples, times))
    spent, batch = _timed(partial(pipeline.collated, seed, some, begun.samples))
    found.append(_cost(COLLATE, "collate", spent, batch, times))
    return found


def _timed(make: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Seconds of the clock and on a core, and what was made."""
    began, cpu = time.perf_counter(), time.thread_time()
    made = make()
    return (time.perf_counter() - began, time.thread_time() - cpu), made


def _cost(name: str, kind: Any, spent: tuple[float, float], made: Any, times: float) -> StageCost:
    seconds, cpu = spent
    try:
        size = pack(to_plain(made)).size
    except NotPortableError:
        size = 0
    # What is not on a core here waits for one mostly; of a data worker that is known by itself.
    blocked = max(0.0, seconds - cpu) if kind == "opaque" else 0.0
    return StageCost(name, kind, cpu * times, blocked * times, size * times)
