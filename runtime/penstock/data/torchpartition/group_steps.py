"""The steps of a loader in a process that trains with others: all use what came, or none does.

Each member records and compares for itself, and says what it finds; all hear it in the same order,
and so have the same proof (`penstock.data.partition.declared`, as a member of a group). What moves
is chosen by the first member, by its own figures; the others move the same calls, or say why they
cannot, and then nothing moves anywhere.

How members exchange what they say is another's: a session's do it at the end of each step
(`says`, `hears`), and `penstock.data.torchpartition.group_log` has those of PyTorch's own groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition import declared
from penstock.data.partition.errors import ProofError
from penstock.data.partition.words import read, standing_read, standing_written, written
from penstock.data.torchpartition.loader_steps import LoaderSteps
from penstock.data.torchpartition.observation.recording import Recording, merged
from penstock.data.torchpartition.plan import Plan, plan

_STANDS: Final = "stands"
_SAYS: Final = "says"


class GroupSteps(LoaderSteps):
    """See the module's docstring."""

    MOST_AHEAD = 1
    """What is said of a step has to come while the group still knows how it was run."""

    def __init__(self, name: str) -> None:
        """``name``: of the loader, for people."""
        super().__init__(name)
        self.state = declared.join("")
        self._segment = self.state.segment
        self._group: int | None = None

    def begin_step(self, step: int, group: int, index: int) -> None:
        """The group begins a step.

        Args:
            step: its number, the same for all members.
            group: its number; another one where members came, went, or are who they were no more.
            index: of this member in it.
        """
        if group != self._group:
            for one in self._open.all_over():
                self._end(one)
            self._group = group
            self.state = declared.leave(self.state, str(index))
        self.state = declared.begin_step(self.state, step)

    def says(self) -> list[Any]:
        """What all members are to hear, this one included, once the step is over."""
        self.end_step()
        place = self.state.place
        assert place is not None, "it is a member of a group"
        if not place.together:
            return [_STANDS, standing_written(declared.standing(self.state))]
        return [_SAYS, *map(written, place.said)]

    def hears(self, words: Sequence[Any], next_step: int) -> None:
        """What all members have said, by their index; they begin that step next."""
        place = self.state.place
        assert place is not None, "it is a member of a group"
        try:
            if not place.together:
                if not all(word and word[0] == _STANDS for word in words):
                    return  # somebody has no such loader yet
                standings = {str(at): standing_read(word[1]) for at, word in enumerate(words)}
                self._tell(declared.regroup(self.state, standings, next_step))
            else:
                said = [
                    read(event) for word in words if word and word[0] == _SAYS for event in word[1:]
                ]
                self._tell(declared.hear(self.state, said, next_step))
        except ProofError as error:
            self.give_up(f"a member of the group says what none can: {error}")
            return
        self._follow()

    def _follow(self) -> None:
        """Do what the group has agreed on."""
        place, proof = self.state.place, self.state.proof
        assert place is not None, "it is a member of a group"
        if place.stopped:
            return
        if proof.recorded_alike and place.member == min(proof.members, key=int):
            self._choose_for_all()
        elif proof.phase in (Phase.VERIFYING, Phase.ON) and place.has != proof.prefix:
            if not self._has(proof.prefix):
                if not self._recordings:
                    self.give_up("the group has chosen what moves, and here nothing is recorded")
                    return
                self._choose(_places_in(proof.prefix))
            if self._sent is not None:
                self.state = declared.adopt(self.state)

    def _choose_for_all(self) -> None:
        """Say what is to move."""
        if self.plan is not None and self._sent is not None:
            known = self.plan.recording.signature(portable=True).digest
            if known == self._recordings[0].signature(portable=True).digest:
                self.state = declared.choose(self.state, _named(self.plan), self.plan.why)
                return
        planned = plan(merged(self._recordings))
        prefix = _named(planned) if planned.moved else ""
        self.state = declared.choose(self.state, prefix, planned.why)

    def _has(self, prefix: str) -> bool:
        """Whether it is what this member has had moved before."""
        return self.plan is not None and self._sent is not None and _named(self.plan) == prefix

    def _signature(self, found: Recording) -> str:
        """Equal for recordings that are alike, in all processes."""
        own = [one.signature().digest for one in self._recordings]
        unlike = own.index(found.signature().digest)
        return f"{found.signature(portable=True).digest}:{unlike}"


def _named(planned: Plan) -> str:
    """What moves, as all members name it."""
    digest = planned.recording.signature(portable=True).digest
    return f"{digest}:{','.join(map(str, planned.moved))}"


def _places_in(prefix: str) -> tuple[int, ...]:
    places = prefix.partition(":")[2].split(",")
    if not all(one.isdecimal() for one in places):
        raise ProofError(f"{prefix[:100]}: is no prefix of a group")
    return tuple(map(int, places))
