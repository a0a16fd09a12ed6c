"""A consumer counts the bytes that data workers send, for whoever decides where they run."""

from __future__ import annotations

import numpy as np

from penstock.data import Loader
from tests.data.planes import Plain, consumer, eventually, thread_worker


def test_each_batch_that_comes_is_counted_with_all_of_its_arrays() -> None:
    with consumer() as mine, thread_worker(mine):
        eventually(lambda: mine.workers)
        loader = Loader(Plain(60), batch_size=10, consumer=mine)

        def some_came() -> bool:
            list(loader)
            return mine.counts.arrived > 0

        eventually(some_came)
        [first, *_] = loader
        each = sum(np.asarray(value).nbytes for value in first.values())
        arrived, received = mine.counts.arrived, mine.counts.received_bytes
        assert arrived * each <= received, "with what aligns them"
        assert received % each < 0.01 * received
