"""One week under one of the two regimes, from the first job to the last.

Same seed, same jobs, same arrivals, same services, same node losses, same faults of pods: only what
the jobs request and what follows a lost pod differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from penstock.brain.model.spent import Spent
from penstock.brain.registry import load
from penstock.sim.ps.jobs.model import GIB, speed
from penstock.sim.week.brain_view import PastJobs
from penstock.sim.week.elastic_run import ElasticRun
from penstock.sim.week.static_run import StaticRun
from penstock.sim.week.world.assumptions import DAY, WEEK, Assumptions
from penstock.sim.week.world.bills import Balance, Given, balance, bill
from penstock.sim.week.world.clock import Clock
from penstock.sim.week.world.cluster import Cluster, Totals
from penstock.sim.week.world.jobs import WeekJob, generate, remembered
from penstock.sim.week.world.outcome import Counts, JobOutcome
from penstock.sim.week.world.services import draw

LATEST: Final = 5 * WEEK
"""Jobs that are not done by then are counted as not completed."""


class Regime(StrEnum):
    """Who decides what a job gets."""

    STATIC = "static"
    PENSTOCK = "penstock"


@dataclass(frozen=True, slots=True)
class WeekRun:
    """One run: its jobs, and what was given and asked."""

    regime: Regime
    seed: int
    nodes: int
    outcomes: tuple[JobOutcome, ...]
    totals: Totals
    node_core_seconds: float
    node_capacity_core_seconds: float
    counts: Counts
    bills: tuple[Spent, ...]
    """Of each job, in the order of `outcomes`."""
    balance: Balance


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is: days that have passed, jobs by what has become of them, pods that wait."""

    days: int
    jobs: int
    submitted: int
    ended: int
    waiting_pods: int


def nodes_for(jobs: list[WeekJob], assumed: Assumptions) -> int:
    """So many nodes that what users request, for as long as their jobs would take alone, is
    `load` of what services leave; in both runs alike.
    """
    asked = sum(
        job.asked.cores
        * (assumed.ready + job.model.steps / speed(job.model, job.asked).steps_per_second)
        for job in jobs
    )
    cores = asked / WEEK / assumed.load / (1 - assumed.services_share)
    least = max((job.asked.cores for job in jobs), default=0.0) / (1 - assumed.services_share)
    return math.ceil(max(cores, least) / assumed.node_cores)


def run_week(
    regime: Regime,
    count: int,
    seed: int,
    assumed: Assumptions,
    traces: Path | None = None,
    passed: Callable[[Standing], None] | None = None,
) -> WeekRun:
    """`count` jobs of one week, until the last of them has ended; `passed` is told of each day.

    Raises:
        SimulationError: traces were asked for and are missing or broken.
    """
    jobs = generate(count, seed, assumed)
    nodes = nodes_for(jobs, assumed)
    clock = Clock()
    cluster = Cluster(nodes, clock, assumed)
    counts = Counts()
    outcomes: list[JobOutcome] = []
    _disturb(cluster, nodes, seed, assumed, traces)
    registry = load()
    past = PastJobs(remembered(count, seed, assumed) if regime is Regime.PENSTOCK else [])
    given: dict[int, Given] = {}
    # Of those that have ended nothing but their outcome is kept: a job's samples are many.
    going: dict[int, StaticRun | ElasticRun] = {}

    def ended(outcome: JobOutcome) -> None:
        outcomes.append(outcome)
        del going[outcome.index]

    def submit(job: WeekJob) -> None:
        one: StaticRun | ElasticRun
        if regime is Regime.STATIC:
            one = StaticRun(job, cluster, assumed, ended)
        else:
            one = ElasticRun(
                job, cluster, assumed, ended, registry=registry, past=past, counts=counts
            )
        going[job.index], given[job.index] = one, one.given
        one.start()

    for job in jobs:
        clock.at(job.arrival, partial(submit, job))

    def day(days: int) -> None:
        if passed is not None:
            passed(Standing(days, count, len(given), len(outcomes), cluster.waiting))

    clock.run(LATEST, lambda: len(outcomes) < count, day, DAY)
    cluster.settle()
    outcomes += [one.outcome("NotDone", None) for one in going.values()]
    outcomes.sort(key=lambda one: one.index)
    bills = tuple(bill(given[one.index], one) for one in outcomes)
    return WeekRun(
        regime=regime,
        seed=seed,
        nodes=nodes,
        outcomes=tuple(outcomes),
        totals=cluster.totals,
        node_core_seconds=cluster.node_core_seconds,
        node_capacity_core_seconds=nodes * assumed.node_cores * clock.now,
        counts=counts,
        bills=bills,
        balance=balance(bills, cluster.services, cluster.meter.had()),
    )


def _disturb(
    cluster: Cluster, nodes: int, seed: int, assumed: Assumptions, traces: Path | None
) -> None:
    """What happens on the machines whatever the jobs do."""
    clock = cluster.clock
    cores = nodes * assumed.node_cores
    for service in draw(cores, seed, assumed, traces):
        clock.at(service.start, partial(cluster.start_service, service))
    rng = np.random.default_rng([seed, 22])
    number = int(rng.poisson(nodes * assumed.node_losses * LATEST / DAY))
    for when in sorted(rng.uniform(0.0, LATEST, size=number).tolist()):
        row = int(rng.integers(nodes))
        clock.at(when, partial(cluster.lose_node, row))


def cost(run: WeekRun, assumed: Assumptions) -> float:
    """What all that the training pods were given costs at the assumed prices."""
    cores, gib = run.totals.core_seconds / 3600, run.totals.byte_seconds / 3600 / GIB
    return cores * assumed.core_price + gib * assumed.gib_price
