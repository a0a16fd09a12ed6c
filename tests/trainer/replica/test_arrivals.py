"""The processes of a replica group do alike or not at all, whoever dies at whatever moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.trainer.group.division import Division
from penstock.trainer.replica.arrivals import (
    DivergedError,
    Word,
    arrival,
    common_steps,
    fence,
    gather,
)

PARTS = [Division(0, 2), Division(0, 2, speaks=False), Division(1, 2), Division(1, 2, speaks=False)]
"""Two shards of data, each on two processes of tensor parallelism."""


def words(*, steps: Sequence[int] = (3, 3, 3, 3), leave: int | None = None) -> list[dict[str, Any]]:
    return [
        arrival(
            division,
            step,
            [(4, b"ab" if division.part == 0 else b"c"), (5, b"d" if division.part == 0 else b"")],
            {4: 0.25, 5: 0.5 if division.part == 0 else 0.0},
            leave=number == leave,
        )
        for number, (division, step) in enumerate(zip(PARTS, steps, strict=True))
    ]


def test_a_slot_holds_the_samples_of_all_parts_once() -> None:
    arrived = gather(words())
    assert arrived.consumed == [(4, b"abc"), (5, b"d")]
    assert arrived.losses == {4: 0.5, 5: 0.5}
    assert not arrived.leave


def test_what_any_process_cannot_write_is_known_to_the_first() -> None:
    told = [
        arrival(division, 3, [], {}, leave=False, unwritten=unwritten)
        for division, unwritten in zip(
            PARTS, [{}, {"A": "b"}, {"A": "c", "B": "d"}, {}], strict=True
        )
    ]
    assert gather(told).unwritten == {"A": "b", "B": "d"}
    assert gather(words()).unwritten == {}


def test_one_process_that_was_asked_to_go_takes_the_replica_group_along() -> None:
    assert gather(words(leave=3)).leave


def test_processes_that_do_different_things_are_named() -> None:
    with pytest.raises(DivergedError, match=r"at steps \[3, 3, 2, 3\]"):
        gather(words(steps=(3, 3, 2, 3)))
    told = words()
    told[1]["slots"] = [4]
    with pytest.raises(DivergedError, match=r"computed slots .*\[4\]"):
        gather(told)


def test_a_checkpoint_counts_where_every_process_has_its_part() -> None:
    assert common_steps(
        [{"saved": [20, 40, 60]}, {"saved": [60, 40]}, {"saved": [40, 20, 60]}]
    ) == [
        60,
        40,
    ]
    assert common_steps([{"saved": [20]}, {"saved": []}]) == []


# ---------------------------------------------------------------------- a model of a whole job

PROCESSES = 2
STEPS = 25
SAMPLES_PER_SLOT = 3
SLOTS = 4
Fence = Callable[[Sequence[Word]], str]


@dataclass
class Process:
    """What one process's model has seen, sample by sample."""

    division: Division
    history: list[int] = field(default_factory=list)
    committed: int = 0


@dataclass
class Group:
    """The processes of one replica group."""

    processes: list[Process]
    alive: bool = True

    @property
    def committed(self) -> int:
        return self.processes[0].committed


class UnequalError(Exception):
    """Two processes of one replica group have models of different steps."""


def new_group() -> Group:
    return Group([Process(Division(part, PROCESSES)) for part in range(PROCESSES)])


def heal(groups: list[Group]) -> None:
    """As a group forms: the model of the furthest goes to all, part by part."""
    source = max((group for group in groups if group.alive), key=lambda each: each.committed)
    for place, group in enumerate(groups):
        if group is source:
            continue
        if not group.alive:
            groups[place] = new_group()
        for mine, theirs in zip(groups[place].processes, source.processes, strict=True):
            mine.history, mine.committed = list(theirs.history), theirs.committed


def try_step(groups: list[Group], chance: random.Random, judge: Fence) -> None:
    """One step of all groups, of which one may die before the sums, in them, or after."""
    step = groups[0].committed
    dies_at = chance.choice(["never", "never", "computing", "sums", "commit"])
    victim = chance.choice(groups)
    shares = [range(place, SLOTS, len(groups)) for place in range(len(groups))]
    consumed: list[tuple[int, bytes]] = []
    for group, share in zip(groups, shares, strict=True):
        told = []
        for process in group.processes:
            cut = process.division.cut(SAMPLES_PER_SLOT)
            parts = [(slot, bytes(range(cut.start, cut.start + cut.counted))) for slot in share]
            told.append(arrival(process.division, step, parts, {}, leave=False))
        consumed += gather(told).consumed
    if dies_at == "computing":
        victim.alive = False
        return  # the others hear of it when they agree: nobody sums
    samples = [
        (step * SLOTS + slot) * SAMPLES_PER_SLOT + at for slot, part in consumed for at in part
    ]
    victim.alive = dies_at == "never"
    for group in groups:
        if group is victim and not group.alive and dies_at == "sums":
            continue
        torn = not victim.alive and dies_at == "sums"
        heard = [{"broken": "lost" if torn and chance.random() < 0.5 else ""} for _ in range(2)]
        for own, process in zip(heard, group.processes, strict=True):
            if not judge([own, *heard]):
                process.history += samples
                process.committed = step + 1
        if group.alive and len({process.committed for process in group.processes}) > 1:
            raise UnequalError


def train(groups: int, seed: int, judge: Fence) -> list[Group]:
    chance = random.Random(seed)
    job = [new_group() for _ in range(groups)]
    while min(group.committed for group in job) < STEPS:
        try_step(job, chance, judge)
        if not any(group.alive for group in job):
            raise AssertionError("one group dies at a time")
        if any(not group.alive for group in job) or len({each.committed for each in job}) > 1:
            heal(job)
    return job


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_no_sample_is_lost_or_repeated_whoever_dies(groups: int) -> None:
    for seed in range(10):
        for group in train(groups, seed, fence):
            for process in group.processes:
                seen = Counter(process.history)
                wanted = range(process.committed * SLOTS * SAMPLES_PER_SLOT)
                assert seen == Counter(wanted), f"seed {seed}"


def test_without_the_fence_they_diverge() -> None:
    def own_word_alone(heard: Sequence[Word]) -> str:
        return fence(heard[:1])

    def train_often() -> None:
        for seed in range(30):
            train(3, seed, own_word_alone)

    with pytest.raises(UnequalError):
        train_often()


def test_the_fence_says_which_process_has_no_sum() -> None:
    assert fence([{"broken": ""}, {"broken": ""}]) == ""
    assert fence([{"broken": ""}, {"broken": "reset"}]) == (
        "process 1 of the replica group has no sum: reset"
    )
