"""A step log is read as it grows: nothing twice, and no line before its writer has ended it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parameters.steplogs import StepLog


def line(time: float) -> str:
    return f'{{"time": {time}, "step": 1, "world": 4, "losses": []}}\n'


def test_what_is_written_later_is_read_later(tmp_path: Path) -> None:
    log = StepLog(tmp_path)
    assert log.read() == []
    first, second = tmp_path / "steps-0-0.jsonl", tmp_path / "steps-1-0.jsonl"
    first.write_text(line(1.0) + line(3.0) + line(4.0)[:10])
    assert [step.time_seconds for step in log.read()] == [1.0, 3.0]
    second.write_text(line(2.0))
    with first.open("a") as file:
        file.write(line(4.0)[10:])
    assert [(step.time_seconds, step.worker) for step in log.read()] == [
        (1.0, 0),
        (2.0, 1),
        (3.0, 0),
        (4.0, 0),
    ]


def test_what_a_killed_worker_left_half_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "steps-0-0.jsonl"
    path.write_text(line(1.0) + '{"time": 2.0, "st\n' + line(3.0))
    assert [step.time_seconds for step in StepLog(tmp_path).read()] == [1.0, 3.0]
