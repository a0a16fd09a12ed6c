"""The journal when the disk does not take what it is given, or hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.crds.conditions import JobReason
from penstock.data.ledger import Ledger, LedgerOptions
from penstock.data.ledger.journal import append, begin, recover
from penstock.job.protocol import DataSpec, LeaseRequest
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.journal import Journal, restore
from penstock.trainer.journal_writer import JournalWriter

OPTIONS = LedgerOptions(total_slots=64)
DATA = DataSpec(dataset_size=512, global_batch=8, epochs=1, slots_per_step=1)


def half(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    return lambda descriptor, data: write(descriptor, data[: len(data) // 2])


def lease(coordinator: Coordinator, slots: int = 1) -> None:
    """Something happens that is to be written."""
    coordinator.grant_lease(LeaseRequest(holder="a", data=DATA, max_slots=slots), 0.0)


def write(writer: JournalWriter, now: float | None = None) -> None:
    """Have it write, and wait until it has."""
    writer.write(time.monotonic() if now is None else now)
    deadline = time.monotonic() + 30
    while writer.busy:
        assert time.monotonic() < deadline, "the write does not end"
        time.sleep(0.001)


def read(path: Path) -> Coordinator:
    """A trainer that takes the journal up."""
    following = Coordinator(JobFacts(), "next")
    restore(path.read_bytes(), "the journal", following, 0.0)
    return following


def test_a_record_that_was_taken_in_part_is_an_error_and_the_whole_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, journal = Ledger(OPTIONS), Journal(tmp_path)
    journal.rewrite(begin(ledger, {}))
    ledger.lease("a", 0.0, 8)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half(os.write))
        with pytest.raises(OSError, match="bytes were taken"):
            journal.append(append(ledger.take_events()))
    journal.rewrite(begin(ledger, {}))
    journal.close()
    recovered = recover(journal.path.read_bytes(), OPTIONS, 0.0)
    assert recovered.lost_bytes == 0
    assert [lease.holder for lease in recovered.ledger.leases()] == ["a"]


def test_a_full_disk_is_said_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    coordinator, journal = Coordinator(JobFacts(), "t"), Journal(tmp_path)
    writer = JournalWriter(journal, coordinator)
    lease(coordinator)
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr(journal, "rewrite", full)
        for _ in range(3):
            write(writer)
        [problem] = coordinator.problems.current()
        assert problem.reason is JobReason.JOURNAL_NOT_WRITTEN
        patch.undo()
        for _ in range(3):
            write(writer)
    asyncio.run(writer.close())
    said = [record.getMessage() for record in caplog.records if "journal" in record.getMessage()]
    [line] = said
    assert line == (
        f"trainer: JournalNotWritten: the journal {journal.path} cannot be written: "
        "No space left on device; make room there, or mend the disk: it is tried again"
    )
    assert caplog.messages[-1] == "trainer: JournalNotWritten: over"
    assert coordinator.problems.current() == ()


def test_what_happens_is_appended_and_what_is_left_is_written_at_the_end(tmp_path: Path) -> None:
    coordinator, journal = Coordinator(JobFacts(), "t"), Journal(tmp_path)
    writer = JournalWriter(journal, coordinator)
    lease(coordinator)
    write(writer)
    begun = journal.path.stat().st_size
    lease(coordinator)
    write(writer)
    assert journal.path.stat().st_size > begun
    lease(coordinator)
    asyncio.run(writer.close())
    ours, theirs = coordinator.state.ledger, read(journal.path).state.ledger
    assert ours is not None
    assert theirs is not None
    assert len(theirs.leases()) == 3
    assert theirs.snapshot()["frontier"] == ours.snapshot()["frontier"]
    assert not journal.begun, "the file is still open"


def test_a_disk_that_hangs_holds_nobody_up_and_is_said_and_the_whole_is_written_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, ends = threading.Event(), threading.Event()
    coordinator, journal = Coordinator(JobFacts(), "t"), Journal(tmp_path)
    writer = JournalWriter(journal, coordinator, hang_seconds=10.0, max_waiting_events=4)
    really = journal.append

    def hang(more: bytes) -> None:
        hangs.set()
        ends.wait(60)
        really(more)

    monkeypatch.setattr(journal, "append", hang)
    lease(coordinator)
    write(writer)
    lease(coordinator)
    now = time.monotonic()
    writer.write(now)
    assert hangs.wait(30)
    for second in range(20):
        lease(coordinator)
        writer.write(now + second)
        assert len(writer._waiting) <= 4
        assert bool(coordinator.problems.current()) == (second > 10)
    [problem] = coordinator.problems.current()
    assert "a write has not ended within 10 s" in problem.message
    ends.set()
    for _ in range(2):  # what hung has ended, and then there is more
        while writer.busy:
            time.sleep(0.001)
        write(writer)
    assert coordinator.problems.current() == ()
    asyncio.run(writer.close())
    taken_up = read(journal.path).state.ledger
    assert taken_up is not None
    assert len(taken_up.leases()) == 22


def test_a_trainer_leaves_though_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = threading.Event()
    coordinator, journal = Coordinator(JobFacts(), "t"), Journal(tmp_path)
    writer = JournalWriter(journal, coordinator)
    monkeypatch.setattr(journal, "rewrite", lambda _: ends.wait(60))
    lease(coordinator)
    asyncio.run(writer.close(seconds=0.1))
    ends.set()
    assert "was not written within 0.1 s" in caplog.text
