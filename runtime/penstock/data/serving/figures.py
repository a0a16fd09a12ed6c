"""What a data worker says of itself in each of its reports."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.data.protocol import ConsumerEntry, SharedTotals, WorkerReport
from penstock.data.serving.usage import cpu_seconds, memory_bytes


class Figures:
    """Who the data worker is, what it has made and what it has used since it last said so."""

    def __init__(
        self,
        name: str,
        *,
        node: str,
        rank: int,
        incarnation: int,
        shared: Callable[[], SharedTotals | None],
        stage: int = 0,
        relay: ConsumerEntry | None = None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        """``stage``: of the data worker, and where those of the stage before find it.

        ``processes``: how many of its pod are data workers.
        """
        self._processes = processes
        self.name = name
        self.batches = 0
        self.busy_seconds = 0.0
        self._node, self._rank, self._incarnation = node, rank, incarnation
        self._shared = shared
        self.stage, self._relay = stage, relay
        self._measured = (time.monotonic(), cpu_seconds())

    def report(self, *, leaving: bool) -> WorkerReport:
        """The figures up to now; the next report begins here."""
        busy, self.busy_seconds = self.busy_seconds, 0.0
        before, after = self._measured, (time.monotonic(), cpu_seconds())
        self._measured = after
        seconds = max(after[0] - before[0], 1e-3)
        return WorkerReport(
            name=self.name,
            node=self._node,
            batches=self.batches,
            busy_share=min(1.0, busy / seconds),
            rank=self._rank,
            incarnation=self._incarnation,
            cpu_cores=max(0.0, (after[1] - before[1]) / seconds),
            memory_bytes=memory_bytes(),
            shared=self._shared(),
            stage=self.stage,
            relay=self._relay,
            processes=self._processes(),
            leaving=leaving,
        )
