"""The ends of samples in the program: what differs, or cannot be told, is made whole."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.crds import environment as names
from penstock.data.consuming.late_work import LateWork
from penstock.data.cuts.head_and_tail import head_of
from penstock.data.cuts.points import Point, point_named
from penstock.data.pipeline import PackedPipeline, Pipeline
from tests.data.cuts.pictures import Decoded, Pictures, collate, crop, to_array, to_tensor
from tests.data.planes import freeze

SEED, INDICES = 5, list(range(9))


def pack(pipeline: Any) -> PackedPipeline:
    return PackedPipeline(repr(getattr(pipeline, "point", "whole")).encode(), b"", b"")


class Queue:
    """Of which a data worker has a pipeline."""

    packed = pack(None)
    failures = 0


class Plane:
    """A loader's late work, and what a data worker makes for it."""

    def __init__(self, dataset: Any) -> None:
        self.pipeline = Pipeline(dataset, collate)
        self.late = LateWork(self.pipeline, SEED, lambda: pack(None), pack)
        self.step = -1
        self.counts = SimpleNamespace(cut="")
        self.sent: list[bytes] = []

    def come(self, batch: Any) -> tuple[bool, Any]:
        self.step += 1
        self.late.note(self.step, INDICES, self.step)
        return self.late.finish(self.step, batch, None)

    def replace(self, _: Any, packed: Any) -> None:
        self.sent.append(packed.digest)

    def tend(self) -> list[bytes]:
        """What data workers are told to make, from the first to the last."""
        place: Any = self
        queue: Any = Queue()
        self.late.tend(place, queue, self.late.pack)
        return self.sent

    def head(self, name: str = "Jitter") -> Any:
        point = point_named(self.pipeline, name)
        return head_of(Pipeline(type(self.pipeline.dataset)(), collate), point)


def test_a_cut_may_come_and_go_and_batches_say_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = Plane(Pictures())
    whole = freeze(plane.pipeline.make(SEED, INDICES))
    assert plane.tend() == []
    monkeypatch.setenv(names.DATA_CUT, "Jitter")
    cut = repr(Point("Jitter", 3, listed=True)).encode()
    assert (plane.tend(), plane.tend()) == ([cut], [cut])
    head = plane.head()
    for _ in range(4):
        made, batch = plane.come(head.make(SEED, INDICES))
        assert batch == INDICES if not made else freeze(batch) == whole
    assert made, "what is drawn from is known by then"
    monkeypatch.setenv(names.DATA_CUT, "")
    assert plane.tend() == [cut, b"'whole'"]
    made, batch = plane.come(head.make(SEED, INDICES))  # it was under way
    assert made
    assert freeze(batch) == whole
    assert plane.come("a whole batch") == (True, "a whole batch")


class Jumps(Pictures):
    """Is another dataset where it is sent to."""

    def __init__(self) -> None:
        super().__init__([crop, to_array, to_tensor])
        self.shift = 0

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index + self.shift)


def test_what_differs_ends_the_cut_and_what_was_under_way_is_made_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(names.DATA_CUT, "to_array")
    plane = Plane(Jumps())
    head = plane.head("to_array")
    head.dataset.shift = 1
    found = [plane.come(head.make(SEED, INDICES)) for _ in range(4)]
    assert [made for made, _ in found] == [False] * 4
    assert plane.tend() == [b"'whole'"]
    monkeypatch.setenv(names.DATA_CUT, "collate")
    assert plane.tend() == [b"'whole'"]
    assert "is not cut in front of to_array" in caplog.text
    assert "is another there" in caplog.text


def test_what_cannot_be_read_or_cut_is_made_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(names.DATA_CUT, "Jitter")
    plane = Plane(Pictures())
    assert plane.come({**plane.head().make(SEED, INDICES), "point": None}) == (False, INDICES)
    assert plane.tend() == [b"'whole'"]
    assert "cannot be read" in caplog.text
    assert Plane(Decoded()).tend() == []
    assert "0 lists of transforms" in caplog.text


def test_a_survey_tells_what_the_stages_cost_and_where_samples_grow() -> None:
    plane = Plane(Pictures())
    plane.late.note(0, INDICES, 0)
    costs = plane.late._survey()
    assert [one.name for one in costs] == [
        "dataset",
        "crop",
        "to_array",
        "to_tensor",
        "Jitter",
        "collate",
    ]
    assert all(one.cpu_seconds >= 0 for one in costs)
    sizes = {one.name: one.bytes_out for one in costs}
    assert sizes["dataset"] > sizes["crop"]
    assert 3 * sizes["crop"] < sizes["to_tensor"]
    assert sizes["collate"] >= 9 * 16 * 16 * 3 * 4
