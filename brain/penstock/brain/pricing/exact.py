"""The best plan of a few jobs, by trying every one: the yardstick of `greedy`.

Exact because nothing is left out: each combination of options is a row of sums. That is the product
of all numbers of options, so it is for a handful of jobs only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.brain.errors import PricingError
from penstock.brain.pricing.filling import SLACK, Filling
from penstock.brain.pricing.greedy import admit
from penstock.brain.pricing.problem import Allocation, Allotment, PricedJob, Room

MOST_COMBINATIONS: Final = 2_000_000


def optimum(jobs: Sequence[PricedJob], room: Room) -> Allocation | None:
    """The most work that fits, or the least cost for `room.work`; None where that cannot be made.

    Jobs that wait wait here as well: who is let in first is a rule and no matter of the best sum.

    Raises:
        PricingError: There are more than `MOST_COMBINATIONS` of options.
    """
    filling = Filling(jobs, room)
    admit(filling)
    running = list(filling.running())
    sizes = [len(filling.options[job]) for job in running]
    if math.prod(sizes) > MOST_COMBINATIONS:
        raise PricingError(
            f"{len(running)} jobs have {math.prod(sizes):,} combinations of options; at most "
            f"{MOST_COMBINATIONS:,} are tried"
        )
    shape = tuple(sizes)
    work, cost = np.zeros(shape), np.zeros(shape)
    queues = sorted({jobs[job].queue for job in running})
    used = {queue: np.zeros((3, *shape), dtype=np.int64) for queue in queues}
    for axis, job in enumerate(running):
        along = tuple(-1 if axis == index else 1 for index in range(len(shape)))
        options = filling.options[job]
        work += np.array([jobs[job].weight * one.throughput for one in options]).reshape(along)
        cost += np.array([one.cost_per_hour for one in options]).reshape(along)
        for index in range(3):
            amounts = np.array([one.resources.amounts()[index] for one in options])
            used[jobs[job].queue][index] += amounts.reshape(along)
    fits = np.ones(shape, dtype=bool)
    bounds = [(sum(used.values(), start=np.zeros((3, *shape), dtype=np.int64)), room.capacity)]
    bounds += [(used[queue], room.quotas.get(queue)) for queue in queues]
    for amounts, bound in bounds:
        if bound is not None:
            for index, most in enumerate(bound.amounts()):
                fits &= amounts[index] <= most
    if room.cost_per_hour is not None:
        fits &= cost <= room.cost_per_hour * (1 + SLACK)
    if room.work is None:
        score = np.where(fits, work, -np.inf)
    else:
        fits &= work >= room.work * (1 - SLACK)
        score = np.where(fits, -cost, -np.inf)
    best = np.unravel_index(int(np.argmax(score)), shape)
    if not fits[best]:
        return None
    chosen = dict(zip(running, (int(index) for index in best), strict=True))
    return Allocation(
        allotments=[
            Allotment(job=own, option=filling.options[job][chosen[job]] if job in chosen else None)
            for job, own in enumerate(jobs)
        ],
        marginal=None,
        reached=True,
    )
