"""The cache's daemon as it is, on a storage that gives so many bytes a second."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from benchmarks.caching.daemons import Limit
from penstock.data.cache.commands import cache


def slow_down(rate: float) -> None:
    """Let reads of this process come at this rate, one after the other."""
    plain, limit, lock = os.preadv, Limit(rate), threading.Lock()

    def preadv(descriptor: int, buffers: Any, offset: int, *flags: int) -> int:
        with lock:
            read = plain(descriptor, buffers, offset, *flags)
            limit.passed(read)
        return read

    os.preadv = preadv


if __name__ == "__main__":
    slow_down(float(sys.argv[1]))
    cache(["run", *sys.argv[2:]])
