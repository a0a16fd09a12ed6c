"""By what the training was held up: the stages that the awaited batch was in, while it was awaited.

Only what is exposed counts: work that was done while the training was busy costs nothing (Ray
attributes stalls so, and DS-Analyzer counts unmasked ones alone, PVLDB 14(5), section 3). A window
in which the training waits is laid over what the maker of the awaited batch did in it.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

FETCH: Final = "fetch"
"""Its maker was blocked: by storage or a network, mostly."""
HAND_OVER: Final = "hand-over"
"""The batch was made, and not there yet."""
TOO_FEW_CORES: Final = "too few cores"
"""Its maker could have worked, and had no core."""
PIN_MEMORY: Final = "pin memory"
"""The batch was made, and its loader copied it into memory that a device can read."""


@dataclass(frozen=True, slots=True)
class Window:
    """The training waited from ``begin`` to ``end`` for a batch of ``maker``.

    What its maker begins from ``made`` on is for later batches, which nobody waits for yet.
    """

    begin: float
    end: float
    maker: int
    made: float = math.inf


@dataclass(frozen=True, slots=True)
class Span:
    """A maker made one batch, or a part of one; ``shares`` of the time by cause, which sum to 1."""

    begin: float
    end: float
    maker: int
    shares: Mapping[str, float]


def attribute(
    windows: Iterable[Window],
    spans: Sequence[Span],
    hand_over: float = math.inf,
    late: str = HAND_OVER,
    pinning: Sequence[tuple[float, float]] = (),
) -> dict[str, float]:
    """Seconds of waiting by cause; their sum is that of the windows.

    Args:
        windows: in which the training waited.
        spans: in which batches were made.
        hand_over: seconds that a batch is on its way when nobody has anything else to do.
        late: the cause of what a batch that is made takes beyond that.
        pinning: when the loader copied batches into pinned memory, one after the other.
    """
    by_maker: dict[int, list[Span]] = {}
    for span in sorted(spans, key=lambda one: one.begin):
        by_maker.setdefault(span.maker, []).append(span)
    begins = {maker: [one.begin for one in own] for maker, own in by_maker.items()}
    causes: dict[str, float] = {}
    for window in windows:
        rest = window.end - window.begin
        if rest <= 0:
            continue
        own = by_maker.get(window.maker, [])
        at = max(0, bisect.bisect_right(begins.get(window.maker, []), window.begin) - 1)
        for span in own[at:]:
            if span.begin >= window.end or span.begin >= window.made:
                break
            common = min(span.end, window.end) - max(span.begin, window.begin)
            if common <= 0:
                continue
            rest -= common
            for cause, share in span.shares.items():
                causes[cause] = causes.get(cause, 0.0) + common * share
        rest = max(0.0, rest)
        if (pinned := min(rest, _pinned(window, pinning))) > 0:
            causes[PIN_MEMORY] = causes.get(PIN_MEMORY, 0.0) + pinned
            rest -= pinned
        usual = min(rest, hand_over)
        causes[HAND_OVER] = causes.get(HAND_OVER, 0.0) + usual
        causes[late] = causes.get(late, 0.0) + rest - usual
    return causes


def _pinned(window: Window, pinning: Sequence[tuple[float, float]]) -> float:
    """Of a window, after its batch was made, for which batches were being pinned."""
    if not pinning or not math.isfinite(window.made):
        return 0.0
    low = max(window.begin, window.made)
    at = max(0, bisect.bisect_right(pinning, (low, low)) - 1)
    found = 0.0
    for begin, end in pinning[at:]:
        if begin >= window.end:
            break
        found += max(0.0, min(end, window.end) - max(begin, low))
    return found
