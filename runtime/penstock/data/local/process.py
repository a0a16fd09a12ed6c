"""A local worker: a data worker that is the training process's own child.

It was born with its pipeline, answers over one socket, and lives as long as that. It keeps the
memory of one batch for the next (`penstock.data.allocator`). Forked, it has all that its parent had
open; it lets go of what is the parent's alone, or the other children of the parent would not see it
die.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from penstock.data.allocator import keep_freed_memory
from penstock.data.pipeline import Pipeline
from penstock.data.processes import exists
from penstock.data.serving.batch_making import placed
from penstock.data.serving.consumer_connection import ConsumerConnection
from penstock.data.serving.pinned_memory import PinnedMemory
from penstock.data.serving.worker import DataWorker
from penstock.data.streams.pipeline import StreamHost, StreamPipeline
from penstock.data.transport.raised import pack_raised

KEPT_BYTES: Final = 64 << 20
"""Of the memory that its batches need, each of a pod's many local workers keeps so much at most."""
STUCK_SECONDS: Final = 10.0
"""After this a worker whose parent has gone ends in the middle of the user's code."""
PARENT_SECONDS: Final = 1.0

Prepare = Callable[[int], None]
"""What the program wants done in a worker, given its number, before it makes batches."""


def serve_parent(
    sock: socket.socket,
    forget_parent: Callable[[], None] | None,
    pipeline: Pipeline | StreamPipeline,
    key: bytes,
    number: int,
    prepare: Prepare | None,
    parent: int,
) -> None:
    """The whole life of a local worker: the target of its process.

    ``forget_parent``: given in a process that was forked. ``parent``: the number of the training
    process, which need not be this one's parent.
    """
    if forget_parent is not None:
        forget_parent()
    keep_freed_memory(KEPT_BYTES)
    signal.signal(signal.SIGINT, _leave_to_parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the program's handler is the program's
    maker: Any = pipeline
    try:
        if prepare is not None:
            prepare(number)
    except Exception as error:  # noqa: BLE001 - the user's code; the program gets it with a batch
        maker = _Unprepared(error)
    place = f"DataLoader worker process {number}"
    worker = DataWorker(token="", explain=lambda error: pack_raised(error, place))

    def end() -> None:
        worker.leave()
        threading.Thread(target=_end_if_stuck, name="penstock-end", daemon=True).start()

    pipelines = {key: placed(maker, worker.memory)}
    line = ConsumerConnection("the program", sock, True, pipelines, local=True, on_end=end)
    line.pinned = PinnedMemory(parent)
    line.streams = StreamHost(alone=True)
    worker.serve(line)
    watch = (parent, forget_parent is not None or os.getppid() == parent, end)
    threading.Thread(
        target=_outlive_no_parent, args=watch, name="penstock-parent", daemon=True
    ).start()
    worker.run()


class _Unprepared:
    """Stands for the pipeline of a worker that could not be prepared."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def make(self, seed: int, indices: Any) -> Any:
        raise self._error


def _leave_to_parent(number: int, frame: object) -> None:
    """Ctrl-C reaches everybody: the parent ends, and that ends its workers."""


def _outlive_no_parent(parent: int, own: bool, end: Callable[[], None]) -> None:
    """End with the parent also where a fork of it keeps its end of the connection open.

    ``own``: it is this process's parent; a fork server's children have another.
    """
    while os.getppid() == parent if own else exists(parent):
        time.sleep(PARENT_SECONDS)
    end()


def _end_if_stuck() -> None:
    time.sleep(STUCK_SECONDS)
    os._exit(1)
