"""How fast each stage of a job's input is, and how busy, over the last half minute.

A stage is made by the pods of one role: data workers make the first, accelerated data workers the
second. What they report covers a second, which is too little to tune by; so it is noted every
second, and a mean is taken over a time in which nobody came or left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from penstock.data.protocol import WorkerReport
from penstock.wire.samples import StageSample

WINDOW_SECONDS: Final = 30.0
LEAST_SECONDS: Final = 5.0


@dataclass
class StageRates:
    """Remembers the reports of one job's data workers, where some of them are accelerated."""

    _seen: deque[tuple[float, Mapping[str, WorkerReport]]] = field(default_factory=deque)
    _accelerated: frozenset[str] = frozenset()

    def note(
        self, workers: Sequence[WorkerReport], accelerated: Collection[str], now: float
    ) -> None:
        """The data workers that report at present, and the names of those that are accelerated."""
        reports = {one.name: one for one in workers}
        second = frozenset(reports.keys() & frozenset(accelerated))
        if self._seen and (
            second != self._accelerated or self._seen[-1][1].keys() != reports.keys()
        ):
            self._seen.clear()
        self._accelerated = second
        if second:
            self._seen.append((now, reports))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()

    def stages(self) -> list[StageSample] | None:
        """Each stage, in the order in which a batch goes through them.

        None where there is one, or where it is not known yet.
        """
        if len(self._seen) < 2:
            return None
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        if end - begin < LEAST_SECONDS:
            return None
        first = after.keys() - self._accelerated
        found = []
        for names in (first, self._accelerated):
            made = sum(max(0, after[name].batches - before[name].batches) for name in names)
            busy = [said[name].busy_share for _, said in self._seen for name in names]
            found.append(
                StageSample(
                    made_per_second=made / (end - begin), busy_share=fmean(busy) if busy else 0.0
                )
            )
        return found
