"""Ranks that train by length, as a state machine: they die, come, save and go on, at any moment.

The model is what one surviving training has seen. Ranks hold slots of the step under way and take
a step together; any of them may be lost with what it holds, others may come, and the whole job may
go on from its last checkpoint, with an order that is made anew from the same lengths and, where
steps are the same, with another number of slots. Each epoch has each sample once, whatever happens,
and the samples of a step are of one bucket, or of neighbours where one ends.
"""

from __future__ import annotations

import itertools
import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.data.ledger import BucketOrder, Buckets, Lease, Ledger, LedgerOptions

EDGES = (8, 16, 32)
EPOCHS = 2


class Training(RuleBasedStateMachine):
    """See the module's docstring."""

    @initialize(
        lengths=st.lists(st.integers(0, 50), min_size=1, max_size=60),
        batch=st.integers(1, 12),
        slots=st.integers(1, 6),
        tokens=st.none() | st.integers(1, 100),
        seed=st.integers(0, 5),
        shuffle=st.booleans(),
    )
    def begin_job(
        self, lengths: list[int], batch: int, slots: int, tokens: int | None, seed: int,
        shuffle: bool,
    ) -> None:  # fmt: skip
        self.lengths, self.tokens, self.batch = lengths, tokens, max(batch, slots)
        self.seed, self.shuffle = seed, shuffle
        self.order = self.order_of(slots)
        self.ledger = self.ledger_at(0)
        self.held: dict[str, list[Lease]] = {"rank-0": []}
        self.count, self.now = 1, 0.0
        self.history: list[list[int]] = []  # samples of each step that the model has seen
        self.step: list[int] = []  # and of the one under way
        self.done = 0  # slots of it that ranks have computed
        self.saved = 0  # steps

    def order_of(self, slots: int) -> BucketOrder:
        buckets = Buckets.of(self.lengths, EDGES, self.tokens)
        return BucketOrder(
            len(self.lengths), self.batch, slots, EPOCHS, self.seed, self.shuffle, buckets=buckets
        )

    def ledger_at(self, steps: int) -> Ledger:
        ledger = Ledger(LedgerOptions(EPOCHS * self.order.steps_per_epoch * self.slots, 1e9))
        ledger.adopt(steps * self.slots)
        return ledger

    @property
    def slots(self) -> int:
        return self.order.slots_per_step

    # -------------------------------------------------------------- what ranks do

    @rule(data=st.data())
    def takes(self, data: st.DataObject) -> None:
        self.take(data.draw(st.sampled_from(sorted(self.held))))

    def take(self, rank: str) -> None:
        """A slot of the step under way; those of the next come when all have taken it."""
        out = sum(lease.stop - lease.start for held in self.held.values() for lease in held)
        if self.ledger.finished or self.done + out >= self.slots:
            return
        lease = self.ledger.lease(rank, self.now, 1)
        assert lease is not None, "a slot of the step is held by nobody"
        self.held[rank].append(lease)

    @rule(data=st.data())
    def computes(self, data: st.DataObject) -> None:
        self.compute(data.draw(st.sampled_from(sorted(self.held))))

    def compute(self, rank: str) -> None:
        for lease in self.held[rank]:
            slot = self.order.slot(lease.start)
            assert slot.epoch * self.order.steps_per_epoch + slot.step == len(self.history)
            assert self.ledger.complete(lease.fence, lease.start, lease.stop) == 1
            self.step += self.order.samples(slot).tolist()
            self.done += 1
        self.held[rank] = []
        if self.done == self.slots:
            self.history.append(self.step)
            self.step, self.done = [], 0

    # -------------------------------------------------------------- who comes and goes

    @precondition(lambda self: len(self.held) < 5)
    @rule()
    def rank_comes(self) -> None:
        self.held[f"rank-{self.count}"] = []
        self.count += 1

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data())
    def rank_dies(self, data: st.DataObject) -> None:
        """What it had computed of the step is in the others' gradients; what it held is not."""
        rank = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[rank]
        self.ledger.release(rank)

    @rule()
    def saves(self) -> None:
        self.saved = len(self.history)

    @rule(slots=st.integers(1, 6))
    def goes_on_from_its_checkpoint(self, slots: int) -> None:
        sizes = [self.order.step_size(step) for step in range(self.order.steps_per_epoch)]
        again = self.order_of(min(slots, self.batch))
        assert again.digest == self.order.digest
        if [again.step_size(step) for step in range(again.steps_per_epoch)] != sizes:
            again = self.order_of(self.slots)  # a small rest, or tokens: steps depend on slots
        self.order = again
        self.ledger = self.ledger_at(self.saved)
        self.history = self.history[: self.saved]
        self.step, self.done = [], 0
        self.held = {rank: [] for rank in self.held}

    # -------------------------------------------------------------- what holds

    @invariant()
    def nothing_comes_twice_in_an_epoch(self) -> None:
        if not hasattr(self, "order"):
            return
        steps = self.order.steps_per_epoch
        for first in range(0, len(self.history) + 1, steps):
            seen = list(itertools.chain(*self.history[first : first + steps]))
            if first <= len(self.history) < first + steps:
                seen += self.step
            assert len(set(seen)) == len(seen), "a sample came twice in an epoch"

    @invariant()
    def steps_are_of_one_bucket_or_of_where_one_ends(self) -> None:
        if not hasattr(self, "order"):
            return
        numbers, steps = self.order.buckets.numbers, self.order.steps_per_epoch
        for first in range(0, len(self.history), steps):
            done = [numbers[step] for step in self.history[first : first + steps] if step]
            spans = sorted((int(one.min()), int(one.max())) for one in done)
            for (_, longest), (shortest, _) in itertools.pairwise(spans):
                assert longest <= shortest

    def teardown(self) -> None:
        """Whoever is left comes to the end."""
        if not hasattr(self, "order"):
            return
        ranks = sorted(self.held)
        while not self.ledger.finished:
            for rank in ranks:
                self.take(rank)
            for rank in ranks:
                self.compute(rank)
        steps = self.order.steps_per_epoch
        assert len(self.history) == EPOCHS * steps, "an epoch has other steps than was said"
        for epoch in range(EPOCHS):
            seen = sorted(itertools.chain(*self.history[epoch * steps : (epoch + 1) * steps]))
            assert seen == list(range(len(self.lengths))), "an epoch without each sample once"


TestTraining = Training.TestCase
TestTraining.settings = settings(
    max_examples=int(os.environ.get("PENSTOCK_BUCKET_RUNS", "100")),
    stateful_step_count=40,
    deadline=None,
)
