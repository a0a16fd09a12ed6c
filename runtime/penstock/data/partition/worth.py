"""Whether a partition is worth it, from what was measured, with hysteresis.

GoldMiner's "use or not" (SIGMOD 2023, section 3.4.1) and FastFlow's question (PVLDB 16(5), section
4), for whole steps: a step takes as long as the slowest of the training itself, of each stage's
workers and of each link. Moving nothing is one of the ways that are compared.

A way is taken up when it is faster than the one in use by `BEGIN_GAIN`, and given up for none when
it is faster than none by less than `KEEP_GAIN`, in `WINDOWS` windows of measurement in a row: what
lies between the two changes nothing, so that noise does not send a job to and fro. What is *slower*
than none is given up at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.data.partition.errors import PartitionError

BEGIN_GAIN: Final = 0.10
"""Of the speed: as with FastFlow's SpeedUpThreshold, less is not worth a change."""
KEEP_GAIN: Final = 0.03
WINDOWS: Final = 3
NONE: Final = "none"
"""The name of the way in which nothing moves."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a step, as measured or predicted for it.

    Attributes:
        name: of the cut; `NONE`: nothing moves.
        training_seconds: of a step in the training process, what it takes to receive included.
        stage_seconds: of a worker for one step, in each stage of data workers.
        sent_bytes: of a step, over each boundary.
    """

    name: str
    training_seconds: float
    stage_seconds: tuple[float, ...] = ()
    sent_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Means:
    """What a step may use: workers in each stage, and bytes a second over each boundary."""

    workers: tuple[float, ...]
    bytes_per_second: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The way in use, and what the last windows said of it.

    Attributes:
        way: its name.
        better: another way that was better in the last windows; it is `way` where there is none.
        windows: in a row, in which that was so.
        gain: of `way` over none, as a share of the speed.
        why: for people.
    """

    way: str = NONE
    better: str = NONE
    windows: int = 0
    gain: float = 0.0
    why: str = "nothing is measured yet"


def step_seconds(way: Way, means: Means) -> float:
    """How long a step takes that way; ``inf`` where a stage has no workers or a link no bytes.

    Raises:
        PartitionError: a figure is negative or none, or there are too few means.
    """
    for field in ("stage_seconds", "sent_bytes"):
        figures = getattr(way, field)
        there = means.workers if field == "stage_seconds" else means.bytes_per_second
        if len(figures) > len(there):
            raise PartitionError(f"{way.name}: {field}: {len(figures)}; there are {len(there)}")
        if any(not 0 <= one < math.inf for one in (way.training_seconds, *figures, *there)):
            raise PartitionError(f"{way.name}: {field}: all figures must be numbers, at least 0")
    stages = [_over(one, many) for one, many in zip(way.stage_seconds, means.workers, strict=False)]
    links = [
        _over(one, of) for one, of in zip(way.sent_bytes, means.bytes_per_second, strict=False)
    ]
    return max([way.training_seconds, *stages, *links])


def decide(choice: Choice, ways: Sequence[Way], means: Means) -> Choice:
    """The way for the next window, given what this one has measured.

    Args:
        choice: the way in use until now.
        ways: all of them, `NONE` included; one that is not there any more is given up.
        means: that there are.

    Raises:
        PartitionError: `NONE` is not among the ways, or one is there twice; or see `step_seconds`.
    """
    seconds = {way.name: step_seconds(way, means) for way in ways}
    if NONE not in seconds or len(seconds) < len(ways):
        raise PartitionError(f"ways: {[way.name for way in ways]}; each once, and {NONE!r} of them")
    used = choice.way if choice.way in seconds else NONE
    gains = {name: _gain(seconds[NONE], one) for name, one in seconds.items()}
    at = replace(choice, way=used, gain=gains[used])
    if gains[used] < 0:
        why = f"{used} is slower than none by {-gains[used]:.0%}: nothing moves"
        return Choice(why=why)
    if used != NONE and gains[used] < KEEP_GAIN:
        why = f"{used} gains {gains[used]:.1%}, less than {KEEP_GAIN:.0%}"
        return _towards(at, NONE, 0.0, why)
    best = min(seconds, key=lambda name: (seconds[name], name != used, name != NONE, name))
    more = _gain(seconds[used], seconds[best])
    if best != used and more >= BEGIN_GAIN:
        return _towards(at, best, gains[best], f"{best} is faster than {used} by {more:.0%}")
    why = f"{used} stays: the best other gains {max(0.0, more):.0%}, less than {BEGIN_GAIN:.0%}"
    return replace(at, better=used, windows=0, why=why)


def _towards(choice: Choice, better: str, gain: float, why: str) -> Choice:
    """One window more that speaks for another way; the change once they are enough."""
    windows = choice.windows + 1 if choice.better == better else 1
    if windows >= WINDOWS:
        return Choice(better, better, 0, gain, why)
    said = f"{why}, in {windows} of {WINDOWS} windows"
    return replace(choice, better=better, windows=windows, why=said)


def _gain(before: float, after: float) -> float:
    """Of the speed, as a share."""
    if math.isinf(before):
        return 0.0 if math.isinf(after) else math.inf
    return before / after - 1 if after > 0 else (math.inf if before > 0 else 0.0)


def _over(work: float, means: float) -> float:
    if work <= 0:
        return 0.0
    return work / means if means > 0 else math.inf
