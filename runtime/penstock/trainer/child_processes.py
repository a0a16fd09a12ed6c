"""The processes below an agent: whose parent it becomes, and that none of them is left.

What is awaited as a child of asyncio's is never taken from it: its exit code would be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Final

import psutil

logger = logging.getLogger(__name__)

REAP_SECONDS: Final = 1.0
KILL_ROUNDS: Final = 20
_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of processes whose own parents end before them, as a pod's first one is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all of its group that are left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def reap(awaited: Callable[[], Collection[int]]) -> None:
    """Let adopted processes that have ended disappear; else a long job would collect them."""
    while True:
        await asyncio.sleep(REAP_SECONDS)
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.pid not in awaited() and child.status() == psutil.STATUS_ZOMBIE:
                    _take_exit_code(child.pid)


async def end_leftovers() -> None:
    """Kill what programs that have ended left behind, and what that starts meanwhile."""
    for _ in range(KILL_ROUNDS):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
            _take_exit_code(process.pid)
        await asyncio.sleep(0.05)
    logger.warning("processes %s could not be ended", [process.pid for process in left])


def _take_exit_code(pid: int) -> None:
    """Let a process that has ended disappear, if it is a child of ours."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
