"""Jobs that share, as a state machine: any interleaving of messages, deaths and resumptions.

Messages between a member and a data worker come in the order in which they were sent, at any time;
a member or a data worker may die at any moment. Each member has each tile once in an epoch, no
instance twice, and there is always something that can happen until all have everything.
"""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.data.ledger import TileLedger
from penstock.data.sharing.parts import parts_of
from penstock.data.sharing.pool import Pool
from penstock.data.window.free_window import FreeOptions, FreeWindow
from penstock.data.window.reorder_buffer import Failure, Need

TILES, BATCH = 23, 3


def window_of(ledger: TileLedger, *, short: bool, keeps_rest: bool) -> FreeWindow:
    options = FreeOptions(
        BATCH,
        lambda names: parts_of(TILES, names, b"key"),
        TILES - 1 if short else None,
        keeps_rest,
    )
    return FreeWindow(ledger, 4, options)


class Life:
    """A member as the world sees it."""

    def __init__(self, ledger: TileLedger, *, short: bool, keeps_rest: bool) -> None:
        self.shape = {"short": short, "keeps_rest": keeps_rest}
        self.window = window_of(ledger, **self.shape)
        self.epoch: list[int] = []
        self.epochs = 0
        self.batches: list[int] = []
        self.had: set[tuple[str, int]] = set()
        self.saved: tuple[dict[str, Any], list[int], list[int]] = (ledger.snapshot(), [], [])


class Group(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: dict[str, Pool] = {}
        self.lives: dict[str, Life] = {}
        # (member, worker): messages to the worker, and to the member
        self.up: dict[tuple[str, str], deque[tuple[Any, ...]]] = {}
        self.down: dict[tuple[str, str], deque[tuple[Any, ...]]] = {}
        self.count = 0

    # -------------------------------------------------------------- who comes and goes

    @precondition(lambda self: len(self.pools) < 3)
    @rule(window=st.integers(1, 9))
    def worker_comes(self, window: int) -> None:
        self.count += 1
        name = f"data-worker-{self.count}"
        self.pools[name] = Pool(TILES, window, random.Random(self.count))
        for member in self.lives:
            self.up[member, name], self.down[member, name] = deque(), deque()

    @precondition(lambda self: len(self.lives) < 4)
    @rule(short=st.booleans(), keeps_rest=st.booleans())
    def member_comes(self, *, short: bool, keeps_rest: bool) -> None:
        self._add(Life(TileLedger(TILES), short=short, keeps_rest=keeps_rest))

    def _add(self, life: Life) -> None:
        self.count += 1
        name = f"job-{self.count}"
        self.lives[name] = life
        for worker in self.pools:
            self.up[name, worker], self.down[name, worker] = deque(), deque()

    @precondition(lambda self: self.pools)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pools)))
        del self.pools[name]
        for member, life in self.lives.items():
            del self.up[member, name], self.down[member, name]
            life.window.gone(name, crashed=True)

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), resumes=st.booleans())
    def member_dies(self, data: st.DataObject, *, resumes: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.lives)))
        life = self.lives.pop(name)
        for worker, pool in self.pools.items():
            pool.leave(name)
            del self.up[name, worker], self.down[name, worker]
        if resumes:
            snapshot, epoch, batches = life.saved
            again = Life(TileLedger.restore(TILES, snapshot), **life.shape)
            again.epoch, again.batches, again.saved = list(epoch), list(batches), life.saved
            self._add(again)

    # -------------------------------------------------------------- what members do

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), room=st.integers(1, 4))
    def asks(self, data: st.DataObject, room: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.lives)))
        self._ask(name, room)

    def _ask(self, name: str, room: int) -> None:
        window = self.lives[name].window
        if not self.pools:
            return
        for worker, lacks in window.meet(self.pools).items():
            self.up[name, worker].append(("join", lacks))
        for worker in sorted(
            self.pools, key=lambda one: -getattr(window.rounds.holders.get(one), "ready", 0)
        ):
            for _ in range(room):
                if (asked := window.ask(worker, 0.0)) is not None:
                    self.up[name, worker].append(("make", *asked))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), elsewhere=st.booleans())
    def takes(self, data: st.DataObject, *, elsewhere: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.lives)))
        self._take(name, elsewhere=elsewhere)

    def _take(self, name: str, *, elsewhere: bool) -> Need | None:
        life = self.lives[name]
        need, batch = life.window.take(elsewhere=elsewhere)
        if need is Need.MAKE:
            tiles, _ = life.window.make_here(0.0)
            assert tiles, "there is nothing to make"
            life.window.made_here()
            self._had(life, tiles)
        elif need is None:
            self._had(life, batch)
        elif need is Need.END:
            left = 0 if life.shape["keeps_rest"] else BATCH - 1
            assert len(life.epoch) >= TILES - left
            life.epochs += 1
            life.epoch, life.batches = [], []
            life.window = window_of(TileLedger(TILES), **life.shape)
            life.saved = (life.window.ledger.snapshot(), [], [])
            for worker in self.pools:
                self.up[name, worker].append(("rest",))
                self.down[name, worker].clear()
        return need

    def _had(self, life: Life, tiles: list[int]) -> None:
        life.epoch += tiles
        life.batches.append(len(tiles))
        assert len(set(life.epoch)) == len(life.epoch), "a tile came twice in an epoch"

    @precondition(lambda self: self.lives)
    @rule(data=st.data())
    def saves(self, data: st.DataObject) -> None:
        life = self.lives[data.draw(st.sampled_from(sorted(self.lives)))]
        life.saved = (life.window.ledger.snapshot(), list(life.epoch), list(life.batches))

    # -------------------------------------------------------------- what is under way

    @precondition(lambda self: any(self.up.values()))
    @rule(data=st.data(), size=st.integers(1, 3), fails=st.integers(0, 9))
    def worker_hears(self, data: st.DataObject, size: int, fails: int) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, said in self.up.items() if said)))
        self._work(key, size, fails=not fails)

    def _work(self, key: tuple[str, str], size: int, *, fails: bool) -> None:
        (member, worker), (what, *rest) = key, self.up[key].popleft()
        pool = self.pools[worker]
        if what == "join":
            pool.join(member, rest[0])
            return
        if what == "rest":
            if member in pool.members:
                pool.join(member, TileLedger(TILES, ~TileLedger(TILES).lacks).lacks)
            return
        number, count = rest
        picks = pool.choose(member, count) if member in pool.members else []
        if not picks:
            self.down[key].append(("ended", number))
            return
        tiles = [pick.tile for pick in picks]
        life = self.lives[member]
        for pick in picks:
            assert (worker, pick.instance) not in life.had, "an instance twice"
            if fails and not pick.held:
                pool.note_failed(member, pick.instance)
            elif not pick.held:
                pool.note_made(member, pick.instance, size)
        if fails:
            self.down[key].append(("failed", number, tiles))
            return
        life.had |= {(worker, pick.instance) for pick in picks}
        self.down[key].append(("batch", number, tiles))
        self.down[key].append(("ready", pool.ready(member) // BATCH))

    @precondition(lambda self: any(self.down.values()))
    @rule(data=st.data())
    def member_hears(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, said in self.down.items() if said)))
        self._hear(key)

    def _hear(self, key: tuple[str, str]) -> None:
        (member, worker), (what, *rest) = key, self.down[key].popleft()
        window = self.lives[member].window
        if what == "batch":
            number, tiles = rest
            window.arrived(worker, number, (tiles, tiles))
        elif what == "failed":
            number, tiles = rest
            packed = b"".join(tile.to_bytes(8, "little") for tile in tiles)
            window.failed(number, Failure(worker, "", "", tiles=packed))
        elif what == "ended":
            window.given_back(worker, *rest, over=True)
        else:
            window.rounds.note_ready(worker, *rest)

    # -------------------------------------------------------------- what holds

    @invariant()
    def everything_is_in_its_place(self) -> None:
        for pool in self.pools.values():
            pool.check_invariants()
        for life in self.lives.values():
            life.window.ledger.check_invariants()

    def teardown(self) -> None:
        """Everybody comes to the end of an epoch, whatever has happened."""
        for _ in range(400):
            if all(life.epochs for life in self.lives.values()):
                break
            for name in self.lives:
                self._ask(name, 1)
            for key in list(self.up):
                while self.up[key]:
                    self._work(key, 1, fails=False)
            for key in list(self.down):
                while self.down[key]:
                    self._hear(key)
            for name in self.lives:
                while self._take(name, elsewhere=bool(self.pools)) in (None, Need.MAKE):
                    pass
        assert all(life.epochs for life in self.lives.values()), "somebody waits for ever"


TestGroup = Group.TestCase
TestGroup.settings = settings(
    max_examples=int(os.environ.get("PENSTOCK_GROUP_RUNS", "150")),
    stateful_step_count=60,
    deadline=None,
)
