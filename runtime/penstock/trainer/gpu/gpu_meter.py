"""Measures the GPUs beside the agent, in a thread: a driver that hangs must hold up nobody.

The thread is a daemon, since a call into the driver cannot be ended: the agent ends without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from types import TracebackType
from typing import Final, Protocol, Self

from penstock.job.protocol import GpuUsage
from penstock.trainer.gpu.device_use import WINDOW_SECONDS, TimedUse, averaged

logger = logging.getLogger(__name__)

READ_SECONDS: Final = 1.0


class Reader(Protocol):
    """What reads the devices."""

    @property
    def is_absent(self) -> bool:
        """Whether there is nothing to read, and never will be."""

    def read(self, pids: Collection[int]) -> tuple[GpuUsage, ...]:
        """What the program, whose process ids these are, uses of each device."""

    def close(self) -> None:
        """Let go of the driver."""


class GpuMeter:
    """Reads every second within its ``with``, or until it is known that there is nothing to read.

    To be entered when the process forks no more: its thread may hold a lock at any time.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pids: frozenset[int] = frozenset()
        self._readings: deque[TimedUse] = deque(maxlen=int(WINDOW_SECONDS / READ_SECONDS) + 1)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()

    def read(self, pids: Collection[int]) -> tuple[GpuUsage, ...]:
        """What the program, whose process ids these are from now on, has used lately; at once."""
        self._pids = frozenset(pids)
        return averaged(list(self._readings), time.monotonic())

    def _run(self) -> None:
        try:
            while not self._reader.is_absent:
                if found := self._reader.read(self._pids):
                    self._readings.append(TimedUse(time.monotonic(), found))
                if self._closed.wait(READ_SECONDS):
                    break
        except Exception:
            logger.exception("GPUs are not measured any more")
        finally:
            self._reader.close()
