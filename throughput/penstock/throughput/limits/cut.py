"""Where a pipeline may be divided between the training pod and data workers.

FastFlow (PVLDB 16(5), section 4.2) knows three: read locally and prepare elsewhere, read and
prepare elsewhere and batch locally, all elsewhere. Here a cut is any boundary between stages that
may move, with reading on either side, and these three are among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.throughput.profiles.stage import StageCost


@dataclass(frozen=True, slots=True)
class Cut:
    """Stages from ``first`` to before ``last`` are made elsewhere; none if they are equal."""

    name: str
    first: int
    last: int

    @property
    def moves(self) -> bool:
        """Whether anything is made elsewhere."""
        return self.last > self.first


NOTHING = Cut("all local", 0, 0)


WHOLE_BATCH: Final = "whole batch"
READ_LOCAL: Final = "read local"


def tail_local(stage: str) -> str:
    """The name of the cut that leaves the training pod this stage and all after it."""
    return f"from {stage} on local"


class CutKind(StrEnum):
    """What a cut leaves to the training pod."""

    WHOLE_BATCH = WHOLE_BATCH
    """Nothing."""
    TAIL_LOCAL = "tail local"
    """The last stages, and collating."""
    READ_LOCAL = READ_LOCAL
    """Reading."""


def kind_of(cut: Cut, stages: Sequence[StageCost]) -> CutKind | None:
    """Of a cut of these stages; None: nothing is made elsewhere."""
    if not cut.moves:
        return None
    if cut.first:
        return CutKind.READ_LOCAL
    return CutKind.WHOLE_BATCH if cut.last == len(stages) else CutKind.TAIL_LOCAL


def cuts_of(stages: Sequence[StageCost]) -> list[Cut]:
    """All that are possible and of known size, the whole batch first; `NOTHING` is none of them."""
    movable = 0
    while movable < len(stages) and stages[movable].movable:
        movable += 1
    found = []
    for last in range(movable, 0, -1):
        if not stages[last - 1].bytes_out:
            continue  # what would go over the network is not known
        whole = last == len(stages)
        name = WHOLE_BATCH if whole else tail_local(stages[last].name)
        found.append(Cut(name, 0, last))
        if stages[0].kind == "fetch" and stages[0].bytes_out and last > 1:
            found.append(Cut(READ_LOCAL if whole else f"{READ_LOCAL}, {name}", 1, last))
    return found


def carried_out(stages: Sequence[StageCost], *, reads: bool = False) -> list[Cut]:
    """The cuts that data workers carry out, as far as what goes over the network is known.

    They are the whole batch, and every beginning of a sample's way: the program itself then makes
    the rest, and collates. ``reads``: also all but reading.
    """
    return [
        cut
        for cut in cuts_of(stages)
        if (reads and cut.first and cut.last == len(stages))
        or (
            cut.first == 0
            and (
                cut.last == len(stages) or any(one.kind == "collate" for one in stages[cut.last :])
            )
        )
    ]


@dataclass(frozen=True, slots=True)
class Split:
    """What a cut means per sample, in seconds of a core and bytes.

    Attributes:
        local_cpu, local_blocked: of what stays, for a sample that is made elsewhere.
        in_program: of these, what the training does itself: the end of what others have begun.
        remote_cpu, remote_blocked: of what moves.
        in_threads: of the cores of what stays, what the training process does beside its training:
            to read for others.
        bytes_in: that come from the data workers.
        bytes_out: that go to them first.
    """

    local_cpu: float
    local_blocked: float
    remote_cpu: float
    remote_blocked: float
    bytes_in: float
    bytes_out: float
    in_program: float = 0.0
    in_threads: float = 0.0


def split(stages: Sequence[StageCost], cut: Cut) -> Split:
    """The costs on either side of a cut.

    What data workers have read in the training pod they wait for: it holds them up, and nobody
    there.
    """
    moved = stages[cut.first : cut.last]
    stay = [*stages[: cut.first], *stages[cut.last :]]
    begun = moved and not cut.first
    read = stages[: cut.first] if moved else ()
    waited = sum(stage.blocked_seconds for stage in read)
    return Split(
        local_cpu=sum(stage.cpu_seconds for stage in stay),
        local_blocked=max(0.0, sum(stage.blocked_seconds for stage in stay) - waited),
        remote_cpu=sum(stage.cpu_seconds for stage in moved),
        remote_blocked=sum(stage.blocked_seconds for stage in moved) + waited,
        bytes_in=moved[-1].bytes_out if moved else 0.0,
        bytes_out=stages[cut.first - 1].bytes_out if moved and cut.first else 0.0,
        in_program=sum(stage.seconds for stage in stay) if begun else 0.0,
        in_threads=sum(stage.cpu_seconds for stage in read),
    )
