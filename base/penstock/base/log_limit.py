"""Lines of a log that strangers can cause: the first at once, then one in a while with a count."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 10.0
_MOST_KINDS: Final = 256


class LogLimit:
    """Lets one line pass in ``seconds``, and counts the others. Any thread may use it."""

    def __init__(
        self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")
        self._held = 0
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """How many lines were held back since the last one; None: hold this one back, too."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                self._held += 1
                return None
            self._next = now + self._seconds
            held, self._held = self._held, 0
            return held

    def log(self, logger: logging.Logger, level: int, message: str, *values: object) -> None:
        """Log a line, unless another was logged just now."""
        held = self.take()
        if held is None:
            return
        if held:
            message, values = f"{message} (and %d more like this)", (*values, held)
        logger.log(level, message, *values)


class RepetitionFilter(logging.Filter):
    """Lets each message of a library's logger pass once in ``seconds``, whatever its values."""

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._limits: dict[str, LogLimit] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is written; it then says how many were not."""
        if record.levelno >= logging.ERROR:
            return True
        kind = str(record.msg)
        limit = self._limits.get(kind)
        if limit is None:
            if len(self._limits) >= _MOST_KINDS:
                self._limits.clear()
            limit = self._limits[kind] = LogLimit(self._seconds)
        held = limit.take()
        if held:
            record.msg = f"{record.getMessage()} (and {held} more like this)"
            record.args = ()
        return held is not None
