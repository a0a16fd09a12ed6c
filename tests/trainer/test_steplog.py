"""The step log of a worker on a disk that is full, for a while or for good: no step waits."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from penstock.trainer.steplog import StepLog
from tests.trainer.small_disk import fill, small_disk


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_disk_that_stays_full_is_said_once_and_closing_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "steps-0-0.jsonl").symlink_to("/dev/full")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(0.0,))
    with caplog.at_level(logging.INFO, "penstock.session"):
        for step in range(5):
            log.write(step, 1, {0: 0.5})
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
        log = StepLog(folder, 0, 0, retry_seconds=(0.0,))
        log.write(0, 1, {0: 0.5})
        filler = fill(folder)
        step = 0
        while not log.trouble:  # what is left of the last page is filled first
            step += 1
            log.write(step, 1, {0: 0.5})
        log.write(step + 1, 1, {0: 0.5})
        filler.unlink()
        with caplog.at_level(logging.INFO, "penstock.session"):
            log.write(step + 2, 1, {0: 0.5})
        assert not log.troubles()
        log.close()
        assert steps(folder / "steps-0-0.jsonl") == list(range(step + 3))
        assert "is written again, 0 lines lack" in caplog.text


def test_no_more_waits_than_there_is_room_for_and_the_missing_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    path.symlink_to("/dev/full")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(0.0,), max_waiting_bytes=1000)
    for step in range(1000):
        log.write(step, 1, {0: 0.5})
    path.unlink()
    with caplog.at_level(logging.INFO, "penstock.session"):
        log.write(1000, 1, {0: 0.5})
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
    path.unlink()
    log.write(1, 1, {})
    assert not path.exists()
    log.close()
    assert steps(path) == [0, 1], "the last attempt is made at the end"


def test_a_pipe_that_nobody_reads_holds_up_no_step(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "steps-0-0.jsonl")
    log = StepLog(tmp_path, 0, 0, retry_seconds=(0.0,))
    log.write(0, 1, {0: 0.5})
    assert "No such device or address" in log.trouble
    log.close()


def test_a_folder_that_vanishes_is_said_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    log = StepLog(folder, 0, 0)
    log.write(0, 1, {0: 0.5})
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING, "penstock.session"):
        log.write(1, 1, {0: 0.5})
        log.write(2, 1, {0: 0.5})
    log.close()
    assert steps(folder / "steps-0-0.jsonl") == [1, 2]
    assert caplog.messages == [
        f"the step log {folder}/steps-0-0.jsonl was removed: it is begun anew"
    ]
