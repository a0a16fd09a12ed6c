"""In which coding a batch is sent over a link that binds, by what is known of each; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.data.transport.codings import Coding


@dataclass(frozen=True, slots=True)
class Known:
    """What a coding has done with the batches of a connection.

    Attributes:
        seconds: a byte, to code it; 0: not tried yet, and taken for the best.
        share: of its bytes that a batch has when it is coded; the same.
    """

    seconds: float = 0.0
    share: float = 0.0


def choose(
    size: int,
    link_seconds: float,
    made_seconds: float,
    known: Mapping[Coding, Known],
    gain: float,
) -> Coding | None:
    """The coding by which batches come soonest; None where none is worth it.

    Args:
        size: of the batch, in bytes.
        link_seconds: a byte takes over the link.
        made_seconds: the batch took to be made.
        known: of the codings that may be used.
        gain: of the time that a batch takes as it is; coded it has to be below.
    """
    link = size * link_seconds
    best: tuple[float, float] | None = None
    chosen = None
    for coding, one in known.items():
        coding_seconds, coded = size * one.seconds, one.share * link
        # The kernel sends one batch while the next one is made; a large one it sends meanwhile.
        alone, apace = coding_seconds + coded, max(made_seconds + coding_seconds, coded)
        if alone >= gain * link or apace >= gain * max(made_seconds, link):
            continue
        if best is None or (apace, alone) < best:
            best, chosen = (apace, alone), coding
    return chosen
