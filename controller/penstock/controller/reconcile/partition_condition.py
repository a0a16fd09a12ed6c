"""Condition InputPartitioned: whether parts of the training step run where batches are made.

It follows from what the job's trainer has written to ``status.input.partition``, and from the spec
where that says nothing. While processes that have come later still record or compare, what has
moved in others counts as moved: the condition does not go to and fro as workers come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.base.enums import Partition, PartitionPhase
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import MovedStage
from penstock.crds.conditions import JobCondition, JobReason
from penstock.crds.elasticjob import ElasticJobSpec

_TEXT_LIMIT: Final = 300
"""Characters for each loader or function: there are eight at most, and the first words count."""


def set_input_partitioned(
    conditions: Conditions, spec: ElasticJobSpec | None, stages: Sequence[MovedStage]
) -> None:
    """True says how many have moved and what they send; False, why all stays as written."""
    kind = JobCondition.INPUT_PARTITIONED
    allowed = Partition.DECLARED if spec is None else spec.input.partition
    moved = [one for one in stages if _has_moved(one)]
    others = [one for one in stages if one not in moved]
    if allowed is Partition.NEVER and not moved:
        conditions.set(kind, False, JobReason.PARTITION_OFF, "input.partition is Never")
    elif moved:
        conditions.set(kind, True, JobReason.STAGES_MOVED, _moved(moved, len(stages), others))
    elif stages and all(one.state == PartitionPhase.FELL_BACK for one in stages):
        text = f"the program runs as written: {_why(stages)}"
        conditions.set(kind, False, JobReason.STAGES_FELL_BACK, text)
    elif stages or allowed is Partition.AUTO:
        names = ", ".join(f"{one.name}: {one.state}" for one in stages)
        text = names or "no loader of the program has been seen yet"
        conditions.set(kind, None, JobReason.STAGES_NOT_PROVEN, text)
    else:
        text = (
            "the program declares no function with penstock.data.offload; with input.partition "
            "Auto its steps are looked at"
        )
        conditions.set(kind, False, JobReason.NOTHING_DECLARED, text)


def _has_moved(stage: MovedStage) -> bool:
    return stage.state == PartitionPhase.ON or (
        stage.state != PartitionPhase.FELL_BACK and stage.moved_percent > 0
    )


def _moved(moved: Sequence[MovedStage], count: int, others: Sequence[MovedStage]) -> str:
    known = [one.crossing_bytes for one in moved if one.crossing_bytes is not None]
    sent = f", {sum(known)} bytes cross in each step" if known else ""
    names = "; ".join(_prefix(one) for one in moved)
    stay = _why(one for one in others if one.state == PartitionPhase.FELL_BACK)
    return f"{len(moved)} of {count} moved{sent}: {names}{f'; as written: {stay}' if stay else ''}"


def _prefix(stage: MovedStage) -> str:
    told = stage.prefix not in {"", stage.name}
    return f"{stage.name}: {stage.prefix}"[:_TEXT_LIMIT] if told else stage.name


def _why(stages: Iterable[MovedStage]) -> str:
    return "; ".join(f"{one.name}: {one.why}"[:_TEXT_LIMIT] for one in stages)
