"""The status of a job's input: of several processes, whoever is farthest from On is told."""

from __future__ import annotations

from typing import Any

from penstock.base.enums import PartitionPhase as Phase
from penstock.crds.job_status import ElasticJobStatus
from penstock.data.protocol import ConsumerReport, PartitionNote
from penstock.trainer.cluster.input_status import input_status


def report(rank: int, *notes: PartitionNote) -> ConsumerReport:
    return ConsumerReport(name=f"c{rank}", address="10.0.0.1:1", rank=rank, partition=notes)


def note(state: Phase, name: str = "the loader", **fields: Any) -> PartitionNote:
    return PartitionNote(name=name, state=state, **fields)


def test_steps_add_up_and_the_words_are_of_the_farthest() -> None:
    on = note(
        Phase.ON, steps=100, moved=80, prefix="encode", prefix_percent=60, crossing_bytes=4096
    )
    kept = note(Phase.FELL_BACK, steps=100, moved=10, why="encode has hooks")
    said = input_status([report(1, kept), report(0, on, note(Phase.RECORDING, "other"))])
    assert said == {
        "partition": [
            {
                "name": "the loader",
                "source": "worker-1",
                "state": "FellBack",
                "movedPercent": 45,
                "why": "encode has hooks",
            },
            {"name": "other", "source": "worker-0", "state": "Recording", "movedPercent": 0},
        ]
    }
    assert ElasticJobStatus.model_validate({"input": said}).input is not None
    alone = input_status([report(0, on)])
    assert alone is not None
    [of] = alone["partition"]
    assert (of["prefix"], of["prefixPercent"], of["crossingBytes"]) == ("encode", 60, 4096)
    assert of["movedPercent"] == 80


def test_nobody_says_anything() -> None:
    assert input_status([]) is None
    assert input_status([report(0)]) is None


def test_whatever_a_process_may_report_fits() -> None:
    notes = [
        note(Phase.ON, f"{number}" * 180, prefix="p" * 500, why="w" * 500) for number in range(8)
    ]
    others = [note(Phase.ON, f"{number}{number}") for number in range(8)]
    said = input_status([report(0, *notes), report(1, *others)])
    assert said is not None
    assert len(said["partition"]) == 8
