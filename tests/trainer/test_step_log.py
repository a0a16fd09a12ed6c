"""The step log of a worker on a disk that is full or hangs, for a while or for good."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.trainer.step_log import StepLog
from tests.trainer.small_disk import fill, small_disk


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def was_tried(log: StepLog, path: Path, wanted: int) -> bool:
    return bool(log.trouble) or lines(path) == wanted


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def until(ready: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def test_a_disk_that_stays_full_is_said_once_and_closing_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "steps-0-0.jsonl").symlink_to("/dev/full")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(0.01,))
    with caplog.at_level(logging.INFO, "penstock.trainer"):
        for step in range(5):
            log.write(step, 1, {0: 0.5})
        until(log.troubles)
        [trouble] = log.troubles()
        log.close()
    assert trouble.reason == "StepLogNotWritten"
    assert f"no step log in {tmp_path}/steps-0-0.jsonl: No space left on device" in trouble.message
    assert caplog.messages == [
        trouble.message,
        f"the step log {tmp_path}/steps-0-0.jsonl lacks 5 lines",
    ]


def test_what_waited_is_written_when_there_is_room_and_no_line_is_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 64) as folder:
        log = StepLog(folder, 0, 0, retry_seconds=(0.01,))
        path = folder / "steps-0-0.jsonl"
        log.write(0, 1, {0: 0.5})
        until(lambda: path.exists() and lines(path) == 1)
        filler = fill(folder)
        step = 0
        while not log.trouble:  # what is left of the last page is filled first
            step += 1
            log.write(step, 1, {0: 0.5})
            until(partial(was_tried, log, path, step + 1))
        log.write(step + 1, 1, {0: 0.5})
        filler.unlink()
        with caplog.at_level(logging.INFO, "penstock.trainer"):
            log.write(step + 2, 1, {0: 0.5})
            until(lambda: not log.troubles())
        log.close()
        assert steps(path) == list(range(step + 3))
        assert "is written again, 0 lines lack" in caplog.text


def test_no_more_waits_than_there_is_room_for_and_the_missing_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    path.symlink_to("/dev/full")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(0.01,), max_waiting_bytes=1000)
    with caplog.at_level(logging.INFO, "penstock.trainer"):
        for step in range(1000):
            log.write(step, 1, {0: 0.5})
        path.unlink()  # and it may be tried again before the next step
        log.write(1000, 1, {0: 0.5})
        until(lambda: not log.troubles())
    log.close()
    written = steps(path)
    assert written == list(range(1001 - len(written), 1001))
    assert 5 < len(written) < 30
    assert f"is written again, {1001 - len(written)} lines lack" in caplog.text


def test_a_full_disk_is_not_asked_at_every_step(tmp_path: Path) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    path.symlink_to("/dev/full")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(3600.0,))
    log.write(0, 1, {})
    until(log.troubles)
    path.unlink()
    log.write(1, 1, {})
    assert not path.exists()
    log.close()
    assert steps(path) == [0, 1], "the last attempt is made at the end"


def test_a_folder_that_vanishes_is_said_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    log = StepLog(folder, 0, 0)
    log.write(0, 1, {0: 0.5})
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING, "penstock.trainer"):
        log.write(1, 1, {0: 0.5})
        log.write(2, 1, {0: 0.5})
    log.close()
    assert steps(folder / "steps-0-0.jsonl") == [1, 2]
    assert caplog.messages == [
        f"the step log {folder}/steps-0-0.jsonl was removed: it is begun anew"
    ]


@contextlib.contextmanager
def pipe(path: Path, *, full: bool) -> Iterator[int]:
    """What hangs: a pipe that is full, or one that nobody opens; free again after the block."""
    os.mkfifo(path)
    ours = os.open(path, os.O_RDWR | os.O_NONBLOCK) if full else -1
    if full:
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield ours
    finally:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        until(lambda: drained(reading) and not writers())
        os.close(reading)
        if full:
            os.close(ours)


def drained(reading: int) -> bool:
    """True, once all that was in a pipe has been read."""
    with contextlib.suppress(BlockingIOError):
        while os.read(reading, 1 << 16):
            pass
    return True


def noted(log: StepLog) -> StepLog:
    """The log after one step more."""
    log.write(300, 1, {})
    return log


def writers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "penstock-steps"]


@pytest.mark.parametrize("full", [True, False])
def test_a_disk_that_hangs_holds_neither_a_step_nor_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    with pipe(path, full=full):
        log = StepLog(tmp_path, 0, 0, hang_seconds=0.05, close_seconds=0.1)
        for step in range(300):
            log.write(step, 1, dict.fromkeys(range(8), 0.5))
        until(lambda: noted(log).troubles())
        [trouble] = log.troubles()
        log.close()
        assert "a line is not written within" in trouble.message
        assert caplog.messages[0] == trouble.message
        assert "lacks" in caplog.messages[1]
        assert len(caplog.messages) == 2


def test_what_waited_for_a_disk_that_hung_is_written(tmp_path: Path) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    with pipe(path, full=True) as ours:
        log = StepLog(tmp_path, 0, 0, hang_seconds=0.05)
        for step in range(300):
            log.write(step, 1, dict.fromkeys(range(8), 0.5))
        until(lambda: noted(log).troubles())
        read = b""
        while log.troubles():
            try:
                read += os.read(ours, 1 << 16)
            except BlockingIOError:
                time.sleep(0.01)
        log.close()
        with os.fdopen(os.dup(ours), "rb", buffering=0) as rest:
            read += rest.read(1 << 16) or b""
    there = [json.loads(line)["step"] for line in read.splitlines()]
    assert there[:300] == list(range(300))
    assert set(there[300:]) == {300}
