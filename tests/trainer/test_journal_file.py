"""The journal's file when the disk does not take what it is given."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.crds.conditions import JobReason
from penstock.data.ledger import Ledger, LedgerOptions
from penstock.data.ledger.journal import recover
from penstock.job.protocol import DataSpec, LeaseRequest
from penstock.job.settings import TrainerSettings, pod_identity
from penstock.trainer.journal import Journal
from penstock.trainer.service import TrainerService

OPTIONS = LedgerOptions(total_slots=64)


def half(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    return lambda descriptor, data: write(descriptor, data[: len(data) // 2])


def test_a_record_that_was_taken_in_part_is_an_error_and_the_whole_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, journal = Ledger(OPTIONS), Journal(tmp_path)
    journal.rewrite(ledger, {})
    ledger.lease("a", 0.0, 8)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half(os.write))
        with pytest.raises(OSError, match="bytes were taken"):
            journal.append(ledger.take_events())
    journal.rewrite(ledger, {})
    journal.close()
    recovered = recover(journal.path.read_bytes(), OPTIONS, 0.0)
    assert recovered.lost_bytes == 0
    assert [lease.holder for lease in recovered.ledger.leases()] == ["a"]


def test_a_full_disk_is_said_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    service = TrainerService(TrainerSettings(identity=pod_identity({})))
    data = DataSpec(dataset_size=64, global_batch=8, epochs=1)
    service._coordinator.grant_lease(LeaseRequest(holder="a", data=data, max_slots=1), 0.0)
    journal = Journal(tmp_path)
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
        patch.setattr(journal, "rewrite", full)
        for _ in range(3):
            service._journal_now(journal)
        [problem] = service._coordinator.problems.current()
        assert problem.reason is JobReason.JOURNAL_NOT_WRITTEN
        patch.undo()
        for _ in range(3):
            service._journal_now(journal)
    journal.close()
    said = [record.getMessage() for record in caplog.records if "journal" in record.getMessage()]
    [line] = said
    assert line == (
        f"trainer: JournalNotWritten: the journal {journal.path} cannot be written: "
        "No space left on device; make room there, or mend the disk: it is tried again"
    )
    assert caplog.messages[-1] == "trainer: JournalNotWritten: over"
    assert service._coordinator.problems.current() == ()
