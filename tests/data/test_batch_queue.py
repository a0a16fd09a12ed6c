"""What the program makes itself, nobody else is asked for between the two."""

from __future__ import annotations

import threading

from penstock.data.queue.batch_queue import BatchQueue, Counts, QueueOptions
from penstock.data.window.reorder_buffer import Need


class Hasty(threading.Condition):
    """Has somebody ask for a step as soon as the lock is free."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.queue: BatchQueue | None = None

    def __exit__(self, *raised: object) -> None:
        if self.queue is not None:
            got = self.queue.window.ask("hasty", 0.0)  # type: ignore[union-attr]  # no streams here
            if got is not None:
                self.asked.append(got[0])
        super().__exit__(*raised)  # type: ignore[arg-type]  # they are passed on


def test_the_step_that_the_program_is_told_to_make_is_its_own_from_then_on() -> None:
    lock = Hasty()
    queue = BatchQueue(lock, Counts(), 1, QueueOptions(key=b"k", seed=1))
    for step in range(3):
        queue.window.feed([step])  # type: ignore[union-attr]  # it is no window of streams
    queue.window.end()  # type: ignore[union-attr]  # no window of streams either
    queue.window.ahead = 3
    lock.queue = queue
    need, (indices, failures) = queue.take(lambda: None, lambda: False)
    lock.queue = None
    assert need is Need.MAKE
    assert (indices, failures) == ([0], [])
    assert lock.asked == [1]
    queue.made_here()
    assert queue.window.position == 1
