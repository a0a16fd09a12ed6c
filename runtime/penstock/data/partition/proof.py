"""When a group of training processes may rely on a partition: a state machine with no I/O.

Recording: each member records steps; all have to call the same. Verifying: data workers make what
crosses the cut, every member computes it too, on the raw batch and unobserved, and holds one
against the other bit by bit. On: what came is used, but for one step in 1,000, which is compared as
those before. FellBack: the program runs on raw batches, as without any partition, for good.

Guarantees, for any order of events, kills, joins and restores included:

- All members run a step in the same mode. A member begins a step only once it was *granted*, and
  the mode of a granted step changes no more within its membership epoch; every change of phase
  begins with the first step that nobody was granted.
- No step is granted as Partitioned before each member there has the prefix, and all members of one
  epoch have compared the first steps and found all bits equal.
- After a difference, or a change of what the prefix relies on, no step is granted as Partitioned
  any more, and the reason is told, with the step up to which all bits were seen to be equal.
- State belongs to the membership epoch. What is said of an earlier one changes nothing. A new,
  replaced or healed member that has the group's prefix starts as the group is; if one has not, all
  go back to the raw batch with the epoch's first step and record again. A step that is done again
  may be partitioned in one try and raw in the other: bits are the same.

A member may always do more than it was told: run a granted step on the raw batch, which is the
program itself (after `Changed` it has to; and where it has no part of the step, has recorded enough
already, or nothing came for it), or compare one that is Partitioned (as for a shape class that it
has not compared yet).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
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
    Recorded,
    Report,
)

MAX_SEGMENTS: Final = 64
"""Changes of phase that a member may be behind; one that is farther ends the partition."""
_NEVER: Final = -1


class Mode(StrEnum):
    """How a member runs one step.

    Attributes:
        RAW: the program on the raw batch, unobserved.
        RECORD: the same, observed.
        COMPARE: the same, unobserved; what came is held against it and not used.
        PARTITIONED: what came is used.
    """

    RAW = "Raw"
    RECORD = "Record"
    COMPARE = "Compare"
    PARTITIONED = "Partitioned"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a whole job.

    Attributes:
        recorded_steps: that each member records, one after the other.
        compared_steps: that each member compares before anything is used.
        compare_every: afterwards one step in so many is compared.
        ahead: steps that are granted at once; a change of phase comes so much later.
        max_recordings: that were not alike, before it is given up.
        max_divergences: steps that call other things, before it is given up.
    """

    recorded_steps: int = 3
    compared_steps: int = 10
    compare_every: int = 1000
    ahead: int = 4
    max_recordings: int = 3
    max_divergences: int = 3

    def __post_init__(self) -> None:
        """All of them count something."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ProofError(f"{name}: {getattr(self, name)}; must be at least 1")


@dataclass(frozen=True, slots=True)
class Segment:
    """From this step on, until the next segment, steps belong to this phase."""

    first_step: int
    phase: Phase

    def mode(self, step: int, settings: Settings) -> Mode:
        """Of a step in it."""
        if self.phase is Phase.RECORDING:
            return Mode.RECORD
        if self.phase is Phase.VERIFYING:
            return Mode.COMPARE
        if self.phase is Phase.ON:
            place = step - self.first_step
            return Mode.PARTITIONED if place % settings.compare_every else Mode.COMPARE
        return Mode.RAW


@dataclass(frozen=True, slots=True)
class Proof:
    """The state of a group; its mappings are never changed.

    Attributes:
        epoch: of the membership; 0: there is no group yet.
        members: who is there.
        phase: of steps that are not granted yet.
        prefix: digest of what moves; empty: nothing is chosen.
        horizon: the first step that nobody was granted.
        segments: of the granted steps that a member may still be at, and one from the horizon on.
        seen: by member the steps of the last segment that it recorded, with their signatures, or
            compared and found equal, with none.
        asked: by member the last step that it asked for.
        equal_steps: by member the last step that it compared in this epoch and found equal.
        recordings: that were not alike, in all epochs.
        divergences: members and steps that diverged, in all epochs.
        why: of the last change, for people.
    """

    settings: Settings = field(default_factory=Settings)
    epoch: int = 0
    members: frozenset[str] = frozenset()
    phase: Phase = Phase.RECORDING
    prefix: str = ""
    horizon: int = 0
    segments: tuple[Segment, ...] = (Segment(0, Phase.RECORDING),)
    seen: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)
    equal_steps: Mapping[str, int] = field(default_factory=dict)
    recordings: int = 0
    divergences: frozenset[tuple[int, str, int]] = frozenset()
    why: str = "nothing is recorded yet"

    @property
    def recorded_alike(self) -> bool:
        """Whether all members have recorded the same, so that it can be chosen what moves."""
        return self.phase is Phase.RECORDING and self._all_seen(self.settings.recorded_steps)

    def mode(self, step: int) -> Mode | None:
        """How all members run a step; None: it is not granted yet.

        Raises:
            ProofError: all members are past it.
        """
        if step >= self.horizon or not self.members:
            return None
        if step < self.segments[0].first_step:
            raise ProofError(f"step {step}: all members are past it in epoch {self.epoch}")
        segment = next(one for one in reversed(self.segments) if one.first_step <= step)
        return segment.mode(step, self.settings)

    def check_invariants(self) -> None:
        """Assert what is guaranteed of a single state: for tests, after every event."""
        assert self.segments[-1].phase is self.phase
        assert self.segments[-1].first_step <= self.horizon
        assert all(one.first_step < two.first_step for one, two in pairwise(self.segments))
        assert self.prefix or self.phase in (Phase.RECORDING, Phase.FELL_BACK)
        assert self.seen.keys() | self.asked.keys() | self.equal_steps.keys() <= self.members
        assert all(step < self.horizon for step in self.asked.values())
        assert self.recordings <= self.settings.max_recordings
        assert len(self.segments) <= MAX_SEGMENTS + 1
        assert len(self.divergences) <= self.settings.max_divergences

    def _all_seen(self, steps: int) -> bool:
        return bool(self.members) and all(
            len(self.seen.get(member, ())) >= steps for member in self.members
        )


def apply(proof: Proof, event: Event) -> Proof:
    """The state after an event.

    Raises:
        ProofError: the event cannot be of this group, such as a report of a step that nobody was
            granted; nothing has changed. What is merely late is no error.
    """
    if isinstance(event, Grouped):
        return _regroup(proof, event)
    if event.epoch > proof.epoch:
        raise ProofError(f"epoch {event.epoch}: this group is in {proof.epoch}; tell Grouped first")
    if event.epoch < proof.epoch:
        return proof
    if isinstance(event, Chosen):
        return _choose(proof, event)
    if event.member not in proof.members:
        raise ProofError(f"member {event.member}: is not of epoch {proof.epoch}")
    if isinstance(event, Asked):
        return _grant(proof, event)
    if event.step >= proof.horizon:
        raise ProofError(f"step {event.step}: was granted to nobody; {proof.horizon} is the next")
    return _take(proof, event)


def _regroup(proof: Proof, event: Grouped) -> Proof:
    if event.epoch <= proof.epoch:
        return proof
    if not event.members:
        raise ProofError(f"epoch {event.epoch}: has no members; a group has at least one")
    if event.first_step < 0:
        raise ProofError(f"first_step: {event.first_step}; must be at least 0")
    phase, prefix, why = proof.phase, proof.prefix, proof.why
    if phase in (Phase.VERIFYING, Phase.ON):
        others = sorted(name for name, its in event.members.items() if its != prefix)
        if others:
            phase, prefix = Phase.RECORDING, ""
            why = f"{', '.join(others)} came without the group's prefix: all record again"
    elif phase is Phase.RECORDING:
        prefix = ""
    return replace(
        proof,
        epoch=event.epoch,
        members=frozenset(event.members),
        phase=phase,
        prefix=prefix,
        horizon=event.first_step,
        segments=(Segment(event.first_step, phase),),
        seen={},
        asked={},
        equal_steps={},
        why=why,
    )


def _grant(proof: Proof, event: Asked) -> Proof:
    """What was asked for and some steps more; who asks is past all steps before."""
    last = proof.asked.get(event.member, _NEVER)
    if event.step > proof.horizon or event.step < proof.segments[0].first_step:
        raise ProofError(
            f"step {event.step}: {event.member} may ask for {proof.segments[0].first_step} to "
            f"{proof.horizon} in epoch {proof.epoch}"
        )
    asked = {**proof.asked, event.member: max(last, event.step)}
    segments = proof.segments
    if len(asked) == len(proof.members):
        past = min(asked.values())
        while len(segments) > 1 and segments[1].first_step <= past:
            segments = segments[1:]
    horizon = max(proof.horizon, event.step + proof.settings.ahead)
    return replace(proof, asked=asked, segments=segments, horizon=horizon)


def _choose(proof: Proof, event: Chosen) -> Proof:
    if not proof.recorded_alike:
        raise ProofError(
            f"Chosen: the group is {proof.phase} and has not just recorded alike: {proof.why}"
        )
    if not event.prefix:
        return _switch(proof, Phase.FELL_BACK, event.why)
    return _switch(replace(proof, prefix=event.prefix), Phase.VERIFYING, event.why)


def _take(proof: Proof, event: Report) -> Proof:
    """What a member says of a granted step."""
    if proof.phase is Phase.FELL_BACK:
        return proof
    if isinstance(event, Changed):
        return _give_up(proof, event, event.why)
    if isinstance(event, Compared) and event.difference is not None:
        return _give_up(proof, event, f"differs: {event.difference}")
    if event.step < proof.segments[0].first_step:
        return proof  # late, and good news
    mode = proof.mode(event.step)
    if isinstance(event, Recorded):
        wanted = mode is Mode.RECORD
    else:
        wanted = mode in (Mode.COMPARE, Mode.PARTITIONED)
    if not wanted:
        raise ProofError(f"step {event.step}: {type(event).__name__}; it was granted as {mode}")
    if isinstance(event, Diverged):
        return _diverge(proof, event)
    current = event.step >= proof.segments[-1].first_step
    if isinstance(event, Recorded):
        return _record(proof, event) if current else proof
    if isinstance(event, Compared):
        return _compare(proof, event, current=current)
    if current and proof.phase is Phase.VERIFYING:
        why = f"nothing came for {event.member} to compare in step {event.step}: once more"
        return _switch(proof, Phase.VERIFYING, why)
    return proof


def _record(proof: Proof, event: Recorded) -> Proof:
    own = proof.seen.get(event.member, {})
    if len(own) >= proof.settings.recorded_steps and event.signature in own.values():
        return proof  # nothing new
    own = {**own, event.step: event.signature}
    proof = replace(proof, seen={**proof.seen, event.member: own})
    if not proof.recorded_alike:
        return proof
    found = {
        signature: (member, step)
        for member, steps in sorted(proof.seen.items(), reverse=True)
        for step, signature in sorted(steps.items(), reverse=True)
    }
    if len(found) == 1:
        return replace(proof, why="all members have recorded alike")
    (member, step), (other, its) = sorted(found.values())[:2]
    why = f"{other} called other things in step {its} than {member} in step {step}"
    proof = replace(proof, recordings=proof.recordings + 1)
    if proof.recordings >= proof.settings.max_recordings:
        return _switch(proof, Phase.FELL_BACK, f"{why}; {proof.recordings} recordings were unlike")
    return _switch(proof, Phase.RECORDING, f"{why}: all record again")


def _compare(proof: Proof, event: Compared, *, current: bool) -> Proof:
    """All bits were equal."""
    last = max(event.step, proof.equal_steps.get(event.member, _NEVER))
    proof = replace(proof, equal_steps={**proof.equal_steps, event.member: last})
    if not current or proof.phase is not Phase.VERIFYING:
        return proof
    own = {**proof.seen.get(event.member, {}), event.step: ""}
    proof = replace(proof, seen={**proof.seen, event.member: own})
    if not proof._all_seen(proof.settings.compared_steps):
        return proof
    why = f"{proof.settings.compared_steps} steps were equal bit by bit for all members"
    return _switch(proof, Phase.ON, why)


def _diverge(proof: Proof, event: Diverged) -> Proof:
    at = (event.epoch, event.member, event.step)
    if at in proof.divergences:
        return proof
    proof = replace(proof, divergences=proof.divergences | {at})
    if len(proof.divergences) >= proof.settings.max_divergences:
        return _give_up(proof, event, f"{event.why}; {len(proof.divergences)} steps diverged")
    if proof.phase is Phase.VERIFYING:  # a step that diverged is never compared
        return _switch(proof, Phase.VERIFYING, f"step {event.step} diverged: {event.why}")
    return proof


def _give_up(proof: Proof, event: Changed | Compared | Diverged, why: str) -> Proof:
    equal = min((proof.equal_steps.get(one, _NEVER) for one in proof.members), default=_NEVER)
    seen = f"all members were seen equal up to step {equal}" if equal >= 0 else "none was used"
    if equal < 0 and proof.phase is Phase.ON:
        seen = f"not seen equal in epoch {proof.epoch}"
    return _switch(proof, Phase.FELL_BACK, f"step {event.step} of {event.member}: {why} ({seen})")


def _switch(proof: Proof, phase: Phase, why: str) -> Proof:
    """From the horizon on steps belong to this phase."""
    kept = tuple(one for one in proof.segments if one.first_step < proof.horizon)
    if len(kept) >= MAX_SEGMENTS and phase is not Phase.FELL_BACK:
        phase, why = Phase.FELL_BACK, f"a member is {len(kept)} changes behind; the last: {why}"
    segments = (*kept, Segment(proof.horizon, phase))
    return replace(proof, phase=phase, segments=segments, seen={}, why=why)
