"""Members that agree: the same mode for all, whoever dies, comes, or hears less than the others.

Members are simulated with the state that each has in truth. In each round all say what they found,
and all hear it in the same order, unless the group breaks: then some have heard it and others not,
and a new group is formed of those who are left and those who come. The model knows which prefix is
right, who compared it, and what was granted to whom.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition import declared, words
from penstock.data.partition.declared import Declared, Kind
from penstock.data.partition.errors import ProofError
from penstock.data.partition.events import Compared, Recorded
from penstock.data.partition.proof import Mode, Settings

SETTINGS = Settings(recorded_steps=2, compared_steps=3, compare_every=5, ahead=1, max_recordings=3)
KIND = Kind("here", "8")
CHANCES = st.integers(0, 2**32)


class Group:
    """Members that exchange what they say at the end of each step, as a session's do."""

    def __init__(self, members: int = 2) -> None:
        self.states: dict[str, Declared] = {}
        self.named = 0
        self.step = 0
        self.modes: dict[str, Mode] = {}
        for _ in range(members):
            self.come()
        self.form()

    def come(self) -> str:
        self.named += 1
        name = f"m{self.named}"
        self.states[name] = declared.join(name, SETTINGS)
        return name

    def form(self) -> None:
        """A group of those who are there."""
        for name in self.states:
            self.states[name] = declared.leave(self.states[name], name)

    def begin(self, kinds: dict[str, Kind | None] | None = None) -> dict[str, Mode]:
        """All begin the step; ``kinds``: of what came for each."""
        for name in sorted(self.states):
            state = declared.begin_step(self.states[name], self.step)
            kind = KIND if kinds is None else kinds.get(name)
            self.states[name], self.modes[name] = declared.ask(state, kind)
        return {name: self.modes[name] for name in self.states}

    def find(self, name: str, what: str = "well") -> None:
        """A member finds something in its part of the step."""
        state, mode = self.states[name], self.modes[name]
        if what == "changed":
            state = declared.give_up(state, f"{name} wrote a weight")
        elif mode is Mode.RECORD:
            state = declared.record(state, "other" if what == "diverges" else "alike")
        elif mode is Mode.COMPARE:
            difference = "bit 3" if what == "differs" else None
            state = declared.compare(state, KIND, difference)
        elif mode is Mode.PARTITIONED and what == "diverges":
            state = declared.diverge(state, "mul where div was due", self.step)
        self.states[name] = state

    def round(self, hearers: list[str] | None = None) -> None:
        """All say what they found; ``hearers``: who hears it, if the group breaks in it."""
        formed = {
            name: one.place is not None and one.place.together for name, one in self.states.items()
        }
        assert len(set(formed.values())) == 1, "all are in the group, or none is yet"
        hear = list(self.states) if hearers is None else hearers
        if not all(formed.values()):
            stands = {
                name: words.standing_read(words.standing_written(declared.standing(one)))
                for name, one in self.states.items()
            }
            for name in hear:
                self.states[name] = declared.regroup(self.states[name], stands, self.step + 1)
        else:
            said = [
                words.read(words.written(event))
                for name in sorted(self.states)
                for event in self.states[name].place.said  # type: ignore[union-attr]  # all are members
            ]
            for name in hear:
                self.states[name] = declared.hear(self.states[name], said, self.step + 1)
        for name in hear:
            self.adopt(name)
        if hearers is None:
            first = min(self.states)
            state = self.states[first]
            if state.proof.recorded_alike:
                self.states[first] = declared.choose(state, "prefix", "the cheapest cut")
        self.step += 1

    def adopt(self, name: str) -> None:
        if self.states[name].phase in (Phase.VERIFYING, Phase.ON):
            self.states[name] = declared.adopt(self.states[name])

    def run(self, steps: int) -> list[set[Mode]]:
        found = []
        for _ in range(steps):
            found.append(set(self.begin().values()))
            for name in self.states:
                self.find(name)
            self.round()
        return found

    def reach(self, phase: Phase) -> None:
        for _ in range(50):
            if {one.phase for one in self.states.values()} == {phase}:
                return
            self.run(1)
        raise AssertionError(f"{phase} was not reached")


def test_all_switch_at_the_same_step() -> None:
    group = Group(3)
    modes = group.run(20)
    assert all(len(one) == 1 for one in modes)
    assert [one for (one,) in modes] == [
        Mode.RAW,  # nobody knows yet how the others stand
        *[Mode.RECORD] * 2,
        Mode.RAW,  # it is chosen what moves
        *[Mode.COMPARE] * 4,
        *[Mode.PARTITIONED] * 4,
        Mode.COMPARE,
        *[Mode.PARTITIONED] * 4,
        Mode.COMPARE,
        *[Mode.PARTITIONED] * 2,
    ]


def test_a_healed_member_goes_on_as_the_group_is() -> None:
    group = Group(2)
    group.reach(Phase.ON)
    group.run(3)
    group.step -= 2  # a checkpoint was restored
    group.form()
    assert group.run(3) == [{Mode.RAW}, {Mode.COMPARE}, {Mode.PARTITIONED}]


def test_a_new_member_sends_all_back_to_the_raw_batch_in_the_same_step() -> None:
    group = Group(2)
    group.reach(Phase.ON)
    group.run(3)
    group.come()
    group.form()
    modes = group.run(12)
    assert all(len(one) == 1 for one in modes)
    assert modes[:3] == [{Mode.RAW}, {Mode.RECORD}, {Mode.RECORD}]
    assert {Mode.PARTITIONED} in modes[4:], "all have compared again"


@pytest.mark.parametrize("what", ["changed", "differs"])
def test_what_one_member_finds_ends_it_for_all_at_the_next_step(what: str) -> None:
    group = Group(3)
    group.reach(Phase.ON)
    group.run(1)
    while group.begin() and set(group.modes.values()) != {Mode.COMPARE}:
        group.round()
    group.find("m2", what)
    assert group.states["m2"].phase is Phase.FELL_BACK, "it does not wait for the others"
    group.round()
    assert {one.phase for one in group.states.values()} == {Phase.FELL_BACK}
    assert group.run(5) == [{Mode.RAW}] * 5
    assert "of m2" in group.states["m1"].why


def test_who_stopped_in_a_group_that_broke_says_so_in_the_next_one() -> None:
    group = Group(2)
    group.reach(Phase.ON)
    group.begin()
    group.find("m1", "changed")
    group.form()  # it broke before anybody heard
    group.run(2)
    assert {one.phase for one in group.states.values()} == {Phase.FELL_BACK}
    assert "m1 wrote a weight" in group.states["m2"].why


def test_who_heard_more_of_a_group_that_broke_is_believed() -> None:
    group = Group(2)
    group.reach(Phase.VERIFYING)
    group.run(2)
    group.begin()
    for name in group.states:
        group.find(name)
    group.round(hearers=["m1"])
    assert group.states["m1"].phase is Phase.ON
    assert group.states["m2"].phase is Phase.VERIFYING
    group.form()
    group.run(1)
    assert {one.phase for one in group.states.values()} == {Phase.ON}


@pytest.mark.parametrize(
    "word",
    [
        [], 7, ["Grouped", 1, {}, 0], ["Asked", 1, "m"], ["Asked", "1", "m", 2],
        ["Asked", True, "m", 2], ["Compared", 1, "m", 2, 3],
    ],
)  # fmt: skip
def test_what_no_member_says_is_refused(word: Any) -> None:
    with pytest.raises(ProofError):
        words.read(word)
    with pytest.raises(ProofError):
        words.standing_read(word)


def test_what_is_written_is_read() -> None:
    for event in (Recorded(1, "m", 2, "s"), Compared(1, "m", 2), Compared(1, "m", 2, "a bit")):
        assert words.read(words.written(event)) == event


class Members(RuleBasedStateMachine):
    """Any order of steps, kills and joins."""

    @initialize()
    def begin(self) -> None:
        self.group = Group(2)
        self.compared: dict[tuple[int, str], set[int]] = {}
        self.proven = False  # all members of some epoch have compared enough
        self.spoilt: set[str] = set()  # members that have found something

    @rule(
        seed=CHANCES,
        trouble=st.sampled_from(["well"] * 14 + ["differs", "diverges", "changed"]),
        breaks=st.sampled_from([False] * 5 + [True]),
    )
    def run_a_step(self, seed: int, trouble: str, breaks: bool) -> None:
        self.one(random.Random(seed), trouble, breaks=breaks)

    @rule(steps=st.integers(1, 12))
    def run_in_step(self, steps: int) -> None:
        for _ in range(steps):
            self.one(None, "well", breaks=False)

    def one(self, chance: random.Random | None, trouble: str, *, breaks: bool) -> None:
        group = self.group
        names = sorted(group.states)
        came = {name: KIND if chance is None or chance.random() < 0.7 else None for name in names}
        modes = group.begin(dict(came))
        self.judge(modes, came)
        hit = chance.choice(names) if chance is not None else ""
        for name in names:
            what = trouble if name == hit else "well"
            before = group.states[name]
            group.find(name, what)
            after = group.states[name]
            if modes[name] is Mode.COMPARE and what != "differs":
                place = after.place
                if place is not None and place.together and not place.stopped:
                    key = (before.proof.epoch, name)
                    self.compared.setdefault(key, set()).add(group.step)
            if after.place is not None and after.place.stopped:
                self.spoilt.add(name)
        epochs = {group.states[name].proof.epoch for name in names}
        self.proven |= all(
            len(self.compared.get((epoch, name), ())) >= SETTINGS.compared_steps
            for name in names
            for epoch in epochs
        )
        if not breaks or chance is None:
            group.round()
        else:
            hearers = chance.sample(names, chance.randint(0, len(names) - 1))
            group.round(hearers)
            dead = chance.sample(names, chance.randint(0, len(names) - 1))
            for name in dead:
                del group.states[name]
            for _ in range(chance.randint(0, 2) if chance.random() < 0.6 else 0):
                group.come()
            group.step = max(0, group.step - chance.randint(0, 3))
            group.form()

    def judge(self, modes: dict[str, Mode], came: dict[str, Kind | None]) -> None:
        states = self.group.states
        active = {
            name: mode
            for name, mode in modes.items()
            if not states[name].place.stopped and came[name]  # type: ignore[union-attr]  # all are members
        }
        using = {name for name, mode in active.items() if mode is Mode.PARTITIONED}
        if not using:
            return
        assert not any(mode in (Mode.RAW, Mode.RECORD) for mode in active.values()), (
            "all use what came, unless they have none, or hold it against their own"
        )
        assert self.proven
        assert len({states[name].proof.epoch for name in states}) == 1
        for name in using:
            state = states[name]
            assert state.place is not None
            assert name not in self.spoilt
            assert state.place.has == state.proof.prefix == "prefix"
            assert KIND in state.kinds, "it was compared here"
        granted = {states[name].proof.mode(self.group.step) for name in states}
        assert len(granted) == 1, "granted alike"

    @invariant()
    def replicas_are_equal(self) -> None:
        states = list(self.group.states.values())
        for one in states:
            one.proof.check_invariants()
        if all(one.place is not None and one.place.together for one in states):
            assert len({repr(one.proof) for one in states}) == 1

    @invariant()
    def what_was_found_ends_it_for_all_in_the_next_round(self) -> None:
        """Who lives and has found something has fallen back, and so have those who heard."""
        for name, state in self.group.states.items():
            if name in self.spoilt:
                assert state.phase is Phase.FELL_BACK

    @invariant()
    def who_is_on_in_a_group_has_all_members_prefix(self) -> None:
        states = self.group.states
        if not all(one.place is not None and one.place.together for one in states.values()):
            return
        phases = {one.proof.phase for one in states.values()}
        assert len(phases) == 1
        if phases == {Phase.ON}:
            assert all(
                one.place is not None and one.place.has == one.proof.prefix
                for one in states.values()
            )


Members.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestMembers = Members.TestCase
