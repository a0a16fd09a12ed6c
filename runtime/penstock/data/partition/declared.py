"""When a function that the program declared stateless is used as data workers called it.

The proof of `penstock.data.partition.proof`, for one call of one process: nobody has to agree, for
the call's result is the same bit by bit wherever it was made. Its steps are the calls that were
recorded and, later, the results that came; a call without a result is the program's own, and no
step.

Guarantees, beside those of the proof:

- No result is used of a *kind* (where it was made, and the sizes of what it was made of) of which
  none was compared: libraries choose their algorithms by both.
- After a difference, or a change of what the function relies on, no result is used any more.
- Memory is bounded: beyond `MAX_KINDS` results of a new kind are compared each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition.events import (
    Asked,
    Changed,
    Chosen,
    Compared,
    Diverged,
    Grouped,
    NotCompared,
    Recorded,
)
from penstock.data.partition.proof import Mode, Proof, Settings, apply

MAX_KINDS: Final = 1000
_MEMBER: Final = "program"
_EPOCH: Final = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What results have in common where one of them speaks for all.

    Attributes:
        place: libraries and processor that made them.
        sizes: of what they were made of.
    """

    place: str
    sizes: str


def _begun() -> Proof:
    return apply(Proof(Settings(ahead=1)), Grouped(_EPOCH, {_MEMBER: ""}, 0))


@dataclass(frozen=True, slots=True)
class Declared:
    """The state of one call.

    Attributes:
        proof: of the call.
        kinds: of which a result was compared and found equal.
    """

    proof: Proof = field(default_factory=_begun)
    kinds: frozenset[Kind] = frozenset()

    @property
    def phase(self) -> Phase:
        """As the proof's."""
        return self.proof.phase

    @property
    def step(self) -> int:
        """The last that was asked for."""
        return self.proof.horizon - 1


def ask(state: Declared, kind: Kind | None) -> tuple[Declared, Mode]:
    """How the next call is run.

    Args:
        state: until now.
        kind: of the result that came for it; None: none did.
    """
    phase = state.phase
    if phase is Phase.FELL_BACK or (kind is None) is not (phase is Phase.RECORDING):
        return state, Mode.RAW
    step = state.proof.horizon
    state = replace(state, proof=apply(state.proof, Asked(_EPOCH, _MEMBER, step)))
    mode = state.proof.mode(step)
    assert mode is not None, "it was granted"
    if mode is Mode.PARTITIONED and kind not in state.kinds:
        mode = Mode.COMPARE
    return state, mode


def record(state: Declared, signature: str, step: int | None = None) -> Declared:
    """The call was recorded, as `ask` said; ``signature``: the digest of what it was.

    ``step``: of an earlier `ask`; None: of the last one.
    """
    event = Recorded(_EPOCH, _MEMBER, state.step if step is None else step, signature)
    return replace(state, proof=apply(state.proof, event))


def choose(state: Declared, function: str) -> Declared:
    """Recorded alike: from now on data workers may call it.

    ``function``: digest of what they are sent.
    """
    why = "the same in all recorded calls"
    return replace(state, proof=apply(state.proof, Chosen(_EPOCH, function, why)))


def compare(
    state: Declared, kind: Kind, difference: str | None, step: int | None = None
) -> Declared:
    """A result was held against the program's own, as `ask` said; ``step``: as for `record`."""
    at = state.step if step is None else step
    proof = apply(state.proof, Compared(_EPOCH, _MEMBER, at, difference))
    if difference is not None or len(state.kinds) >= MAX_KINDS:
        return replace(state, proof=proof)
    return replace(state, proof=proof, kinds=state.kinds | {kind})


def give_up(state: Declared, why: str) -> Declared:
    """What it relies on has changed, or it cannot be called elsewhere: no result is used again."""
    proof = state.proof
    if proof.horizon == 0:
        proof = apply(proof, Asked(_EPOCH, _MEMBER, 0))
    event = Changed(_EPOCH, _MEMBER, proof.horizon - 1, why)
    return replace(state, proof=apply(proof, event))


def diverge(state: Declared, why: str, step: int) -> Declared:
    """The step called other things than were recorded, and was run as written."""
    return replace(state, proof=apply(state.proof, Diverged(_EPOCH, _MEMBER, step, why)))


def skip(state: Declared, step: int) -> Declared:
    """The step that was to be compared made no calls that could be."""
    return replace(state, proof=apply(state.proof, NotCompared(_EPOCH, _MEMBER, step)))
