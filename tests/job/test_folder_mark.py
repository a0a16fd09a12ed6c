"""Two jobs in one folder of checkpoints: the second keeps its hands off, unless the first ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.job.folder_mark import FolderInUseError, FolderMark, Writer, this_writer

ELSEWHERE = Writer("job-a", "job default/a (uid 1, on node-1)", "another machine", 1, "1")
SECONDS = {"beat_seconds": 0.05, "dead_seconds": 1.0}
PROGRAM = """
import sys, time
from pathlib import Path
from penstock.job.folder_mark import FolderMark
mark = FolderMark(Path(sys.argv[1]))
mark.claim()
print("claimed", flush=True)
time.sleep(120)
"""


def marks(folder: Path) -> int:
    return len(list(folder.glob(".writer-*")))


def other(folder: Path) -> FolderMark:
    """Of this process, which is a job for itself."""
    return FolderMark(folder, **SECONDS)


def test_who_writes_elsewhere_is_named_at_the_start_and_at_a_save(tmp_path: Path) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, **SECONDS)
    first.claim()
    second = other(tmp_path)
    words = r"default/a \(uid 1, on node-1\) writes its checkpoints there, too.*another checkpoint"
    with pytest.raises(FolderInUseError, match=words):
        second.check()
    with pytest.raises(FolderInUseError, match=words):
        second.claim()
    assert marks(tmp_path) == 1, "it left nothing there"
    first.claim()
    first.close()
    second.check()
    second.claim()
    second.close()
    assert marks(tmp_path) == 0


def test_one_that_is_touched_no_more_is_of_a_job_that_has_ended(tmp_path: Path) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, beat_seconds=3600, dead_seconds=1.0)
    first.claim()
    second = other(tmp_path)
    begin = time.monotonic()
    second.check()
    assert time.monotonic() - begin > 0.3, "it was waited for"
    assert marks(tmp_path) == 0
    second.claim()
    with pytest.raises(FolderInUseError, match=f"process {os.getpid()} on"):
        first.claim()
    second.close()


def test_a_clock_that_is_ahead_holds_nobody_up_for_ever(tmp_path: Path) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, beat_seconds=3600)
    first.claim()
    [mark] = tmp_path.glob(".writer-*")
    os.utime(mark, (time.time() + 86400, time.time() + 86400))
    other(tmp_path).check()
    assert marks(tmp_path) == 0


def test_processes_of_one_job_write_one_after_the_other(tmp_path: Path) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, **SECONDS)
    second = FolderMark(tmp_path, Writer("job-a", "", "a third machine", 5, "9"), **SECONDS)
    first.claim()
    second.check()
    second.claim()
    first.claim()
    assert marks(tmp_path) == 2
    first.close()
    second.close()


@contextmanager
def process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "claimed\n"
        yield started
    finally:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


def test_a_process_of_this_machine_that_was_killed_holds_up_nobody(tmp_path: Path) -> None:
    mine = FolderMark(tmp_path)
    with process(tmp_path) as first:
        with pytest.raises(FolderInUseError, match=f"process {first.pid} on"):
            mine.check()
        first.kill()
        first.wait()
        begin = time.monotonic()
        mine.check()
        assert time.monotonic() - begin < 5, "it is known at once"
        mine.claim()
    assert marks(tmp_path) == 1
    mine.close()


def test_a_mark_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    mark = other(tmp_path)
    mark.claim()
    [path] = tmp_path.glob(".writer-*")
    path.unlink()
    mark.claim()
    assert marks(tmp_path) == 1
    mark.close()


def test_what_is_no_mark_is_none(tmp_path: Path) -> None:
    (tmp_path / ".writer-1.json").write_text("[1]")
    (tmp_path / ".writer-2.json").write_bytes(b"\xff\xfe")
    (tmp_path / ".writer-3.json").write_text('{"job": "x"}')
    mark = other(tmp_path)
    mark.check()
    mark.claim()
    mark.close()


def test_a_forked_process_leaves_the_mark(tmp_path: Path) -> None:
    mark = other(tmp_path)
    mark.claim()
    child = os.fork()
    if child == 0:
        mark.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert marks(tmp_path) == 1
    mark.close()


def test_what_counts_as_one_job() -> None:
    pod = {"PENSTOCK_JOB_UID": "u", "PENSTOCK_JOB_NAME": "a", "PENSTOCK_JOB_NAMESPACE": "n"}
    one, again = this_writer(pod), this_writer(pod | {"PENSTOCK_TRAINER_ADDRESS": "10.0.0.9:1"})
    assert one.job == again.job == "u"
    assert "job n/a (uid u" in one.shown
    trainer = this_writer({"PENSTOCK_TRAINER_ADDRESS": "10.0.0.9:1"})
    assert trainer.job == "10.0.0.9:1"
    local = this_writer({"PENSTOCK_TRAINER_ADDRESS": "127.0.0.1:1"})
    assert local.job != "127.0.0.1:1", "another machine's is another"
    assert this_writer({}).job == this_writer({}).job
