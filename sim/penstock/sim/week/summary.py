"""A week's figures, beside what DLRover reports (section 6.4, Table 3, Figures 10 and 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from penstock.sim.ps.jobs.model import GIB
from penstock.sim.report.goals import Goal, at_most
from penstock.sim.week.run import WeekRun, cost
from penstock.sim.week.world.assumptions import Assumptions
from penstock.sim.week.world.bills import MOST_OFF, Balance
from penstock.sim.week.world.jobs import JobClass
from penstock.sim.week.world.outcome import JobOutcome

_NO_BOUND: Final = 10_000
POD_BANDS: Final = ((1, 4), (5, 8), (9, 16), (17, _NO_BOUND))
"""Completion is told by how many pods the user asked for."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run. Times in seconds; shares from 0 to 1; None where no job is of that kind."""

    jobs: int
    completed: int
    completion: float
    completion_by_pods: dict[str, float | None]
    ended_by: dict[str, int]
    median_jct: float | None
    median_wait: float | None
    cpu_utilisation: float
    memory_utilisation: float
    core_hours: float
    gib_hours: float
    cost: float
    cost_per_completed: float | None
    repeated_steps: float
    preempted_pods: int
    node_losses: int
    balance: Balance
    """The sum of all bills beside what the nodes gave."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One seed: both runs, and the JCT of the jobs that are done in both, as Penstock's over the
    static one's, less 1: of the medians, by class; `paired_jct` is the median of that per job.
    """

    seed: int
    nodes: int
    static: RunSummary
    penstock: RunSummary
    both_done: int
    jct: dict[str, float | None]
    training: dict[str, float | None]
    paired_jct: float | None
    classes: dict[str, float]
    calls: dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure over all seeds beside the paper's."""

    figure: str
    published: float | None
    mean: float | None
    least: float | None
    most: float | None


def summarise(run: WeekRun, assumed: Assumptions) -> RunSummary:
    """The figures of one run."""
    outcomes = run.outcomes
    done = [one for one in outcomes if one.succeeded]
    reasons: dict[str, int] = {}
    for one in outcomes:
        if one.why:
            reasons[str(one.why)] = reasons.get(str(one.why), 0) + 1
    price = cost(run, assumed)
    made = sum(one.made_steps for one in outcomes)
    return RunSummary(
        jobs=len(outcomes),
        completed=len(done),
        completion=len(done) / max(1, len(outcomes)),
        completion_by_pods={
            _band(low, high): _share(
                [one for one in outcomes if low <= one.pods <= high], lambda one: one.succeeded
            )
            for low, high in POD_BANDS
        },
        ended_by=dict(sorted(reasons.items())),
        median_jct=_median([one.jct for one in done if one.jct is not None]),
        median_wait=_median(
            [one.started - one.arrival for one in outcomes if one.started is not None]
        ),
        cpu_utilisation=_over(
            sum(one.used_core_seconds for one in outcomes), run.totals.core_seconds
        ),
        memory_utilisation=_over(
            sum(one.used_byte_seconds for one in outcomes), run.totals.byte_seconds
        ),
        core_hours=run.totals.core_seconds / 3600,
        gib_hours=run.totals.byte_seconds / 3600 / GIB,
        cost=price,
        cost_per_completed=price / len(done) if done else None,
        repeated_steps=_over(sum(one.lost_steps for one in outcomes), made),
        preempted_pods=run.totals.preempted,
        node_losses=run.totals.node_losses,
        balance=run.balance,
    )


def compare(static: WeekRun, penstock: WeekRun, assumed: Assumptions) -> Comparison:
    """Both runs of one seed."""
    pairs = [
        (one, two)
        for one, two in zip(static.outcomes, penstock.outcomes, strict=True)
        if one.succeeded and two.succeeded
    ]

    def of(kind: JobClass | None, seconds: Callable[[JobOutcome], float]) -> float | None:
        chosen = [pair for pair in pairs if kind is None or pair[0].kind is kind]
        if not chosen:
            return None
        before = median(seconds(one) for one, _ in chosen)
        return median(seconds(two) for _, two in chosen) / before - 1

    kinds: list[JobClass | None] = [None, *JobClass]
    counts = penstock.counts
    return Comparison(
        seed=static.seed,
        nodes=static.nodes,
        static=summarise(static, assumed),
        penstock=summarise(penstock, assumed),
        both_done=len(pairs),
        jct={_name(kind): of(kind, lambda one: one.jct or 0.0) for kind in kinds},
        training={
            _name(kind): of(kind, lambda one: (one.ended or 0.0) - (one.started or 0.0))
            for kind in kinds
        },
        paired_jct=_median([(two.jct or 0.0) / (one.jct or 1.0) - 1 for one, two in pairs]),
        classes={kind.value: _share_of(static.outcomes, kind) for kind in JobClass},
        calls={
            "reconcile": counts.reconcile,
            "administrator": counts.administrator,
            "optimizer": counts.brain,
            "optimizer answers reused": counts.brain_reused,
            "plans": sum(counts.plans.values()),
            "plans refused by the controller": counts.refused,
            "placements": penstock.totals.placements,
        },
    )


def rows(found: Sequence[Comparison]) -> list[Row]:
    """The figures over all seeds, in the order of the paper."""

    def row(figure: str, published: float | None, get: Callable[[Comparison], float | None]) -> Row:
        values = [value for one in found if (value := get(one)) is not None]
        if not values:
            return Row(figure, published, None, None, None)
        return Row(figure, published, fmean(values), min(values), max(values))

    result = [
        row("JCT, all jobs", -0.31, lambda one: one.jct["all"]),
        row("JCT, hot servers", -0.21, lambda one: one.jct[JobClass.HOT]),
        row("JCT, short of server CPU", -0.57, lambda one: one.jct[JobClass.SHORT]),
        row("JCT, all jobs, from start", None, lambda one: one.training["all"]),
        row("JCT, hot servers, from start", None, lambda one: one.training[JobClass.HOT]),
        row("JCT, short, from start", None, lambda one: one.training[JobClass.SHORT]),
        row("completion, static", 0.89, lambda one: one.static.completion),
        row("completion, Penstock", 0.95, lambda one: one.penstock.completion),
    ]
    result += [
        row(f"completion, {band} pods, {name}", None, _completion(band, name))
        for band in bands()
        for name in ("static", "penstock")
    ]
    return [
        *result,
        row("CPU utilisation, static", 0.29, lambda one: one.static.cpu_utilisation),
        row("CPU utilisation, Penstock", 0.44, lambda one: one.penstock.cpu_utilisation),
        row("memory utilisation, static", 0.31, lambda one: one.static.memory_utilisation),
        row("memory utilisation, Penstock", 0.52, lambda one: one.penstock.memory_utilisation),
        row("cost of a completed job", None, cheaper),
    ]


def goals(found: Sequence[Comparison]) -> list[Goal]:
    """What every week has to hold to, however its jobs fared."""
    return [
        at_most(
            f"bills against what the nodes gave, seed {one.seed}, {name}",
            MOST_OFF,
            run.balance.off_by,
        )
        for one in found
        for name, run in (("static", one.static), ("Penstock", one.penstock))
    ]


def bands() -> list[str]:
    """The names of the bands of pods."""
    return [_band(low, high) for low, high in POD_BANDS]


def _band(low: int, high: int) -> str:
    return f"{low}-{high}" if high < _NO_BOUND else f"{low}+"


def _completion(band: str, name: str) -> Callable[[Comparison], float | None]:
    def found(one: Comparison) -> float | None:
        run = one.static if name == "static" else one.penstock
        return run.completion_by_pods[band]

    return found


def cheaper(one: Comparison) -> float | None:
    """What a completed job costs with Penstock over what it costs without, less 1; None where none
    was completed, or nothing has a price.
    """
    before, after = one.static.cost_per_completed, one.penstock.cost_per_completed
    return None if not before or after is None else after / before - 1


def _name(kind: JobClass | None) -> str:
    return "all" if kind is None else kind.value


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _share(outcomes: Sequence[JobOutcome], holds: Callable[[JobOutcome], bool]) -> float | None:
    return sum(map(holds, outcomes)) / len(outcomes) if outcomes else None


def _share_of(outcomes: Sequence[JobOutcome], kind: JobClass) -> float:
    return _over(sum(one.kind is kind for one in outcomes), len(outcomes))


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
