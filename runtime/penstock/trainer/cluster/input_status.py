"""What a job's status says of its input, made of what its training processes report.

Each loader, and each declared function, is in all processes that train together. Of what they say
of one the state is that of whoever is farthest from *On*, whose words are told; steps add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.base.enums import Role
from penstock.crds.job_status import MAX_PARTITIONS, InputStatus, PartitionStatus
from penstock.data.protocol import ConsumerReport, PartitionNote

_ORDER: Final = (Phase.FELL_BACK, Phase.RECORDING, Phase.VERIFYING, Phase.ON)


def input_status(reports: Sequence[ConsumerReport]) -> dict[str, Any] | None:
    """The value of ``status.input``; None: nobody says anything."""
    found: dict[str, list[tuple[int, PartitionNote]]] = {}
    for report in sorted(reports, key=lambda one: one.rank):
        for note in report.partition:
            found.setdefault(note.name, []).append((report.rank, note))
    if not found:
        return None
    partition = [_of(notes) for notes in list(found.values())[:MAX_PARTITIONS]]
    return InputStatus(partition=partition).model_dump(
        by_alias=True, exclude_none=True, mode="json"
    )


def _of(notes: list[tuple[int, PartitionNote]]) -> PartitionStatus:
    rank, note = min(notes, key=lambda one: _ORDER.index(one[1].state))
    steps, moved = (sum(getattr(one, name) for _, one in notes) for name in ("steps", "moved"))
    return PartitionStatus(
        name=note.name,
        source=f"{Role.WORKER.in_names}-{rank}",
        state=str(note.state),
        prefix=note.prefix or None,
        prefix_percent=note.prefix_percent,
        crossing_bytes=note.crossing_bytes,
        moved_percent=min(100, 100 * moved // steps) if steps else 0,
        why=note.why or None,
    )
