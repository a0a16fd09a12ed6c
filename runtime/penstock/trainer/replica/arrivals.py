"""What a replica group makes of its processes' words at the end of a step: pure.

The processes of a replica group do alike or not at all. Before they sum, all have computed the same
slots of the same step; after it, all have their sums, or none takes the optimizer's step. Words are
plain maps, in the order of the processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.trainer.group.division import Division

Word = Mapping[str, Any]
Consumed = list[tuple[int, bytes]]
NOTHING_UNWRITTEN: Final[Mapping[str, str]] = {}


class DivergedError(Exception):
    """The processes of a replica group do not do the same: the program's error."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What all processes of a replica group have computed of a step."""

    consumed: Consumed
    leave: bool
    losses: dict[int, float]
    unwritten: dict[str, str]
    """What some process cannot write: reason, and what the first that has it says."""


def arrival(
    division: Division,
    step: int,
    consumed: Sequence[tuple[int, bytes]],
    losses: Mapping[int, float],
    *,
    leave: bool,
    unwritten: Mapping[str, str] = NOTHING_UNWRITTEN,
) -> dict[str, Any]:
    """The word of one process that has computed its part of a step."""
    speaks = division.speaks
    return {
        "step": step,
        "slots": [slot for slot, _ in consumed],
        "consumed": [samples for _, samples in consumed] if speaks else [],
        "losses": list(losses.items()) if speaks else [],
        "leave": leave,
        "unwritten": dict(unwritten),
    }


def gather(words: Sequence[Word]) -> Arrived:
    """The step as the whole replica group has computed it: each slot with the samples of all parts.

    Raises:
        DivergedError: the processes are at different steps, or computed different slots.
    """
    steps, slots = [word["step"] for word in words], [list(word["slots"]) for word in words]
    if any(step != steps[0] for step in steps):
        raise DivergedError(f"the processes of one replica group are at steps {steps}")
    if any(each != slots[0] for each in slots):
        raise DivergedError(f"the processes of one replica group computed slots {slots}")
    samples: dict[int, list[bytes]] = {slot: [] for slot in slots[0]}
    losses: dict[int, float] = {}
    unwritten: dict[str, str] = {}
    for word in words:
        for slot, part in zip(word["slots"], word["consumed"], strict=False):
            samples[slot].append(part)
        for slot, loss in word["losses"]:
            losses[slot] = losses.get(slot, 0.0) + loss
        unwritten = {**word["unwritten"], **unwritten}
    return Arrived(
        consumed=[(slot, b"".join(parts)) for slot, parts in samples.items()],
        leave=any(word["leave"] for word in words),
        losses=losses,
        unwritten=unwritten,
    )


def fence(words: Sequence[Word]) -> str:
    """Why no process of a replica group commits the step; empty: all of them do."""
    broken = [(number, word["broken"]) for number, word in enumerate(words) if word["broken"]]
    if not broken:
        return ""
    number, why = broken[0]
    return f"process {number} of the replica group has no sum: {why}"


def common_steps(words: Sequence[Word]) -> list[int]:
    """The steps of which every process has a checkpoint, newest first."""
    common = set(words[0]["saved"]).intersection(*(word["saved"] for word in words))
    return sorted(common, reverse=True)
