"""Programs that train together: what comes is used by all from the same step on, or by none."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition import words
from penstock.data.partition.events import Changed
from penstock.data.partition.proof import Mode
from penstock.data.torchpartition.group_log import AHEAD, EventLog, LoggedSteps
from penstock.data.torchpartition.group_steps import GroupSteps
from penstock.data.torchpartition.loader_steps import LoaderSteps
from tests.data.torchpartition.training import (
    Training,
    encoder,
    everything_is_worth_it,
    moved_names,
    normal,
    pairs,
)

STEPS = 12


@pytest.fixture(autouse=True)
def _everything_is_worth_it() -> Iterator[None]:
    with everything_is_worth_it():
        yield


def made(seed: int, more: bool = False) -> Any:
    """A program that draws nothing, so that several may take turns in one process."""
    torch.manual_seed(seed)
    encode, head = encoder(), nn.Linear(16, 5)
    optimizer = torch.optim.AdamW(head.parameters(), 0.01)

    def step(batch: Any) -> torch.Tensor:
        pixels, labels = batch
        with torch.no_grad():
            hidden = encode(normal(pixels))
            if more:
                hidden = hidden * 2
        loss = nn.functional.cross_entropy(head(hidden), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # as PyTorch has it
        optimizer.step()
        return loss

    step.encode = encode  # type: ignore[attr-defined]  # as PyTorch has it
    return step


@dataclass
class Member:
    """One process of a group, and what it did."""

    loader: LoaderSteps
    seed: int = 1
    more: bool = False
    modes: list[Mode | None] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.step = made(self.seed, self.more)
        self.alone = made(self.seed, self.more)
        self.training = Training(lambda: self.step)
        self.training.loader = self.loader

    def epoch(self, batches: list[Any]) -> Iterator[None]:
        own_batches = copy.deepcopy(batches)
        for given, own in zip(self.training.delivered(batches), own_batches, strict=True):
            state, at = self.loader.state, self.loader.state.step
            assert state.place is not None
            self.modes.append(state.proof.mode(at) if state.place.together else None)
            loss, known = self.step(given).detach(), self.alone(own).detach()
            assert torch.equal(loss, known), f"step {len(self.losses)}"
            self.losses.append(loss)
            yield


def data(seed: int) -> list[list[Any]]:
    torch.manual_seed(seed)
    return [[pairs() for _ in range(STEPS)] for _ in range(8)]


class Session:
    """Members that exchange what they say at the end of each step."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.group = self.step = 0

    def regroup(self, *members: Member) -> None:
        self.members = list(members)
        self.group += 1

    def run(self, epochs: int = 1) -> None:
        for number in range(epochs):
            its = [one.epoch(data(at + 10 * number)[0]) for at, one in enumerate(self.members)]
            for _ in range(STEPS):
                for index, one in enumerate(self.members):
                    self.loader(one).begin_step(self.step, self.group, index)
                    next(its[index])
                said = [self.loader(one).says() for one in self.members]
                self.step += 1
                for one in self.members:
                    self.loader(one).hears(said, self.step)
            assert all(next(steps, "over") == "over" for steps in its)

    @staticmethod
    def loader(one: Member) -> GroupSteps:
        assert isinstance(one.loader, GroupSteps)
        return one.loader


def session(count: int = 2, **others: Any) -> Session:
    members = [Member(GroupSteps("the loader")) for _ in range(count - 1)]
    return Session(*members, Member(GroupSteps("the loader"), **others))


def test_members_record_compare_and_use_at_the_same_steps() -> None:
    group = session()
    group.run(4)
    one, other = group.members
    assert one.modes == other.modes
    assert Mode.PARTITIONED in one.modes
    assert moved_names(one.loader) == moved_names(other.loader)
    assert one.loader.moved == other.loader.moved == one.modes.count(Mode.PARTITIONED)


def test_what_the_first_member_chooses_moves_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    group = session()
    group.run(1)
    one, other = group.members
    assert one.loader.plan is not None
    assert other.loader.plan is not None
    assert one.loader.plan.moved == other.loader.plan.moved
    assert "Verifying" == one.loader.state.phase.value == other.loader.state.phase.value


def test_members_whose_steps_are_not_alike_move_nothing() -> None:
    group = session(more=True)
    group.run(3)
    for one in group.members:
        assert one.loader.state.phase is Phase.FELL_BACK
        assert "called other things" in one.loader.state.why


def test_a_member_that_changes_its_encoder_has_all_go_on_as_written() -> None:
    group = session()
    group.run(3)
    one, other = group.members
    assert one.loader.state.phase is Phase.ON
    for step in (other.step, other.alone):
        with torch.no_grad():
            step.encode[0].weight.mul_(0.5)
    group.run(1)
    assert {one.loader.state.phase, other.loader.state.phase} == {Phase.FELL_BACK}
    [note] = one.loader.notes().values()
    assert "of 1: " in note.why


def test_who_joins_sends_all_back_and_all_move_again() -> None:
    group = session()
    group.run(3)
    one, other = group.members
    sent = one.loader._sent
    new = Member(GroupSteps("the loader"))
    group.regroup(one, other, new)
    group.run(4)
    assert one.modes[-4 * STEPS :] == other.modes[-4 * STEPS :] == new.modes
    assert new.modes[:2] == [None, Mode.RECORD]
    assert new.modes[-1] is Mode.PARTITIONED
    assert one.loader._sent is sent, "it has it moved already"


def test_who_is_left_goes_on_as_the_group_was() -> None:
    group = session(3)
    group.run(3)
    one, other, _ = group.members
    group.regroup(other, one)
    group.step -= 5  # a checkpoint was restored
    group.run(1)
    assert one.modes[-STEPS : -STEPS + 3] == [None, Mode.COMPARE, Mode.PARTITIONED]
    assert one.modes[-STEPS:] == other.modes[-STEPS:]


def test_a_member_that_says_what_none_can_ends_it() -> None:
    group = session()
    group.run(1)
    loader = group.loader(group.members[0])
    loader.hears([loader.says(), ["says", ["Asked", "?"]]], group.step + 1)
    assert loader.state.phase is Phase.FELL_BACK
    assert "a member of the group says what none can" in loader.state.why


class Process:
    """One process of a group of PyTorch's."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.kept, self.place, self.of = store, (rank, world), object()

    def group(self) -> Any:
        return self.of

    def rank_and_world(self) -> tuple[int, int]:
        return self.place

    def store(self) -> Any:
        return self.kept

    def name_of(self, loader: str, group: Any) -> str:
        return loader


def logged(store: Any, rank: int, world: int = 2) -> Member:
    members: Any = Process(store, rank, world)
    return Member(LoggedSteps("the loader", members))


def in_turns(members: list[Member], epochs: int = 1) -> None:
    for number in range(epochs):
        its = [one.epoch(data(at + 10 * number)[0]) for at, one in enumerate(members)]
        for _ in range(STEPS):
            for one in its:
                next(one)
        for one in its:
            assert next(one, "over") == "over"


def test_a_group_of_pytorchs_agrees_by_its_store() -> None:
    store = HashStore()
    members = [logged(store, rank) for rank in range(2)]
    in_turns(members, 8)
    one, other = members
    assert one.modes == other.modes
    assert one.modes[-1] is Mode.PARTITIONED
    assert one.loader.moved == other.loader.moved > 0
    assert one.loader.plan is not None
    count = store.add("penstock/partition/the loader/count", 0)
    assert count < 8 * STEPS, "steps are granted several at once"


def test_who_writes_to_its_encoder_ends_it_for_all_after_the_granted_steps() -> None:
    store = HashStore()
    one, other = members = [logged(store, rank) for rank in range(2)]
    in_turns(members, 7)
    assert one.modes[-1] is Mode.PARTITIONED
    for step in (other.step, other.alone):
        with torch.no_grad():
            step.encode[0].weight.mul_(0.5)
    in_turns(members, 3)
    assert one.loader.state.phase is other.loader.state.phase is Phase.FELL_BACK
    assert one.modes[-1] is None, "nobody asks for more"
    assert f"step {7 * STEPS - 1} of 1" in one.loader.state.why


def test_a_loader_that_others_have_not_moves_nothing_and_waits_for_nobody() -> None:
    one = logged(HashStore(), 0)
    in_turns([one], 4)
    assert one.loader.state.phase is Phase.RECORDING
    assert one.loader.moved == 0


def test_a_group_that_is_formed_anew_records_again() -> None:
    members = [logged(HashStore(), rank) for rank in range(2)]
    store = HashStore()
    for one in members:
        its: Any = one.loader
        its._members.kept = store
    in_turns(members, 7)
    assert members[0].modes[-1] is Mode.PARTITIONED
    again = HashStore()
    for one in members:
        its = one.loader
        its._members.kept, its._members.of = again, object()
    in_turns(members, 8)
    after = members[0].modes[-8 * STEPS :]
    assert after[0] is Mode.RECORD
    assert after[-1] is Mode.PARTITIONED
    assert members[0].modes == members[1].modes


def test_a_store_that_does_not_answer_ends_it() -> None:
    class Gone:
        def add(self, key: str, amount: int) -> int:
            raise RuntimeError("connection reset")

    one = logged(Gone(), 0)
    in_turns([one], 2)
    assert one.loader.state.phase is Phase.FELL_BACK
    assert "connection reset" in one.loader.state.why


def test_a_log_has_one_order_for_all() -> None:
    store: Any = HashStore()
    logs = [EventLog(store, "x") for _ in range(2)]
    events = [Changed(1, str(at % 2), at, "why") for at in range(2 * AHEAD)]
    for at, event in enumerate(events):
        logs[at % 2].say(event)
    assert logs[0].hear() == logs[1].hear() == events
    assert logs[0].hear() == []
    assert words.read(words.written(events[0])) == events[0]
