"""The speed of launched training loops, which say nothing to a trainer but that they step.

Each rank of such a world brings a batch of its own to every step: with twice the ranks a step takes
in twice the samples. So the speed of a job is that of all its ranks together: optimizer steps per
second, summed over the processes of the world. It is comparable between numbers of workers, as the
speed of a job with parameter servers is.

Only processes that have joined a process group count. A program that has not would train a copy
of its own beside a second worker, and nobody is to give it one. And only jobs with checkpoints
have a speed: more or fewer workers begin all processes anew, from the newest one, and a program
that writes none would lose its work with each change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.job.protocol import TrainingProcess

logger = logging.getLogger(__name__)

TOLD_STEPS: Final = 1000
"""Steps of all processes after which it is said that there is no checkpoint."""

Pod = tuple[int, int]
"""Rank and incarnation of a worker."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What was known of one process: its steps, the time that they took, and their rate then."""

    steps: int
    seconds: float
    rate: float


class LaunchedSpeed:
    """Remembers what the processes of one job had said, and measures what came since."""

    def __init__(self) -> None:
        self._known: dict[tuple[Pod, int], _Measured] = {}
        self._steps = 0
        self._saves = False
        self._told = False

    @property
    def counts(self) -> bool:
        """Whether there are steps, and checkpoints of them."""
        return bool(self._steps) and self._saves

    @property
    def steps(self) -> int:
        """Steps of all processes so far, those that are gone included."""
        return self._steps

    def measure(self, pods: Mapping[Pod, Sequence[TrainingProcess]]) -> float:
        """Steps per second of all processes together since the last call.

        Args:
            pods: what the processes of each live pod say.
        """
        before, self._known = self._known, {}
        for pod, processes in pods.items():
            for process in processes:
                self._saves = self._saves or process.saves
                if process.steps:
                    key = pod, process.pid
                    self._known[key] = self._measured(process, before.get(key))
        if not self._saves and not self._told and self._steps >= TOLD_STEPS:
            self._told = True
            logger.info(
                "no speed is told while no checkpoint was seen, so that optimize: Auto leaves the "
                "number of workers: each change of it begins the program anew"
            )
        return sum(one.rate for one in self._known.values())

    def _measured(self, process: TrainingProcess, last: _Measured | None) -> _Measured:
        if last is None or process.steps < last.steps:  # another process has the number now
            last = _Measured(0, 0.0, 0.0)
        steps = process.steps - last.steps
        seconds = process.step_seconds - last.seconds
        self._steps += steps
        if steps and seconds > 0:
            rate = steps / seconds
        else:  # it is within a step: it makes at most one in the time since the last
            rate = min(last.rate, 1 / process.idle) if process.idle > 0 else last.rate
        return _Measured(process.steps, process.step_seconds, rate)
