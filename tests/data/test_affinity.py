"""Static sharding: for whom a step is, and that nobody waits for that."""

from __future__ import annotations

import heapq
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import Guarantee, Sharding
from penstock.data import Loader
from penstock.data.ledger import Ledger, LedgerOptions
from penstock.data.memory import NO_LIMIT_BYTES, Memory
from penstock.data.protocol import InputOptions
from penstock.data.queue.assignment import assign_static, assign_steps, assign_streams
from penstock.data.queue.batch_queue import BatchQueue, Counts, QueueOptions
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.window.affinity import (
    LEAST_WEIGHT,
    LOAD_BOUND,
    Affinity,
    Maker,
    preference,
    weight_of,
)
from penstock.data.window.reorder_buffer import ReorderBuffer
from penstock.data.window.stream_window import StreamWindow
from tests.data.planes import consumer, end, eventually, spawn

NAMES = tuple("abcdef")
FREE = Memory(NO_LIMIT_BYTES, NO_LIMIT_BYTES)
index = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=5), st.integers())
weights = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([LEAST_WEIGHT, 0.25, 1.0]), min_size=1
)


# ---------------------------------------------------------------------- for whom a step is


@given(st.lists(index, max_size=40), weights, st.randoms())
def test_it_depends_on_the_samples_and_not_on_their_order(
    indices: list[Any], of: dict[str, float], source: Any
) -> None:
    found = preference(indices, of)
    assert sorted(found) == sorted(of), "everybody, once"
    source.shuffle(indices)
    backwards = dict(reversed(of.items()))
    assert preference(indices, backwards) == found


@given(index, weights)
def test_who_leaves_gives_only_its_own_part(sample: Any, of: dict[str, float]) -> None:
    first = preference(sample, of)[0]
    for name in of.keys() - {first}:
        assert preference(sample, {key: of[key] for key in of if key != name})[0] == first


def test_each_has_a_part_by_its_speed() -> None:
    of = {"a": 1.0, "b": 1.0, "slow": 0.25}
    found = Counter(preference(sample, of)[0] for sample in range(9000))
    assert [round(found[name] / 1000) for name in of] == [4, 4, 1]


def test_most_of_a_steps_samples_decide() -> None:
    of = dict.fromkeys(NAMES, 1.0)
    own = [sample for sample in range(4000) if preference(sample, of)[0] == "c"]
    others = [sample for sample in range(4000) if preference(sample, of)[0] != "c"]
    assert preference(own[:9] + others[:5], of)[0] == "c"
    assert preference(range(100_000), of) == preference(list(reversed(range(100_000))), of)


@pytest.mark.parametrize(
    ("seconds", "fastest", "weight"),
    [(None, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (1.3, 1.0, 1.0), (2.0, 1.0, 0.5)],
)
def test_small_differences_of_speed_move_nothing(
    seconds: float | None, fastest: float, weight: float
) -> None:
    assert weight_of(seconds, fastest) == weight
    assert weight_of(1000.0, 1.0) == LEAST_WEIGHT


# ---------------------------------------------------------------------- who is asked


@st.composite
def makers(draw: st.DrawFn) -> list[Maker]:
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        held = draw(st.integers(0, 6))
        room = draw(st.integers(0, 4))
        weight = draw(st.sampled_from([0.25, 1.0]))
        found.append(Maker(name, held, room, draw(st.integers(1, 4)), weight))
    if draw(st.booleans()):
        found.append(Maker("local", draw(st.integers(0, 2)), draw(st.integers(0, 2)), local=True))
    return found


@given(makers(), st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 9))
def test_nobody_is_without_work_while_there_is_some(
    who: list[Maker], steps: set[int], near: int, seed: int
) -> None:
    free = {step: [seed * 1000 + step] for step in sorted(steps)}
    given_ = Affinity(5.0).plan(free, who, near, 0.0)
    asked = [step for step, _ in given_]
    assert len(asked) == len(set(asked)), "each step once"
    assert set(asked) <= steps
    got = Counter(name for _, name in given_)
    assert all(got[maker.name] <= maker.room for maker in who)
    left = steps - set(asked)
    room = [maker for maker in who if maker.room > got[maker.name]]
    if left:
        assert not any(one.local or one.held + got[one.name] < one.hungry_below for one in room)
    if any(step < near for step in left):
        assert not room, "what is needed soon is kept for nobody"


@given(makers(), st.integers(0, 200))
def test_a_step_is_kept_for_so_long_and_no_longer(who: list[Maker], count: int) -> None:
    affinity, free = Affinity(5.0), {step: [step] for step in range(count)}
    affinity.plan(free, who, 0, 100.0)
    first = affinity.plan(free, who, 0, 104.9)
    late = affinity.plan(free, who, 0, 105.0)
    assert first == affinity.plan(free, who, 0, 104.9), "a plan is of what is, and of nothing else"
    room = sum(maker.room for maker in who)
    assert len(late) == min(count, room)


@given(st.integers(1, 6), st.lists(st.integers(0, 1 << 40), unique=True, max_size=300))
def test_no_load_is_beyond_its_bound(workers: int, samples: list[int]) -> None:
    who = [Maker(name, 0, 1000, 1) for name in NAMES[:workers]]
    free = {step: [sample] for step, sample in enumerate(samples)}
    found = Counter(name for _, name in Affinity(5.0).plan(free, who, 0, 0.0))
    assert sum(found.values()) == len(samples)
    assert max(found.values(), default=0) <= LOAD_BOUND * len(samples) / workers + 1


# ---------------------------------------------------------------------- epochs, simulated


@dataclass(eq=False)
class Peer:
    name: str
    seconds: float
    local: bool = False
    batch_seconds: float | None = None


class Epoch:
    """One epoch in simulated time: makers that take so long a batch, a program that takes them."""

    def __init__(self, peers: list[Peer], steps: list[list[int]], sharding: Sharding) -> None:
        self.peers = {peer.name: peer for peer in peers}
        options = QueueOptions(key=b"k", seed=1, sharding=sharding)
        self.queue = BatchQueue(threading.Condition(), Counts(), 1, options)
        self.window = cast("ReorderBuffer", self.queue.window)
        for indices in steps:
            self.window.feed(indices)
        self.window.end()
        self.count = len(steps)
        self.now = 0.0
        self.made: dict[int, str] = {}
        self.doing: list[tuple[float, int, str]] = []
        self.until = dict.fromkeys(self.peers, 0.0)

    def ask(self) -> None:
        usable = cast("list[WorkerConnection]", list(self.peers.values()))
        self.queue.bind(len(usable), FREE, 0)
        assign = assign_steps if self.queue.affinity is None else assign_static
        for link, asked in assign(self.queue, usable, alone=False).items():
            for step, _ in asked:
                begin = max(self.now, self.until[link.name])
                self.until[link.name] = begin + self.peers[link.name].seconds
                heapq.heappush(self.doing, (self.until[link.name], step, link.name))

    def run(self, step_seconds: float) -> float:
        """How long the epoch takes; the program makes nothing itself."""
        free = 0.0  # when the program wants its next batch
        self.ask()
        while self.window.position < self.count:
            while self.window.position in self.made and free <= self.now:
                assert self.window.take()[0] is None
                free = self.now + step_seconds
                self.ask()
            if self.window.position == self.count:
                break
            wanted = free if self.window.position in self.made else float("inf")
            coming = self.doing[0][0] if self.doing else float("inf")
            assert min(wanted, coming) < float("inf"), "nobody has anything to do"
            self.now = max(self.now, min(wanted, coming))
            if coming <= wanted:
                _, step, name = heapq.heappop(self.doing)
                assert self.window.arrived(name, step, step)
                assert step not in self.made
                self.made[step] = name
                self.peers[name].batch_seconds = self.peers[name].seconds
                self.ask()
        return free


@settings(max_examples=25, deadline=None)
@given(
    seconds=st.lists(st.sampled_from([0.001, 0.02, 0.03, 0.05, 0.2]), min_size=1, max_size=6),
    local=st.booleans(),
    step_seconds=st.sampled_from([0.0001, 0.005, 0.05]),
    seed=st.integers(0, 1 << 30),
)
def test_static_is_not_slower_than_dynamic(
    seconds: list[float], local: bool, step_seconds: float, seed: int
) -> None:
    steps = [[seed + 4 * step + at for at in range(4)] for step in range(150)]
    took = {}
    for sharding in Sharding:
        peers = [Peer(name, one) for name, one in zip(NAMES, seconds, strict=False)]
        if local:
            peers.append(Peer("local", 0.03, local=True))
        took[sharding] = Epoch(peers, steps, sharding).run(step_seconds)
    # One batch more or less of the slowest at the end is chance.
    assert took[Sharding.STATIC] <= 1.05 * took[Sharding.DYNAMIC] + 2 * max(seconds)


@pytest.mark.parametrize("step_seconds", [0.0001, 0.02])
def test_in_every_epoch_most_steps_are_made_where_they_were(step_seconds: float) -> None:
    """Of the same sets of samples in another order of steps; by chance it would be a quarter."""
    sets = [list(range(8 * step, 8 * step + 8)) for step in range(400)]
    again = random.Random(1).sample(sets, len(sets))
    peers = [Peer(name, 0.02) for name in NAMES[:4]]
    shares = {}
    for sharding in Sharding:
        first, second = (Epoch(peers, order, sharding) for order in (sets, again))
        first.run(step_seconds)
        second.run(step_seconds)
        was = {sets[step][0]: name for step, name in first.made.items()}
        same = sum(was[again[step][0]] == name for step, name in second.made.items())
        shares[sharding] = same / len(sets)
    assert shares[Sharding.STATIC] > 0.6
    if step_seconds < 0.001:  # else the first who is free may be the same one each time
        assert shares[Sharding.STATIC] > shares[Sharding.DYNAMIC] + 0.3


@given(st.sampled_from(list(Guarantee)[:2]), st.data())
@settings(max_examples=60, deadline=None)
def test_every_step_comes_once_whoever_leaves_or_gives_back(
    guarantee: Guarantee, data: st.DataObject
) -> None:
    options = QueueOptions(key=b"k", seed=1, sharding=Sharding.STATIC, guarantee=guarantee)
    queue = BatchQueue(threading.Condition(), Counts(), 1, options)
    window = cast("ReorderBuffer", queue.window)
    count = data.draw(st.integers(1, 80))
    for step in range(count):
        window.feed([step, step + 1])
    window.end()
    here = {name: Peer(name, 0.02) for name in NAMES[:4]}
    held: list[tuple[str, int]] = []
    got: list[int] = []
    while window.position < count:
        queue.bind(max(1, len(here)), FREE, 0)
        usable = cast("list[WorkerConnection]", list(here.values()))
        if usable:
            for link, asked in assign_static(queue, usable, alone=False).items():
                held += [(link.name, step) for step, _ in asked]
        what = data.draw(st.sampled_from(["arrive", "arrive", "arrive", "give back", "crash"]))
        if what == "crash" and len(here) > 1:
            name = data.draw(st.sampled_from(sorted(here)))
            del here[name]
            window.gone(name, crashed=False)
            held = [(holder, step) for holder, step in held if holder != name]
        elif held:
            name, step = held.pop(data.draw(st.integers(0, len(held) - 1)))
            if what == "give back":
                assert window.given_back(name, step)
            else:
                assert window.arrived(name, step, step)
        while True:
            position = window.position
            need, batch = window.take()
            if need is None:
                got.append(batch)
            elif need.name == "MAKE" and not held:  # what came back is the program's to make
                window.make_here(0.0)
                window.made_here()
                got.append(position)
            else:
                break
        window._ledger.state.check_invariants()
    assert got == sorted(set(got))
    assert len(got) + window.lost == count
    assert window.lost == 0 or guarantee is Guarantee.AT_MOST_ONCE


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 39))))
def test_the_ledger_hands_out_any_slot_that_is_free(calls: list[tuple[bool, int]]) -> None:
    ledger, held = Ledger(LedgerOptions(total_slots=32)), {}  # type: Ledger, dict[int, int]
    for give_back, slot in calls:
        if give_back and held:
            ledger.give_back(held.pop(min(held)))
        else:
            lease = ledger.lease("a", 0.0, 1, slot=slot)
            assert (lease is None) == (slot in held or slot >= 32)
            if lease is not None:
                held[slot] = lease.fence
        ledger.state.check_invariants()
    while (lease := ledger.lease("b", 0.0, 1)) is not None:
        assert lease.start not in held
        assert lease.start == min(set(range(32)) - held.keys())
        held[lease.start] = lease.fence
    assert sorted(held) == list(range(32))


# ---------------------------------------------------------------------- streams


def test_streams_go_where_they_were() -> None:
    def hosts(peers: list[Peer]) -> dict[int, str]:
        options = QueueOptions(key=b"k", seed=1, streams=3, sharding=Sharding.STATIC)
        queue = BatchQueue(threading.Condition(), Counts(), 1, options)
        window = cast("StreamWindow", queue.window)
        queue.bind(len(peers), FREE, 0)
        assign_streams(queue, cast("list[WorkerConnection]", peers), 0)
        return {
            number: peer.name
            for peer in peers
            for number in range(3)
            if window._streams[number].holder == peer.name
        }

    peers = [Peer(name, 0.02) for name in NAMES[:3]]
    found = hosts(peers)
    assert sorted(found) == [0, 1, 2]
    assert len(set(found.values())) == 3
    for _ in range(4):
        assert hosts(peers) == found


# ---------------------------------------------------------------------- real processes


class Made:
    """Samples that tell which process made them."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> tuple[int, int]:
        time.sleep(0.001)
        return index, os.getpid()


@pytest.mark.slow
def test_data_workers_keep_their_steps_and_others_take_those_of_one_that_is_killed() -> None:
    with consumer() as mine:
        mine._options = InputOptions(sharding=Sharding.STATIC)
        workers = [spawn(mine), spawn(mine)]
        try:
            eventually(lambda: len(mine.workers) == 2)

            def epoch(loader: Loader) -> dict[int, int]:
                found = [(batch[0].tolist(), batch[1].tolist()) for batch in loader]
                assert [one for indices, _ in found for one in indices] == list(range(480))
                return {indices[0]: pids[0] for indices, pids in found}

            loader = Loader(Made(), batch_size=8, shuffle=False, consumer=mine)
            pids = {worker.pid for worker in workers}
            seen: list[dict[int, int]] = []

            def same_again() -> bool:
                seen.append(epoch(loader))
                if set(seen[-1].values()) != pids or len(seen) < 2:
                    return False  # somebody has not opened the pipeline, or the program helped
                return sum(seen[-1][at] == seen[-2][at] for at in seen[-1]) > 0.65 * len(seen[-1])

            eventually(same_again, 40)
            made = Counter(seen[-1].values())
            killed = next(one for one in workers if one.pid == made.most_common(1)[0][0])
            got: list[int] = []
            for number, batch in enumerate(loader):
                if number == 10:
                    end(killed)
                got += batch[0].tolist()
            assert got == list(range(480))
            assert killed.pid not in epoch(loader).values()
        finally:
            for worker in workers:
                end(worker)
