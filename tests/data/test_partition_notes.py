"""What a process tells of its partitioned steps: bounded, and nothing that is not understood."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.consuming import consumer as consuming
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.partition_notes import PartitionNotes
from penstock.data.protocol import (
    MAX_PARTITION_NOTES,
    ConsumerReply,
    ConsumerReport,
    PartitionNote,
)
from tests.data.planes import TOKEN, eventually


class Work:
    """Of one loader."""

    def __init__(self, name: str = "the loader of Images") -> None:
        self.note = PartitionNote(name=name, state=Phase.RECORDING)

    def notes(self) -> dict[int, PartitionNote]:
        return {id(self): self.note}


def test_loaders_of_one_name_are_told_apart_and_those_that_are_gone_are_left_out() -> None:
    notes = PartitionNotes()
    first, second = Work(), Work()
    for work in (first, second, first):
        notes.follow(work)
    told = [one.name for one in notes.told()]
    assert told == ["the loader of Images", "the loader of Images (2)"]
    del first, work
    assert [one.name for one in notes.told()] == ["the loader of Images"]
    kept = [Work(f"loader {number}") for number in range(100)]
    for one in kept:
        notes.follow(one)
    told = [one.name for one in notes.told()]
    assert told == [f"loader {number}" for number in range(100 - MAX_PARTITION_NOTES, 100)]


def test_texts_of_the_program_are_cut_to_what_can_be_sent() -> None:
    note = PartitionNote(name="n" * 999, state=Phase.ON, why="\ud800" + "w" * 999)
    assert (len(note.name), len(note.why)) == (180, 500)
    assert note.why.startswith("?w")
    assert PartitionNote(name="", state=Phase.ON).name == "unnamed"


@pytest.mark.parametrize("old", [True, False])
def test_a_trainer_that_does_not_know_them_is_told_the_rest(
    monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    heard: list[ConsumerReport] = []

    class Line:
        """To a trainer, which may be of the release before."""

        refused = False

        def __init__(self, *arguments: Any) -> None:
            pass

        def report(self, path: str, report: ConsumerReport, kind: Any) -> ConsumerReply | None:
            self.refused = old and bool(report.partition)
            if not self.refused:
                heard.append(report)
            return None if self.refused else ConsumerReply(dispatcher="d", workers=0)

        def close(self) -> None:
            pass

    monkeypatch.setattr(consuming, "Reporter", Line)
    monkeypatch.setattr(consuming, "REPORT_SECONDS", 0.01)
    made, work = Consumer(token=TOKEN, dispatcher="127.0.0.1:1"), Work()
    try:
        eventually(lambda: heard)
        made.partition.follow(work)
        count = len(heard)
        eventually(lambda: len(heard) > count + 2)
        assert made.partition.unheard is old
        assert heard[-1].partition == (() if old else (work.note,))
    finally:
        made.close()
