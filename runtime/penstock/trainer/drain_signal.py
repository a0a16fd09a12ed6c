"""SIGTERM as a request to leave in good order: what is being done is finished first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class DrainSignal:
    """Whether this process was asked to go, since `await_signal`."""

    def __init__(self) -> None:
        self.received = False
        self._old_handler: Any = None

    def await_signal(self) -> None:
        """From here on SIGTERM is noted and ends nothing; only a main thread can have it so."""
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGTERM, self._take)

    def release(self) -> None:
        """SIGTERM is what it was before."""
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.received = True
