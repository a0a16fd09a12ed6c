"""Data workers that outlive their keeper: found again by number and time, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.outliving import (
    ABANDONED_SECONDS,
    ProcessId,
    adopted,
    is_abandoned,
    watch,
)
from penstock.data.processes import cpu_seconds
from tests.patience import patient

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_is_adopted_and_seen_to_end() -> None:
    process = subprocess.Popen(SLEEP)
    named = ProcessId.of(process.pid)
    assert named is not None

    async def adopt() -> None:
        (found,) = adopted([named])
        assert found.pid == process.pid
        waiting = [asyncio.create_task(found.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        found.send_signal(signal.SIGTERM)
        async with asyncio.timeout(patient(10)):
            assert await asyncio.gather(*waiting) == [None, None]
        found.close()
        assert adopted([named]) == []  # nobody has waited for it: a zombie is none that runs

    asyncio.run(adopt())
    process.wait()


def test_a_number_that_is_anothers_by_now_is_not_adopted() -> None:
    own = ProcessId.of(os.getpid())
    assert own is not None
    assert ProcessId.of(os.getpid()) == own
    assert cpu_seconds(os.getpid()) > 0
    assert cpu_seconds(1 << 30) == 0

    async def adopt() -> None:
        assert adopted([own._replace(began=own.began + 1)]) == []

    asyncio.run(adopt())


@given(st.booleans(), st.booleans(), st.floats(0, 100))
def test_only_who_is_nobodys_is_abandoned(orphaned: bool, needed: bool, silent: float) -> None:
    found = is_abandoned(orphaned=orphaned, needed=needed, silent_seconds=silent)
    assert found == (orphaned and not needed and silent > ABANDONED_SECONDS)


class Worker:
    """One whose keeper has ended, and that hangs in somebody's code."""

    answered_at = -1e9

    def __init__(self) -> None:
        self.told = threading.Event()

    def serving(self) -> list[str]:
        return []

    def leave(self) -> None:
        self.told.set()


def test_a_data_worker_that_is_abandoned_is_told_to_leave() -> None:
    worker = Worker()
    watch(worker, parent=-1, end=lambda code: None)
    assert worker.told.wait(patient(10))
