"""One plan for all jobs: the least for each first, then where a unit of money buys most work.

DLRover-RM's weighted greedy (VLDB 2024): among all steps from what a job has to more of it, the one
with the most weighted throughput per priced unit is taken, as long as something fits. What the
paper does not have: where a resource runs out before the money does, it is counted as dearer and
the plan made anew; and a step may leave a gap that no other fits into, which exchanges close: a job
gets more for what others give back, while that is a gain. Where that ends, groups of jobs are
planned anew together (`regrouping`).

Guarantees: no job gets more before each job, by priority, has its least configuration, or waits
because that does not fit beside the least of those before it; no sum exceeds the room; and of two
calls with the same arguments both have the same answer.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from penstock.brain.pricing.filling import CAPACITIES, SLACK, WAITS, Change, Filling
from penstock.brain.pricing.problem import Allocation, Allotment, PricedJob, Room
from penstock.brain.pricing.regrouping import regroup

MOST_ROUNDS: Final = 200
"""Exchanges after which a plan is left as it is."""
MOST_MOVES: Final = 48
"""Steps up, and steps down, that exchanges are looked for among: those with most to win."""
TRIES: Final = 12
"""Plans that the best one is taken of."""
FEW_JOBS: Final = 12
"""Up to so many, exchanges are tried on each plan, else on the best."""
FEW_MOVES: Final = 12
"""Of which four are combined, and of twice as many three: they close the gaps of small cases."""

Move = tuple[float, float, int, int]
"""Work and cost that are added, job, option."""


def allocate(jobs: Sequence[PricedJob], room: Room) -> Allocation:
    """What each job gets.

    Without `room.work` the most work that fits. With it the least cost at which the work is made,
    or, where it cannot be, as much of it as fits (`reached` is false then).
    """
    admitted = Filling(jobs, room)
    obstacles = admit(admitted)
    filling, marginal = _filled(admitted)
    reached = room.work is None or _enough(filling)
    return Allocation(
        allotments=[
            _allotment(filling, job, obstacles.get(job), marginal) for job in range(len(jobs))
        ],
        marginal=marginal,
        reached=reached,
    )


def admit(filling: Filling) -> dict[int, str]:
    """Give each job its cheapest option that fits, the highest priority first, then as they came.

    Returns:
        Of the jobs that wait, what their cheapest option did not fit into.
    """
    obstacles: dict[int, str] = {}
    for job in sorted(range(len(filling.jobs)), key=lambda job: -filling.jobs[job].priority):
        for option in range(len(filling.options[job])):
            obstacle = filling.obstacle([(job, option)])
            if obstacle is None:
                filling.apply([(job, option)])
                obstacles.pop(job, None)
                break
            obstacles.setdefault(job, obstacle)
    return obstacles


def _enough(filling: Filling) -> bool:
    work = filling.room.work
    return work is not None and filling.work >= work * (1 - SLACK)


def _filled(admitted: Filling) -> tuple[Filling, float | None]:
    """The best of several plans: where a resource ran out, the next one counts it as dearer.

    For a few jobs also those that begin with one of them at each of its options.
    """
    few = len(admitted.jobs) <= FEW_JOBS
    scarcity = [0.0, 0.0, 0.0]
    best: Filling = admitted
    last: float | None = None
    seen: set[tuple[int, ...]] = set()
    for _ in range(TRIES):
        filling = admitted.copy()
        marginal, refused = _grow(filling, scarcity)
        money = filling.cost or 1.0
        tries = [filling]
        if few and admitted.room.work is not None:  # from above as well: exchanges take it back
            tries.append(admitted.copy())
            _grow(tries[1], scarcity, beyond=True)
        for one in tries:
            if tuple(one.chosen) in seen:
                continue
            seen.add(tuple(one.chosen))
            if few:
                _exchange(one)
            if _rank(one) > _rank(best):
                best, last = one, marginal
        out = [name in refused for name in CAPACITIES]
        if not any(out) and not any(scarcity):
            break
        scarcity = [
            max(2 * price, money / 8) if own else price / 1.5
            for price, own in zip(scarcity, out, strict=True)
        ]
    for job in admitted.running() if few else ():
        for option in range(1, len(admitted.options[job])):
            filling = admitted.copy()
            if filling.obstacle([(job, option)]) is not None:
                continue
            filling.apply([(job, option)])
            marginal, _ = _grow(filling, (0.0, 0.0, 0.0))
            _exchange(filling, stages=1)
            if _rank(filling) > _rank(best):
                best, last = filling, marginal
    _exchange(best)
    regroup(best)
    return best, last


def _rank(filling: Filling) -> tuple[bool, float]:
    enough = _enough(filling)
    return enough, -filling.cost if enough else filling.work


def _grow(
    filling: Filling, scarcity: Sequence[float], *, beyond: bool = False
) -> tuple[float | None, set[str]]:
    """Take the best step of all, until none fits or, unless `beyond`, the work is enough.

    `scarcity` is what the whole capacity of each resource costs beside its price.

    Returns:
        The work that the last step bought per unit of money, and what steps did not fit into.
    """
    refused: set[str] = set()
    heap: list[tuple[float, int, int, int]] = []

    def offer(job: int) -> None:
        now = filling.chosen[job]
        for option in range(now + 1, len(filling.options[job])):
            work, cost = filling.gain(job, option)
            if work > 0:
                price = cost + filling.taken(job, option, scarcity)
                heapq.heappush(heap, (-_per_money(work, price), job, now, option))

    for job in filling.running():
        offer(job)
    marginal = None
    while heap and (beyond or not _enough(filling)):
        _, job, before, option = heapq.heappop(heap)
        if filling.chosen[job] != before:
            continue  # it was offered before the job changed
        obstacle = filling.obstacle([(job, option)])
        if obstacle is not None:
            refused.add(obstacle)
        else:
            marginal = _per_money(*filling.gain(job, option))
            filling.apply([(job, option)])
            offer(job)
    return marginal, refused


def _per_money(work: float, cost: float) -> float:
    return work / cost if cost > 0 else math.inf


def _exchange(filling: Filling, stages: int | None = None) -> None:
    """Change up to four jobs at once, while that makes the plan better."""
    for _ in range(MOST_ROUNDS):
        ups, downs = _moves(filling)
        stage = itertools.islice(_stages(ups, downs), stages)
        found = (_best(filling, groups) for groups in stage)
        changes = next((one for one in found if one is not None), None)
        if changes is None:
            return
        filling.apply(changes)


def _moves(filling: Filling) -> tuple[list[Move], list[Move]]:
    """Steps to more work, and steps to less cost: each those with most to win first."""
    ups: list[Move] = []
    downs: list[Move] = []
    for job in filling.running():
        for option in range(len(filling.options[job])):
            if option == filling.chosen[job]:
                continue
            work, cost = filling.gain(job, option)
            (ups if work > 0 else downs).append((work, cost, job, option))
    ups.sort(key=lambda move: (-_per_money(move[0], move[1]), move[2:]))
    downs.sort(key=lambda move: (_per_money(-move[0], -move[1]), move[2:]))
    return ups[:MOST_MOVES], downs[:MOST_MOVES]


def _stages(ups: Sequence[Move], downs: Sequence[Move]) -> Iterable[Iterable[tuple[Move, ...]]]:
    """Groups of moves, small ones first; of the larger ones only among those with most to win."""
    yield itertools.chain(((move,) for move in (*ups, *downs)), itertools.product(ups, downs))
    few_ups, few_downs = ups[: 2 * FEW_MOVES], downs[: 2 * FEW_MOVES]
    yield itertools.chain(
        ((up, *pair) for up in few_ups for pair in itertools.combinations(few_downs, 2)),
        ((*pair, down) for pair in itertools.combinations(few_ups, 2) for down in few_downs),
    )
    few_ups, few_downs = ups[:FEW_MOVES], downs[:FEW_MOVES]
    for more in (1, 2, 3):
        four = itertools.product(
            itertools.combinations(few_ups, more), itertools.combinations(few_downs, 4 - more)
        )
        yield ((*up, *down) for up, down in four)


def _best(filling: Filling, groups: Iterable[tuple[Move, ...]]) -> list[Change] | None:
    """The changes that gain most: cost where the work is enough, else work."""
    enough, wanted = _enough(filling), filling.room.work
    best, found = 0.0, None
    for group in groups:
        work = sum(move[0] for move in group)
        cost = sum(move[1] for move in group)
        if enough and wanted is not None:
            gain = -cost if filling.work + work >= wanted * (1 - SLACK) else 0.0
            least = SLACK * max(filling.cost, 1e-12)
        else:
            gain, least = work, SLACK * max(filling.work, 1e-12)
        if gain <= max(best, least) or len({move[2] for move in group}) < len(group):
            continue
        changes = [move[2:] for move in group]
        if filling.obstacle(changes) is None:
            best, found = gain, changes
    return found


def _allotment(
    filling: Filling, job: int, obstacle: str | None, marginal: float | None
) -> Allotment:
    own, options, chosen = filling.jobs[job], filling.options[job], filling.chosen[job]
    if chosen == WAITS:
        why = f"it waits: {options[0].name}, its least, does not fit into {obstacle}"
        return Allotment(job=own, option=None, why=why)
    option = options[chosen]
    made = Allotment(
        job=own,
        option=option,
        why=f"{option.throughput:.4g} for {option.cost_per_hour:.4g} an hour"
        + ("; the least that it can have" if chosen == 0 else ""),
    )
    steps = [(filling.gain(job, index), index) for index in range(len(options))]
    more = [(_per_money(*step), -index, index) for step, index in steps if step[0] > 0]
    if not more:
        if chosen == 0:
            return replace(made, runner_up_why="it has no other configuration")
        (work, cost), index = steps[chosen - 1]
        text = f"{-cost:.4g} an hour less, for {-work:.4g} of work"
        return replace(made, runner_up=options[index], runner_up_why=text)
    ratio, _, index = max(more)
    blocked = filling.obstacle([(job, index)])
    text = f"{ratio:.4g} of work per unit of money"
    if blocked is not None:
        text += f"; it does not fit into {blocked}"
    elif marginal is not None:
        text += f"; the last that was bought gave {marginal:.4g}"
    else:
        text += "; the work that is wanted is made without it"
    return replace(made, runner_up=options[index], runner_up_why=text)
