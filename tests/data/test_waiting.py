"""What the program waits for a batch is counted once, whoever makes the batch in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from torch.utils.data import Sampler

from penstock.data import DataLoader, Loader
from penstock.data.consuming.process import pool_of_process
from tests.data.planes import Plain, consumer


def test_a_wait_for_a_data_worker_that_then_leaves_is_not_counted_twice() -> None:
    with consumer() as mine:
        batches = iter(Loader(Plain(8), 4, consumer=mine))
        # The iterator is the loader's own class.
        window = batches.stream.queue.window  # type: ignore[attr-defined]
        with mine.pool.makers.lock:
            assert window.ask("leaving", time.monotonic()) is not None

        def leave() -> None:
            with mine.pool.makers.lock:
                window.gone("leaving", crashed=False)
                mine.pool.makers.lock.notify_all()

        timer = threading.Timer(0.3, leave)
        timer.start()
        began = time.perf_counter()
        next(batches)
        elapsed = time.perf_counter() - began
        timer.join()
        assert mine.counts.made_here == 1
        assert 0.2 < mine.counts.waited_seconds <= elapsed


class Slow(Sampler[int]):
    """A sampler that takes a while for each index."""

    def __iter__(self) -> Iterator[int]:
        for index in range(200):
            time.sleep(0.003)
            yield index


def test_what_is_done_for_the_next_batches_is_waiting_too() -> None:
    batches = iter(DataLoader(Plain(200), batch_size=1, sampler=Slow()))
    next(batches)
    counts = pool_of_process().counts
    before, began = counts.waited_seconds, time.perf_counter()
    for _ in range(20):
        next(batches)
    elapsed = time.perf_counter() - began
    assert counts.waited_seconds - before > 0.8 * elapsed > 0.8 * 20 * 0.003
