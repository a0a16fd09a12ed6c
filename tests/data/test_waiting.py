"""What the program waits for a batch is counted once, whoever makes the batch in the end."""

from __future__ import annotations

import threading
import time

from penstock.data import Loader
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
