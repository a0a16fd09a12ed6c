"""The one consumer of a process, made from its environment when the first loader needs it.

All loaders of a process share it, because a data worker has one connection to each process. A child
that was forked has none of its threads and therefore no consumer: its loaders work by themselves.
"""

from __future__ import annotations

import atexit
import logging
import os
from functools import cache
from typing import Final

from penstock.crds import environment as names
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import DataError
from penstock.data.queue.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

_STARTED_IN: Final = os.getpid()


def dispatcher_address() -> str | None:
    """HOST:PORT of the job's dispatcher, if this process belongs to a job."""
    address = os.environ.get(names.DATA_ADDRESS) or os.environ.get(names.TRAINER_ADDRESS) or ""
    host, _, port = address.rpartition(":")
    return address if host and port.isdecimal() else None


def number_in(name: str, default: int = 0) -> int:
    """A variable that holds a number from 0; the default where it holds none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def consumer_of_process() -> Consumer | None:
    """This process's consumer; None outside a job, or where it cannot listen."""
    return _consumer(os.getpid())


def pool_of_process() -> WorkerPool:
    """The pool of a process that has no consumer: it has local workers only."""
    return _pool(os.getpid())


def job_token() -> str:
    """The job's token; empty outside a job."""
    return os.environ.get(names.JOB_TOKEN, "")


def share_token() -> str:
    """The token of the job's share group; empty where it has none of its own."""
    return os.environ.get(names.SHARE_TOKEN, "")


@cache
def _pool(process: int) -> WorkerPool:
    pool = WorkerPool()
    atexit.register(_end, pool, process)
    return pool


def _end(pool: WorkerPool, process: int) -> None:
    if os.getpid() == process:
        pool.end()


@cache
def _consumer(process: int) -> Consumer | None:
    address = dispatcher_address()
    if address is None or process != _STARTED_IN:
        return None
    try:
        consumer = Consumer(
            token=job_token(),
            host=os.environ.get(names.POD_IP) or "127.0.0.1",
            dispatcher=address,
            name=os.environ.get(names.POD_NAME, ""),
            index=number_in("RANK", number_in(names.RANK)),
            rank=number_in(names.RANK),
            group_token=share_token(),
        )
    except (OSError, DataError) as error:
        logger.warning("no data worker can serve this process: %s", error)
        return None
    atexit.register(_close, consumer, process)
    return consumer


def _close(consumer: Consumer, process: int) -> None:
    if os.getpid() == process:
        consumer.close()
