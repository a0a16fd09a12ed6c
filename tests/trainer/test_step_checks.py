"""A machine that becomes slow while a session trains is named: real processes."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from benchmarks.elastic.processes import running_job
from penstock.crds import environment


@contextmanager
def at_a_tenth(process: psutil.Process) -> Iterator[None]:
    """Let a process run for a tenth of the time."""
    over = threading.Event()

    def throttle() -> None:
        with suppress(psutil.NoSuchProcess):
            while not over.is_set():
                process.suspend()
                time.sleep(0.027)
                process.resume()
                time.sleep(0.003)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_worker_that_becomes_slow_is_named_with_its_node_and_training_goes_on(
    tmp_path: Path,
) -> None:
    epochs = 12
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(
                rank,
                sys.executable,
                "-m",
                "benchmarks.elastic.script",
                f"--log={tmp_path}",
                f"--epochs={epochs}",
                "--slot-seconds=0.02",
                f"--hurry={tmp_path / 'hurry'}",
                environ={
                    environment.NODE_NAME: f"node-{rank}",
                    environment.NODE_CHECK_SHARE: "0.1",
                },
            )
        job.wait_for_step(5, 60)
        log = tmp_path / "trainer-0.log"

        def named() -> list[tuple[str, str]]:
            said = r"worker-(\d): node (\S+): \w+ is [\d.]+ times slower"
            return re.findall(said, log.read_text())

        with at_a_tenth(job.training_process(1)):
            job.wait_for(named, 100, "the slow machine's name")
        (tmp_path / "hurry").touch()
        assert set(job.exit_codes(120).values()) == {0}, job.logs()
        assert set(named()) == {("1", "node-1")}, job.logs()
        result = job.result()
        assert result["samples_seen"] == 1200 * epochs, job.logs()
        assert result["samples_lost"] == result["samples_repeated"] == 0, job.logs()
        assert job.incarnations == {0: 0, 1: 0}, "somebody was replaced for it"
