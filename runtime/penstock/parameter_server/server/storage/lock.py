"""The lock round the parameters of a server, which tells how much work they are."""

from __future__ import annotations

import threading
import time
from types import TracebackType


class Lock:
    """Use it in a ``with`` statement; ``plain`` is for conditions, whose waits are not counted."""

    def __init__(self) -> None:
        self.plain = threading.Lock()
        self.busy_seconds = 0.0  # for which it was held
        self.waited_seconds = 0.0  # for which it was waited for: the queue
        self._since = 0.0

    def __enter__(self) -> None:
        asked = time.perf_counter()
        self.plain.acquire()
        self._since = time.perf_counter()
        self.waited_seconds += self._since - asked

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.busy_seconds += time.perf_counter() - self._since
        self.plain.release()
