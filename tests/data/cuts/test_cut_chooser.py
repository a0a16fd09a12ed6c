"""When the training process looks at what a link carries: no window is too short to tell."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from penstock.data.consuming import cut_chooser
from penstock.data.consuming.cut_chooser import CutChooser
from penstock.throughput.decision.cut_choice import LEAST_BATCHES, LEAST_SECONDS


class Pool:
    """Of one data worker behind a network that binds: it idles while the training waits."""

    local_workers = 0

    def __init__(self) -> None:
        link = SimpleNamespace(local=False, shares_memory=False)
        self.makers = SimpleNamespace(lock=threading.Lock(), links={"one": link})
        self.counts = SimpleNamespace(
            taken=0,
            made_here=0,
            waited_seconds=0.0,
            received_bytes=0,
            remote=SimpleNamespace(batches=0, seconds=0.0, cpu_seconds=0.0, queued_seconds=0.0),
        )

    def bring(self, seconds: float) -> None:
        """One batch more, for which the training waited so long."""
        self.counts.taken += 1
        self.counts.waited_seconds += seconds
        self.counts.received_bytes += 20_000_000
        self.counts.remote.batches += 1
        self.counts.remote.seconds += seconds / 10
        self.counts.remote.cpu_seconds += seconds / 10


def batches_until_asked(seconds_per_batch: float) -> int:
    now, asked = [0.0], []
    chooser = CutChooser(clock=lambda: now[0])
    pool: Any = Pool()

    def survey() -> Any:
        asked.append(pool.counts.taken)
        raise cut_chooser.NotCutError("nothing to cut")

    chooser.begin()
    for _ in range(200):
        chooser.look(pool, survey)
        if asked:
            return asked[0]
        now[0] += seconds_per_batch
        pool.bring(seconds_per_batch)
    return 200


def test_a_link_of_one_batch_in_two_seconds_is_decided_on() -> None:
    assert LEAST_SECONDS / 2 < LEAST_BATCHES, "a window of seconds alone would never do"
    assert batches_until_asked(2.0) <= 2 * LEAST_BATCHES + 2


def test_a_fast_link_is_looked_at_after_seconds_and_not_after_batches() -> None:
    assert batches_until_asked(0.05) * 0.05 >= LEAST_SECONDS
