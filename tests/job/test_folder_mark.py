"""Two jobs in one folder of checkpoints: the second keeps its hands off, unless the first ended."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.job import folder_mark
from penstock.job.folder_mark import FolderInUseError, FolderMark, Writer, this_writer

ELSEWHERE = Writer("job-a", "job default/a (uid 1, on node-1)", "another machine", 1, "1")
BEGIN = time.time() + 3600
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
    return FolderMark(folder, None, **SECONDS)


class Clock:
    """Of a process that waits: its seconds take no time, and at each pause something happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[float], None]) -> None:
        self._meanwhile = meanwhile
        self.now = 0.0
        monkeypatch.setattr(folder_mark, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._meanwhile(self.now)


def touch(folder: Path, seconds: float) -> None:
    """As every writer there does at that second."""
    for mark in folder.glob(".writer-*.json"):
        os.utime(mark, times=(BEGIN + seconds, BEGIN + seconds))


def leave(folder: Path, writer: Writer, seconds: float = 0.0) -> Path:
    """The mark of a process that was killed, so long after it touched it."""
    folder.mkdir(exist_ok=True)
    path = folder / f".writer-{marks(folder):016x}.json"
    path.write_text(json.dumps(asdict(writer)))
    os.utime(path, times=(time.time() - seconds, time.time() - seconds))
    return path


def test_who_writes_elsewhere_is_named_at_the_start_and_at_a_save(tmp_path: Path) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, **SECONDS)
    first.claim()
    second = other(tmp_path)
    words = r"default/a \(uid 1, on node-1\) writes its checkpoints there, too"
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


def test_a_job_that_ends_while_another_begins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FolderMark(tmp_path, ELSEWHERE, beat_seconds=3600)
    first.claim()

    def ends(seconds: float) -> None:
        touch(tmp_path, seconds)
        if seconds >= 12:
            first.close()

    clock = Clock(monkeypatch, ends)
    FolderMark(tmp_path).check()
    assert 12 <= clock.now < 13


def test_a_job_that_is_killed_while_another_begins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, ELSEWHERE)
    clock = Clock(monkeypatch, lambda seconds: touch(tmp_path, min(seconds, 15.0)))
    FolderMark(tmp_path).check()
    assert 35 <= clock.now < 37, "the time in which it would have touched its mark again"
    assert marks(tmp_path) == 0


def test_a_process_that_comes_while_one_waits_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, agent = (FolderMark(tmp_path, ELSEWHERE, beat_seconds=3600) for _ in range(2))
    first.claim()

    def saves(seconds: float) -> None:
        if seconds == 5:
            first.close()
            agent.claim()
        if seconds == 9:
            agent.close()

    clock = Clock(monkeypatch, saves)
    FolderMark(tmp_path).check()
    assert 9 <= clock.now < 10


def test_a_job_that_goes_on_writing_is_named_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, ELSEWHERE)
    clock = Clock(monkeypatch, lambda seconds: touch(tmp_path, seconds // 5 * 5))
    with pytest.raises(FolderInUseError, match="default/a"):
        FolderMark(tmp_path).check()
    assert 20 < clock.now <= 26
    assert marks(tmp_path) == 1


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
            mine.claim()
        first.kill()
        first.wait()
        begin = time.monotonic()
        mine.check()
        assert time.monotonic() - begin < 5, "it is known at once"
        mine.claim()
    assert marks(tmp_path) == 1
    mine.close()


def test_a_process_of_this_machine_is_waited_for_as_long_as_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(tmp_path) as first:

        def is_ended(seconds: float) -> None:
            if ends and seconds == 3:
                first.kill()
                first.wait()

        ends = False
        clock = Clock(monkeypatch, is_ended)
        with pytest.raises(FolderInUseError, match=f"process {first.pid} on"):
            FolderMark(tmp_path).check()
        assert 20 < clock.now < 22
        ends = True
        clock = Clock(monkeypatch, is_ended)
        FolderMark(tmp_path).check()
        assert clock.now == 3
    assert marks(tmp_path) == 0


def test_a_process_that_nobody_shows_is_gone_once_its_number_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where other users' processes are hidden."""
    monkeypatch.setattr(folder_mark, "_PROCESSES", tmp_path / "nothing")
    folder = tmp_path / "folder"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leave(folder, replace(this_writer(), job="theirs", pid=child.pid, started="7"))
    mark = FolderMark(folder)
    with pytest.raises(FolderInUseError):
        mark.claim()
    child.communicate(b"\n")
    mark.claim()
    assert marks(folder) == 1
    mark.close()


def test_a_process_that_has_ended_and_is_not_collected_is_gone(tmp_path: Path) -> None:
    mark = FolderMark(tmp_path)
    with process(tmp_path) as first:
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        mark.claim()
    assert marks(tmp_path) == 1
    mark.close()


def refuse_marks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    opens = Path.open

    def fails(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if path.suffix == ".json" and "r" in mode:
            raise OSError(number, os.strerror(number))
        return opens(path, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", fails)


def test_a_mark_that_may_not_be_read_is_another_jobs_as_long_as_it_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leave(tmp_path, ELSEWHERE)
    refuse_marks(monkeypatch, errno.EACCES)
    mark = FolderMark(tmp_path)
    with pytest.raises(FolderInUseError, match=f"{path.name}, which may not be read, writes its"):
        mark.claim()
    assert marks(tmp_path) == 1
    os.utime(path, times=(time.time() - 60, time.time() - 60))
    mark.claim()
    mark.claim()
    assert not path.exists()
    mark.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_where_marks_cannot_be_read_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    leave(tmp_path, ELSEWHERE)
    mark = FolderMark(tmp_path)
    with monkeypatch.context() as failing:
        refuse_marks(failing, number)
        for look in (mark.check, mark.claim):
            with pytest.raises(OSError, match=re.escape(os.strerror(number))):
                look()
    assert marks(tmp_path) == 1
    with pytest.raises(FolderInUseError, match="default/a"):
        mark.claim()


def test_killed_processes_of_one_job_leave_no_more_and_more_marks(tmp_path: Path) -> None:
    me = replace(this_writer(), job="job-a")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    old = [
        leave(tmp_path, replace(me, pid=child.pid, started="7")),
        leave(tmp_path, ELSEWHERE, seconds=60),
        tmp_path / ".writer-1.tmp",
    ]
    stay = [
        leave(tmp_path, ELSEWHERE, seconds=5),
        leave(tmp_path, me, seconds=60),
        tmp_path / ".writer-2.tmp",
        tmp_path / ".writer-3",
    ]
    for path in (old[-1], *stay[-2:]):
        path.touch()
    for path in (old[-1], stay[-1]):
        os.utime(path, times=(time.time() - 60, time.time() - 60))
    mark = FolderMark(tmp_path, me)
    mark.claim()
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in stay)
    assert marks(tmp_path) == len(stay) + 1
    mark.close()


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


def test_a_trainer_that_has_a_token_is_one_by_any_of_its_addresses() -> None:
    def writer(address: str, token: str = "a secret") -> Writer:
        return this_writer({"PENSTOCK_TRAINER_ADDRESS": address, "PENSTOCK_JOB_TOKEN": token})

    here = writer("127.0.0.1:7000")
    assert here.job == writer("host-a:7000").job == writer("[fd00::1]:7000").job
    assert here.job != writer("127.0.0.1:7001").job, "two trainings of one secret"
    assert here.job != writer("127.0.0.1:7000", "another secret").job
    assert "a secret" not in str(here)
