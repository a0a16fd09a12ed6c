"""A data worker that is told to leave hands back what it was asked for and ends by itself."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from penstock.data import Loader
from penstock.data.transport.messages import SILENCE_SECONDS
from tests.data import planes
from tests.data.planes import Noise, end, eventually, same, spawn


@pytest.mark.slow
@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "shared-memory"])
def test_the_training_neither_waits_for_it_nor_misses_a_batch(
    tcp: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "penstock.data"), planes.consumer() as mine:
        staying, leaving = spawn(mine, tcp=tcp), spawn(mine, tcp=tcp)
        try:
            eventually(lambda: len(mine.workers) == 2)
            batches = iter(Loader(Noise(240, seconds=0.02), 4, seed=7, consumer=mine))
            got = []
            while mine.counts.arrived < 6:
                got.append(next(batches))
            [gone] = [name for name in mine.workers if f"-{leaving.pid}-" in name]
            # The iterator is the loader's own class.
            stream = batches.stream  # type: ignore[attr-defined]
            eventually(lambda: stream.queue.window.unmade_by(gone) > 1)
            told = time.monotonic()
            leaving.send_signal(signal.SIGTERM)
            longest, asked = 0.0, time.monotonic()
            for batch in batches:
                longest = max(longest, time.monotonic() - asked)
                got.append(batch)
                asked = time.monotonic()
            assert leaving.wait(20) == 0
            assert time.monotonic() - told < 30, "well within the grace period of its pod"
        finally:
            end(staying)
            end(leaving)
    assert same(got, list(Loader(Noise(240), 4, seed=7)))
    assert longest < SILENCE_SECONDS / 4, "as nobody would wait for one that was killed"
    assert mine.counts.duplicates == 0
    assert f"data worker {gone} left" in caplog.text
    assert f"data worker {gone} is lost" not in caplog.text


IDLE = """
from penstock.data.serving import worker

worker.IDLE_SECONDS = 3600.0
one = worker.DataWorker(token="t" * 64)
wait = one._changed.wait


def tell(seconds: float) -> None:
    print("idle", flush=True)
    wait(seconds)


one._changed.wait = tell
one._connector.run = lambda: None  # its other thread: there is nobody to be served
worker.work(one)
"""


def test_one_that_has_nothing_to_do_leaves_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"idle\n"
            for _ in range(10):
                process.send_signal(signal.SIGTERM)  # again, where it came just before the wait
                with contextlib.suppress(subprocess.TimeoutExpired):
                    assert process.wait(5) == 0
                    return
            raise AssertionError("it still waits")
        finally:
            end(process)
