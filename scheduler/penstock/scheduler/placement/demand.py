"""What has been asked for lately: how often each shape of request came, in a bounded window.

A policy that looks at one node at a time cannot know what a place on it is worth; that depends on
what else will want it. Nothing about the workload has to be known before: it is learned from the
requests as they come, placed or not. What follows from it is in
`penstock.scheduler.placement.slot_prices` and `penstock.scheduler.placement.cpu_erosion`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.scheduler.request import Request

WINDOW: Final = 8192
"""Requests that are remembered; beyond, all counts are halved."""

SHAPES: Final = 64
"""Shapes that are told apart: those that ask for the most together."""


_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Shape:
    """What tells requests apart for what they will want."""

    milli_cpu: int
    accelerators: int
    accelerator_milli: int
    accelerator_kinds: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Thousandths of accelerators that one request of this shape takes."""
        return self.accelerators * self.accelerator_milli


class Demand:
    """Counts of the shapes asked for; bounded by the window."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._counts: Counter[Shape] = Counter()
        self._bare: Counter[int] = Counter()
        self._requests = 0

    @property
    def requests(self) -> int:
        """Requests counted, those without accelerators too."""
        return self._requests

    def observe(self, request: Request) -> None:
        """Count one request."""
        self._requests += 1
        if request.accelerators:
            shape = Shape(
                request.milli_cpu,
                request.accelerators,
                request.accelerator_milli,
                request.accelerator_kinds,
            )
            self._counts[shape] += 1
        elif request.milli_cpu:
            self._bare[request.milli_cpu] += 1
        if self._requests >= self._window:
            self._requests //= 2
            _halve(self._counts)
            _halve(self._bare)

    def shares(self, most: int = SHAPES) -> dict[Shape, float]:
        """The shapes that ask for most accelerators together, and their part of all requests."""
        largest = sorted(
            self._counts.items(),
            key=lambda item: (item[0].total_milli * item[1], item[0].milli_cpu),
            reverse=True,
        )
        return {shape: count / self._requests for shape, count in largest[:most]}

    def bare_shares(self, most: int = SHAPES) -> dict[int, float]:
        """CPU of the requests without accelerators that ask for most, and their part of all."""
        largest = sorted(self._bare.items(), key=lambda item: (item[0] * item[1], item[0]))
        return {milli_cpu: count / self._requests for milli_cpu, count in largest[-most:]}

    def milli_by_kinds(self) -> Mapping[tuple[str, ...], float]:
        """Accelerator thousandths of a mean request, by the kinds that would do; () is any kind."""
        totals: Counter[tuple[str, ...]] = Counter()
        for shape, count in self._counts.items():
            totals[shape.accelerator_kinds] += shape.total_milli * count
        return {kinds: total / self._requests for kinds, total in totals.items()}

    def mean_milli(self) -> float:
        """Thousandths of accelerators that a request asks for on average."""
        return sum(self.milli_by_kinds().values())

    def mean_milli_cpu(self) -> float:
        """CPU that a request with accelerators brings to the average over all requests."""
        total = sum(shape.milli_cpu * count for shape, count in self._counts.items())
        return total / self._requests if self._requests else 0.0


def _halve(counts: Counter[_Key]) -> None:
    """Half of every count; what came once is forgotten."""
    halved = {key: count // 2 for key, count in counts.items() if count > 1}
    counts.clear()
    counts.update(halved)
