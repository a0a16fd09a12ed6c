"""Which data worker a step is for, and who makes it meanwhile: static sharding, decided purely.

Each sample has a data worker by rendezvous hashing (Thaler and Ravishankar, 1998), weighted by
speed; a step is for the one that most of its samples have, and then for the next. So a step of the
same samples is made by the same data worker in each epoch, in whatever order steps come, and one
that joins or leaves takes or gives only its own part.

Nobody is asked to wait for that: a data worker is kept a step for only within 1.25 of its share
(consistent hashing with bounded loads; Mirrokni, Thorup and Zadimoghaddam, 2018), only as long as
the program does not need the step soon, for at most a quarter of a lease, and never while another
has nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LOAD_BOUND: Final = 1.25
"""Of the mean, by speed: steps beyond it are for the next."""
VOTERS: Final = 1024
"""Samples of a step that are asked, evenly spread over the sorted ones."""
LEAST_WEIGHT: Final = 1 / 16
_UNIT: Final = 2.0**-53


@dataclass(frozen=True, slots=True)
class Maker:
    """Somebody who can be asked for steps now.

    Attributes:
        held: steps that it was asked for and has not made.
        room: steps that it may be asked for now.
        hungry_below: with fewer steps than that it would soon have nothing to do.
        weight: its speed, by that of the fastest (`weight_of`).
        local: it is for no step, and takes what is left.
    """

    name: str
    held: int = 0
    room: int = 1
    hungry_below: int = 1
    weight: float = 1.0
    local: bool = False


def weight_of(batch_seconds: float | None, fastest_seconds: float) -> float:
    """A speed by that of the fastest, in powers of two: a small change moves no samples."""
    if not batch_seconds or not fastest_seconds:
        return 1.0
    return float(max(LEAST_WEIGHT, 2.0 ** round(math.log2(fastest_seconds / batch_seconds))))


def preference(indices: Any, weights: Mapping[str, float]) -> tuple[str, ...]:
    """Names of data workers, the one that a step is for first.

    Args:
        indices: of the step's samples; their order does not matter.
        weights: of the data workers.
    """
    names = sorted(weights)
    keys = _keys_of(indices)
    scores = np.empty((len(names), len(keys)))
    for row, name in zip(scores, names, strict=True):
        # A draw of -log of a uniform number by the weight: the least is each with its weight.
        row[:] = -np.log(_uniform(keys ^ _hash(name.encode()))) / weights[name]
    votes = np.bincount(scores.argmin(axis=0), minlength=len(names))
    first = scores[:, 0]  # of the lowest sample, where votes are alike
    order = sorted(range(len(names)), key=lambda row: (-int(votes[row]), float(first[row])))
    return tuple(names[row] for row in order)


class Affinity:
    """For whom the steps of one epoch are, and since when they are kept for somebody."""

    def __init__(self, patience_seconds: float) -> None:
        """``patience_seconds``: as long a step is kept at most."""
        self._patience = patience_seconds
        self._weights: dict[str, float] = {}
        self._orders: dict[int, tuple[str, ...]] = {}
        self._since: dict[int, float] = {}

    def plan(
        self, free: Mapping[int, Any], makers: Sequence[Maker], near: int, now: float
    ) -> list[tuple[int, str]]:
        """Who is to be asked for which steps now.

        Args:
            free: steps that nobody has, the lowest first, and their indices.
            makers: at least one of them no local worker.
            near: steps below it the program needs soon: they are kept for nobody.
            now: in seconds.
        """
        self._remember(free, makers, now)
        turn = _Turn(makers, len(free))
        for_whom = {step: turn.target(self._orders[step]) for step in free}
        kept: list[int] = []
        for step in free:
            if step >= near and now - self._since[step] < self._patience:
                kept.append(step)
            elif not turn.give(step, for_whom[step]):
                turn.give_any(step, self._orders[step])
        left = [step for step in kept if not turn.give(step, for_whom[step])]
        for step in left:
            turn.give_hungry(step, self._orders[step])
        return turn.given

    def _remember(self, free: Mapping[int, Any], makers: Sequence[Maker], now: float) -> None:
        weights = {maker.name: maker.weight for maker in makers if not maker.local}
        if weights != self._weights:
            self._weights = weights
            self._orders.clear()
        self._orders = {
            step: self._orders.get(step) or preference(indices, weights)
            for step, indices in free.items()
        }
        self._since = {step: self._since.get(step, now) for step in free}


class _Turn:
    """What everybody has, and has been given, in one turn of planning."""

    def __init__(self, makers: Sequence[Maker], free: int) -> None:
        self.given: list[tuple[int, str]] = []
        self._makers = {maker.name: maker for maker in makers}
        self._room = {maker.name: maker.room for maker in makers}
        self._local = [maker.name for maker in makers if maker.local]
        data = [maker for maker in makers if not maker.local]
        self._load = {maker.name: maker.held for maker in data}
        total, weights = free + sum(self._load.values()), sum(maker.weight for maker in data)
        self._most = {
            maker.name: math.ceil(LOAD_BOUND * total * maker.weight / weights) for maker in data
        }

    def target(self, order: tuple[str, ...]) -> str:
        """For whom a step is, within the bound of its load."""
        found = next((name for name in order if self._load[name] < self._most[name]), order[0])
        self._load[found] += 1
        return found

    def give(self, step: int, name: str) -> bool:
        """Whether there is room for it."""
        if self._room[name] < 1:
            return False
        self._room[name] -= 1
        self.given.append((step, name))
        return True

    def give_any(self, step: int, order: tuple[str, ...]) -> bool:
        """Give it to the first who has room."""
        return any(self.give(step, name) for name in (*order, *self._local))

    def give_hungry(self, step: int, order: tuple[str, ...]) -> bool:
        """Give it to a local worker, or to a data worker that would have nothing to do."""
        for name in (*order, *self._local):
            maker = self._makers[name]
            has = maker.held + maker.room - self._room[name]
            if (maker.local or has < maker.hungry_below) and self.give(step, name):
                return True
        return False


def _keys_of(indices: Any) -> NDArray[np.uint64]:
    """A number for each sample, in an order of their own."""
    items = indices if isinstance(indices, list | tuple | range) else [indices]
    try:
        keys = np.asarray(items, np.int64).astype(np.uint64)
        if keys.ndim != 1:
            raise ValueError("samples are not named by numbers")
    except (TypeError, ValueError, OverflowError):
        keys = np.array([_hash(repr(item).encode()) for item in items], np.uint64)
    if not len(keys):
        return np.zeros(1, np.uint64)
    keys = np.sort(keys)
    return keys[:: -(-len(keys) // VOTERS)]


def _hash(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(text, digest_size=8).digest(), "little"))


def _uniform(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers within (0, 1) by the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        mixed = keys + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT
