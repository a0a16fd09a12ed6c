"""When what data workers made is used: one process's part in a proof.

The proof of `penstock.data.partition.proof`. Of a process alone, and of a function that the program
declared, nobody has to agree: its steps are the calls that were recorded and, later, the results
that came; a call without a result is the program's own, and no step.

As a member of a group (`join`) its steps are the group's. What it finds is *said*, and counts once
all members have heard it in the same order (`hear`), so that all switch at the same step. When the
group's membership changes, nothing is used until its members have told each other how they stand
(`leave`, `regroup`).

Guarantees, beside those of the proof:

- No result is used of a *kind* (where it was made, and the sizes of what it was made of) of which
  none was compared: libraries choose their algorithms by both.
- After a difference, or a change of what the function relies on, no result is used any more.
- Memory is bounded: beyond `MAX_KINDS` results of a new kind are compared each time.
- In a group nothing is used that was made of another prefix than the group's, nor after this member
  has found a difference or a change, whether or not the others have heard of it yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition.errors import ProofError
from penstock.data.partition.events import (
    Asked,
    Changed,
    Chosen,
    Compared,
    Diverged,
    Event,
    Grouped,
    NotCompared,
    Recorded,
)
from penstock.data.partition.proof import Mode, Proof, Segment, Settings, apply

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
class Place:
    """A member's place in a group.

    Attributes:
        member: its name.
        together: the group's members know how each of them stands.
        at: the group's step under way.
        has: the prefix that this member can have moved, as `Chosen` named it; empty: none.
        said: what the others have not heard yet.
        stopped: why this member uses nothing any more; empty: it does, as far as the group does.
    """

    member: str
    together: bool = False
    at: int = 0
    has: str = ""
    said: tuple[Event, ...] = ()
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """The state of one call, or of one process's steps with one loader.

    Attributes:
        proof: of the call, or of the group.
        kinds: of which a result was compared and found equal.
        place: in a group; None: nobody has to agree.
        heard: what was said in the group and all have heard, in this membership epoch.
    """

    proof: Proof = field(default_factory=_begun)
    kinds: frozenset[Kind] = frozenset()
    place: Place | None = None
    heard: int = 0

    @property
    def phase(self) -> Phase:
        """As the proof's; who has stopped has fallen back."""
        if self.place is not None and self.place.stopped:
            return Phase.FELL_BACK
        return self.proof.phase

    @property
    def step(self) -> int:
        """The last that was asked for."""
        return self.proof.horizon - 1 if self.place is None else self.place.at

    @property
    def why(self) -> str:
        """Of the last change of phase, for people."""
        stopped = self.place.stopped if self.place is not None else ""
        return stopped or self.proof.why

    @property
    def segment(self) -> tuple[int, int]:
        """Other where what was recorded until now counts no more."""
        return self.proof.epoch, self.proof.segments[-1].first_step

    def recorded(self, place: Place) -> int:
        """Steps of the segment that this member has recorded."""
        seen = self.proof.seen.get(place.member, {})
        first = self.proof.segments[-1].first_step
        said = (one.step for one in place.said if isinstance(one, Recorded) and one.step >= first)
        return len({*seen, *said})


def ask(state: Declared, kind: Kind | None) -> tuple[Declared, Mode]:
    """How the next call is run, or in a group this member's part of the step under way.

    Args:
        state: until now.
        kind: of the result that came for it; None: none did.
    """
    if state.place is not None:
        return state, _ask_group(state, state.place, kind)
    phase = state.phase
    if phase is Phase.FELL_BACK or (kind is None) is not (phase is Phase.RECORDING):
        return state, Mode.RAW
    step = state.proof.horizon
    state = replace(state, proof=apply(state.proof, Asked(_EPOCH, _MEMBER, step)))
    mode = state.proof.mode(step)
    assert mode is not None, "it was granted"
    if mode is Mode.RECORD and step - state.segment[1] >= state.proof.settings.recorded_steps:
        mode = Mode.RAW
    return state, _compared_first(state, mode, kind)


def _ask_group(state: Declared, place: Place, kind: Kind | None) -> Mode:
    if not place.together or place.stopped or place.at < state.proof.segments[0].first_step:
        return Mode.RAW
    mode = state.proof.mode(place.at)
    if mode is None:
        return Mode.RAW
    if mode is Mode.RECORD:
        behind = state.recorded(place) < state.proof.settings.recorded_steps
        return mode if behind and place.at >= state.segment[1] else Mode.RAW
    if kind is None or place.has != state.proof.prefix:
        return Mode.RAW
    return _compared_first(state, mode, kind)


def _compared_first(state: Declared, mode: Mode, kind: Kind | None) -> Mode:
    return Mode.COMPARE if mode is Mode.PARTITIONED and kind not in state.kinds else mode


def record(state: Declared, signature: str, step: int | None = None) -> Declared:
    """The call was recorded, as `ask` said; ``signature``: the digest of what it was.

    ``step``: of an earlier `ask`; None: of the last one.
    """
    return _say(state, Recorded(*_by(state), _at(state, step), signature))


def choose(state: Declared, function: str, why: str = "the same in all recorded calls") -> Declared:
    """Recorded alike: from now on data workers may call it.

    ``function``: digest of what they are sent; empty: nothing is to move.
    """
    return _say(state, Chosen(_by(state)[0], function, why))


def compare(
    state: Declared, kind: Kind, difference: str | None, step: int | None = None
) -> Declared:
    """A result was held against the program's own, as `ask` said; ``step``: as for `record`."""
    at = _at(state, step)
    told = _say(state, Compared(*_by(state), at, difference))
    if difference is not None:
        return _stop(told, f"step {at}: differs: {difference}")
    if len(state.kinds) >= MAX_KINDS:
        return told
    return replace(told, kinds=told.kinds | {kind})


def give_up(state: Declared, why: str) -> Declared:
    """What it relies on has changed, or it cannot be called elsewhere: no result is used again."""
    if state.place is not None:
        at = min(state.place.at, state.proof.horizon - 1)
        return _stop(_say(state, Changed(*_by(state), at, why)), why)
    proof = state.proof
    if proof.horizon == 0:
        proof = apply(proof, Asked(_EPOCH, _MEMBER, 0))
    event = Changed(_EPOCH, _MEMBER, proof.horizon - 1, why)
    return replace(state, proof=apply(proof, event))


def diverge(state: Declared, why: str, step: int) -> Declared:
    """The step called other things than were recorded, and was run as written."""
    return _say(state, Diverged(*_by(state), step, why))


def skip(state: Declared, step: int) -> Declared:
    """The step that was to be compared made no calls that could be."""
    return _say(state, NotCompared(*_by(state), step))


# ---------------------------------------------------------------- as a member of a group


@dataclass(frozen=True, slots=True)
class Standing:
    """How a member stands when a group is formed anew.

    Attributes:
        epoch: the last that it knows of; 0: it is new.
        heard: in it.
        phase: of its group in it.
        prefix: likewise.
        recordings: that were not alike, in all epochs.
        divergences: in all epochs.
        why: of the last change of phase.
        has: the prefix that this member can have moved.
    """

    epoch: int = 0
    heard: int = 0
    phase: Phase = Phase.RECORDING
    prefix: str = ""
    recordings: int = 0
    divergences: tuple[tuple[int, str, int], ...] = ()
    why: str = ""
    has: str = ""


def join(member: str, settings: Settings | None = None) -> Declared:
    """A member of a group that is not formed yet.

    ``settings``: of all members alike. Where they exchange something in every step, a change of
    phase comes with the next one.
    """
    return Declared(Proof(settings or Settings(ahead=1)), place=Place(member))


def leave(state: Declared, member: str) -> Declared:
    """The group is formed anew, and knows this member by that name.

    Until `regroup` this member uses nothing. What it said, and nobody has heard, is of no group any
    more.
    """
    assert state.place is not None, "it is a member of a group"
    return replace(state, place=replace(state.place, member=member, together=False, said=()))


def standing(state: Declared) -> Standing:
    """How this member stands."""
    assert state.place is not None, "it is a member of a group"
    proof = state.proof
    return Standing(
        proof.epoch,
        state.heard,
        proof.phase,
        proof.prefix,
        proof.recordings,
        tuple(sorted(proof.divergences)),
        proof.why,
        state.place.has,
    )


def regroup(state: Declared, standings: Mapping[str, Standing], first_step: int) -> Declared:
    """All members have told each other how they stand; they go on together with this step.

    Who knows most of the newest epoch knows how the group was. It ends no partition that a member
    has given up for itself alone: that one says so again, and all hear it.
    """
    assert state.place is not None, "it is a member of a group"
    member = max(standings, key=lambda one: (standings[one].epoch, standings[one].heard, one))
    known = standings[member]
    proof = Proof(
        state.proof.settings,
        epoch=known.epoch,
        phase=known.phase,
        prefix=known.prefix,
        segments=(Segment(0, known.phase),),
        recordings=known.recordings,
        divergences=frozenset(known.divergences),
        why=known.why,
    )
    members = {name: one.has for name, one in standings.items()}
    proof = apply(proof, Grouped(known.epoch + 1, members, first_step))
    place = replace(state.place, together=True)
    return _together(replace(state, proof=proof, place=place, heard=0), first_step)


def begin_step(state: Declared, step: int) -> Declared:
    """The group begins a step."""
    assert state.place is not None, "it is a member of a group"
    return replace(state, place=replace(state.place, at=step))


def hear(state: Declared, said: Sequence[Event], next_step: int | None = None) -> Declared:
    """What members have said, in the order in which all hear it.

    Args:
        state: until now.
        said: by all members, this one included.
        next_step: that all of them begin next; None: who begins one has said so (`Asked`).
    """
    assert state.place is not None, "it is a member of a group"
    proof, place = state.proof, state.place
    for event in said:
        with suppress(ProofError):  # chosen by two, or of a step that nobody counts any more
            proof = apply(proof, event)
    heard = frozenset(said)
    place = replace(place, said=tuple(one for one in place.said if one not in heard))
    state = replace(state, proof=proof, place=place, heard=state.heard + len(said))
    return state if next_step is None else _together(state, next_step)


def adopt(state: Declared) -> Declared:
    """This member can have moved what the group has chosen."""
    assert state.place is not None, "it is a member of a group"
    if state.place.has == state.proof.prefix:
        return state
    place = replace(state.place, has=state.proof.prefix)
    return replace(state, place=place, kinds=frozenset())


def _together(state: Declared, step: int) -> Declared:
    """All members are about to begin a step."""
    proof = state.proof
    for member in sorted(proof.members):
        proof = apply(proof, Asked(proof.epoch, member, step))
    state = replace(state, proof=proof)
    place = state.place
    assert place is not None, "it is a member of a group"
    if place.stopped and proof.phase is not Phase.FELL_BACK and not place.said:
        said = Changed(*_by(state), step, place.stopped)
        return replace(state, place=replace(place, said=(said,)))
    return state


def _say(state: Declared, event: Event) -> Declared:
    """Alone it counts at once."""
    place = state.place
    if place is None:
        return replace(state, proof=apply(state.proof, event))
    if not place.together or place.stopped or event in place.said:
        return state
    equal = isinstance(event, Compared) and event.difference is None
    if equal and state.proof.phase is not Phase.VERIFYING:
        return state  # no other member needs to hear it
    return replace(state, place=replace(place, said=(*place.said, event)))


def _stop(state: Declared, why: str) -> Declared:
    place = state.place
    if place is None or place.stopped:
        return state
    return replace(state, place=replace(place, stopped=why))


def _by(state: Declared) -> tuple[int, str]:
    return (_EPOCH, _MEMBER) if state.place is None else (state.proof.epoch, state.place.member)


def _at(state: Declared, step: int | None) -> int:
    return state.step if step is None else step
