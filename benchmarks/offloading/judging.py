"""One case: measured for the decision, decided, and judged against a sweep of the share.

Calibration sees one half of the samples and judged runs the other. Penstock decides as it does in a
job: a profile of the running job (`penstock.data.job_input`), `decide_in_job`, and the scheduler's
tuning, which looks whether the promise was kept. FastFlow's rule has the same figures, and the
rate with everything elsewhere, which it measures and Penstock does not.

The sweep's runs are short, and the best of eleven noisy figures is too good: so its two best shares
run again, in mirrored turns with what Penstock and FastFlow chose, and are judged by these runs:
two of each, and more until each is known to a hundredth (`SURE`), or `Times.rounds` are over. The
best of the sweep is judged a second time beside itself (`AGAIN`): by how much the two differ is the
yardstick's own noise, and a loss of as much says nothing of who lost it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Final

from benchmarks.goals import error_of
from benchmarks.offloading.cases import Environment, Workload
from benchmarks.offloading.machine import JUDGED, Machine, Run
from benchmarks.offloading.virtual import VirtualMachine
from penstock.scheduler import tuning
from penstock.throughput.decision import fastflow
from penstock.throughput.decision.in_job import JobDecision, decide_in_job
from penstock.throughput.profiles.profile import Profile

SHARES: Final = tuple(step / 10 for step in range(11))
PROFILE_SECONDS: Final = 8.5
LOOKED_SECONDS: Final = 1.8
LOOKS: Final = 4
"""Intervals of the tuning, at most: it is done where nothing changes any more."""
SETTLED: Final = (tuning.Stage.TUNED, tuning.Stage.FALLEN_BACK, tuning.Stage.TRAINING_WORKER_SIZE)


@dataclass(frozen=True)
class Times:
    """Seconds of the runs that are judged, and how many of each there are at most."""

    sweep: float = 1.1
    final: float = 1.8
    rounds: int = 6


@dataclass
class Case:
    """What is known of a case so far.

    Attributes:
        alone: calibration without data workers.
        remote: likewise with all batches made by them.
        decision: of the model.
        tuned: where the tuning is.
        looks: intervals that it took.
        swept: rate by share, of short runs.
        finals: rates of the runs that are judged, by share; `OURS` and `AGAIN` are no shares.
        made_remote: the share of ours that data workers made.
    """

    workload: Workload
    environment: Environment
    profile: Profile | None = None
    alone: Run | None = None
    remote: Run | None = None
    decision: JobDecision | None = None
    tuned: tuning.Tuning | None = None
    looks: int = 0
    swept: dict[float, float] = field(default_factory=dict)
    finals: dict[float | None, list[float]] = field(default_factory=dict)
    made_remote: list[float] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Data workers that it has now."""
        return 0 if self.tuned is None else self.tuned.data_workers

    @property
    def settled(self) -> bool:
        """Whether the tuning wants nothing more."""
        none = self.decision is None or not self.decision.data_workers
        over = self.tuned is not None and self.tuned.stage in SETTLED
        return none or over or self.looks >= LOOKS


OURS: Final = None
AGAIN: Final = -1.0
"""In the place of a share: the best of the sweep, as if it were another."""
LEAST_ROUNDS: Final = 2
SURE: Final = 0.01
"""Standard error of a rate, as a share of it."""


AnyMachine = Machine | VirtualMachine


async def calibrate(machine: AnyMachine, case: Case) -> None:
    """Measure, and decide."""
    name, most = case.workload.name, case.environment.remote
    case.profile, case.alone = await machine.profile(name, PROFILE_SECONDS)
    case.remote = await machine.run(name, 1.0, LOOKED_SECONDS)
    if case.profile is None:
        return
    case.decision = decide_in_job(case.profile, most)
    if case.decision.data_workers:
        predicted = tuning.Predicted(
            data_workers=case.decision.data_workers,
            cores=case.decision.cores,
            throughput=1 + case.decision.gain,
            waits_for_storage=case.decision.waits_for_storage,
            why=case.decision.why,
        )
        limits = limits_of(case.environment)
        case.tuned = tuning.step(tuning.begin(limits), _measured(case.alone), limits, predicted)


def limits_of(environment: Environment) -> tuning.Limits:
    """What the tuning may use."""
    return tuning.Limits(environment.local, 1, environment.remote)


def _measured(run: Run) -> tuning.Measured:
    """An interval, as the scheduler hears of it."""
    wanted = run.rate / max(1 - run.waited, 0.05)
    return tuning.Measured(run.rate, run.rate, wanted)


async def look(machine: AnyMachine, case: Case) -> None:
    """One interval of the tuning, with the data workers that it asked for."""
    assert case.tuned is not None, "there is something to look at"
    run = await machine.run(case.workload.name, None, LOOKED_SECONDS)
    case.looks += 1
    case.tuned = tuning.step(case.tuned, _measured(run), limits_of(case.environment))


def fastflow_share(case: Case, rule: str = "paper") -> float:
    """What FastFlow's rule says; 0 where it would not offload."""
    metrics = metrics_of(case)
    if not fastflow.stalled(metrics):
        return 0.0
    return fastflow.paper_ratio(metrics) if rule == "paper" else fastflow.code_ratio(metrics)


def metrics_of(case: Case) -> fastflow.Metrics:
    """FastFlow's Table 1, from the calibration."""
    assert case.alone is not None, "it is calibrated"
    assert case.remote is not None, "it is calibrated"
    with_all = case.remote.training_cpu + case.remote.local_busy
    if case.workload.kind == "permits":
        with_all += case.environment.setup(case.workload)["receive_seconds"]
    without = case.alone.training_cpu + case.alone.local_busy
    trained = (1 - case.alone.waited) / case.alone.rate
    return fastflow.Metrics(
        accelerator=1 / trained,
        local=case.alone.rate,
        remote=case.remote.rate,
        overhead=with_all / without,
    )


async def sweep(machine: AnyMachine, case: Case, times: Times, source: random.Random) -> None:
    """All shares, in a shuffled turn."""
    for share in source.sample(SHARES, len(SHARES)):
        run = await machine.run(case.workload.name, share, times.sweep, half=JUDGED)
        case.swept[share] = run.rate


def finalists(case: Case) -> list[float | None]:
    """Shares that are judged: the two best of the sweep, or none without one; and FastFlow's."""
    best = sorted(case.swept, key=lambda share: -case.swept[share])[:2] or [0.0]
    again = [AGAIN] if case.swept else []
    return list(dict.fromkeys([*best, fastflow_share(case), *again]))


async def judge(
    machine: AnyMachine, case: Case, shares: Sequence[float | None], times: Times
) -> None:
    """Run each for longer, in mirrored turns, until all are known well enough."""
    for turn in range(times.rounds):
        if turn >= LEAST_ROUNDS and max(error_of(case.finals[one]) for one in shares) <= SURE:
            return
        for share in shares if turn % 2 == 0 else reversed(shares):
            forced = 0.0 if share is OURS and not case.number else share
            if share == AGAIN:
                forced = best_of(case)
            run = await machine.run(case.workload.name, forced, times.final, half=JUDGED)
            case.finals.setdefault(share, []).append(run.rate)
            if share is OURS:
                case.made_remote.append(run.remote)


def best_of(case: Case) -> float:
    """The best share of the sweep, by its short runs."""
    return max(case.swept, key=lambda share: case.swept[share])


def _apart(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def row_of(case: Case) -> dict[str, Any]:
    """A case's figures."""
    rates = {share: mean(values) for share, values in case.finals.items()}
    again = rates.pop(AGAIN, None)
    ours, theirs = rates[OURS], fastflow_share(case)
    shares = {share: rate for share, rate in rates.items() if share is not OURS}
    best_share = max(shares, key=lambda one: shares[one])
    best = max(rates.values())
    decision, tuned = case.decision, case.tuned
    return {
        "workload": case.workload.name,
        "environment": case.environment.name,
        "kind": case.workload.kind,
        "sweep": [round(case.swept[share], 2) for share in SHARES] if case.swept else [],
        "best_share": best_share,
        "best_rate": round(best, 2),
        "alone_rate": round(case.alone.rate, 2) if case.alone else None,
        "chosen_workers": case.number,
        "decided_workers": decision.data_workers if decision else 0,
        "chosen_share": round(mean(case.made_remote), 3),
        "cut": "whole batch" if case.number else "all local",
        "promised_rate": round(decision.promised.rate, 2) if decision else None,
        "rate": round(ours, 2),
        "loss": round(best / ours - 1, 4),
        "spread": round(max(max(each) / min(each) - 1 for each in case.finals.values()), 4),
        "error": round(max(map(error_of, case.finals.values())), 4),
        "rounds": max(map(len, case.finals.values())),
        "noise": round(_apart(rates[best_of(case)], again), 4) if again else None,
        "fastflow_share": round(theirs, 3),
        "fastflow_rate": round(rates[theirs], 2),
        "fastflow_loss": round(best / rates[theirs] - 1, 4),
        "fastflow_code_share": round(fastflow_share(case, "code"), 3),
        "stage": str(tuned.stage) if tuned else "none",
        "why": (tuned.why if tuned else decision.why if decision else "no profile")[:200],
    }
