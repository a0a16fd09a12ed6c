"""The proof under any order of events: kills, joins, restores, late and lost reports.

Members are simulated: each asks, runs steps in the mode that it was told, and reports when it
likes, or never. The model knows what the proof cannot: whether a prefix is right.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.base.enums import PartitionPhase as Phase
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
from penstock.data.partition.proof import Mode, Proof, Settings, apply

SETTINGS = Settings(recorded_steps=2, compared_steps=3, compare_every=5, ahead=2, max_recordings=3)
CHANCES = st.integers(0, 2**32)


class Group(RuleBasedStateMachine):
    """A group of members round one proof."""

    @initialize()
    def begin(self) -> None:
        self.proof = Proof(SETTINGS)
        self.names = 0
        self.at: dict[str, int] = {}  # the next step of each member
        self.has: dict[str, str] = {}  # the prefix that each member has
        self.late: list[Event] = []  # what was said and has not arrived yet
        self.granted: dict[tuple[int, int], Mode] = {}
        self.spoilt = False
        self.proven: set[str] = set()  # prefixes that all members of one epoch have compared
        self.equal: dict[tuple[int, str], set[int]] = {}
        self.regroup(first=0)

    def regroup(self, first: int, joining: int = 1) -> None:
        for _ in range(joining):
            self.names += 1
            self.has[f"m{self.names}"] = ""
        members = {name: self.has.get(name, "") for name in self.has}
        self.at = dict.fromkeys(members, first)
        before = self.proof
        self.tell(Grouped(before.epoch + 1, members, first))
        together = all(prefix == before.prefix for prefix in members.values())
        if before.phase is Phase.FELL_BACK or (
            before.phase in (Phase.VERIFYING, Phase.ON) and together
        ):
            assert self.proof.phase is before.phase, "members start as the group is"
        else:
            assert self.proof.phase is Phase.RECORDING, "or all go back to the raw batch"
        if self.proof.phase is not Phase.ON:
            self.ask(next(iter(members)), first)
            assert self.proof.mode(first) is not Mode.PARTITIONED

    def tell(self, event: Event) -> None:
        before = self.proof
        self.proof = apply(before, event)
        if event.epoch < before.epoch:
            assert self.proof == before, "what is said of an earlier epoch changes nothing"

    def ask(self, member: str, step: int) -> None:
        horizon = self.proof.horizon
        self.tell(Asked(self.proof.epoch, member, step))
        for one in range(horizon, self.proof.horizon):
            mode = self.proof.mode(one)
            if mode is Mode.PARTITIONED:
                assert not self.spoilt, "nothing is used after a difference"
                assert self.proof.prefix in self.proven
                assert {self.has[name] for name in self.at} == {self.proof.prefix}

    @rule(seed=CHANCES, trouble=st.sampled_from(["none"] * 12 + ["differs", "diverges", "changes"]))
    def run_a_step(self, seed: int, trouble: str) -> None:
        chance = random.Random(seed)
        self.run_one(chance.choice(sorted(self.at)), trouble, misses=chance.random() < 0.1)

    def run_one(self, member: str, trouble: str, *, misses: bool = False) -> None:
        step, epoch = self.at[member], self.proof.epoch
        self.ask(member, step)
        mode = self.proof.mode(step)
        assert mode is not None
        assert self.granted.setdefault((epoch, step), mode) is mode, "in the same mode for all"
        self.at[member] = step + 1
        if mode is Mode.RECORD:
            other = trouble == "diverges"
            self.late.append(Recorded(epoch, member, step, "other" if other else "alike"))
        elif trouble == "changes":
            self.late.append(Changed(epoch, member, step, "a weight was written"))
        elif mode is Mode.COMPARE and trouble == "differs":
            self.late.append(Compared(epoch, member, step, "bit 3 of the first tensor"))
        elif trouble == "diverges" and mode in (Mode.COMPARE, Mode.PARTITIONED):
            self.late.append(Diverged(epoch, member, step, "mul where div was due"))
        elif mode is Mode.COMPARE and misses:
            self.late.append(NotCompared(epoch, member, step))
        elif mode is Mode.COMPARE:
            self.late.append(Compared(epoch, member, step))

    @rule(seed=CHANCES, twice=st.booleans())
    def hear_what_was_said(self, seed: int, twice: bool) -> None:
        if self.late:
            self.hear(seed, twice)

    def hear(self, seed: int, twice: bool) -> None:
        event = self.late.pop(random.Random(seed).randrange(len(self.late)))
        current = event.epoch == self.proof.epoch
        was = self.proof.phase
        for _ in range(1 + twice):
            self.tell(event)
        if not current or was is Phase.FELL_BACK:
            return
        if isinstance(event, Changed) or (isinstance(event, Compared) and event.difference):
            self.spoilt = True
            assert self.proof.phase is Phase.FELL_BACK
            assert str(event.step) in self.proof.why
        elif isinstance(event, Compared):
            self.equal.setdefault((event.epoch, event.member), set()).add(event.step)
            if all(
                len(self.equal.get((event.epoch, name), ())) >= SETTINGS.compared_steps
                for name in self.at
            ):
                self.proven.add(self.proof.prefix)

    @rule(steps=st.integers(1, 12))
    def run_in_step(self, steps: int) -> None:
        """All goes well for a while, so that there is something to lose."""
        for _ in range(steps):
            behind = min(self.at.values())
            for member in [name for name, at in self.at.items() if at == behind]:
                self.run_one(member, "none")
            while self.late:
                self.hear(0, twice=False)
            self.choose(moves=True)

    @rule(moves=st.sampled_from([True] * 9 + [False]))
    def choose(self, moves: bool) -> None:
        if not self.proof.recorded_alike:
            return
        prefix = f"prefix {self.proof.epoch}" if moves else ""
        self.tell(Chosen(self.proof.epoch, prefix, "the cheapest cut"))
        if moves:
            self.has = dict.fromkeys(self.has, prefix)
        else:
            self.spoilt = True

    @rule(seed=CHANCES, joining=st.integers(0, 2), handed_over=st.booleans())
    def members_change(self, seed: int, joining: int, handed_over: bool) -> None:
        """Some die, some come; a new one may have been handed the group's prefix."""
        chance = random.Random(seed)
        names = sorted(self.at)
        first = chance.randint(max(0, min(self.at.values()) - 3), max(self.at.values()))
        for name in chance.sample(names, chance.randint(0, len(names) - 1)):
            del self.has[name]
        if handed_over:
            for _ in range(joining):
                self.names += 1
                self.has[f"m{self.names}"] = self.proof.prefix
            joining = 0
        self.regroup(first, joining)

    @invariant()
    def what_is_guaranteed_holds(self) -> None:
        self.proof.check_invariants()
        for (epoch, step), mode in self.granted.items():
            if epoch == self.proof.epoch and step >= self.proof.segments[0].first_step:
                assert self.proof.mode(step) is mode, "granted steps keep their mode"


Group.TestCase.settings = settings(max_examples=120, stateful_step_count=60)
TestGroup = Group.TestCase
