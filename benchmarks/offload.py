"""What share of its batches a job should have made elsewhere, and whether Penstock finds it.

    python -m benchmarks.offload --json

24 cases: five of FastFlow's workloads (PVLDB 16(5)) in three of its environments, as permits, and
three programs with real work (files, decoding, transforms) in three environments on real cores;
see `benchmarks.offloading.cases`. In each, shares of 0 to 1 are swept by tenths
(PENSTOCK_DATA_SHARE). ``loss`` is the best rate of the sweep and ours, by ours, less one;
``fastflow_loss`` likewise of the share that FastFlow's rule has from the same figures. ``spread``
is by how much one and the same share differed between its judged runs, at worst, ``error`` the
greatest standard error of a rate; ``noise`` is by how much the sweep's best share differs from
itself when it is judged as two: it has the same goals as ours, since a run in which it misses them
decides nothing. Cases of permits obey the model by construction: so the real ones have goals of
their own. Calibration and judged runs have different samples, divided by ``--seed``; how:
`benchmarks.offloading.judging`.

``--virtual``: the cases of permits in simulated time, with the same decisions and the same judge:
what is lost there is no machine's noise.

``--threshold``: programs that differ in what data workers may bring, 2 to 20 %, likewise in
simulated time: below 10 % there are to be none (FastFlow's Algorithm 1, line 3), which loses that
gain, and so more than 3 %. Their goal is that nothing is lost from there on.

``--harmful``: 20 cases in which data workers cannot help, for four reasons: none is to have one in
the end, and all are to be as fast as the program without Penstock.

``--figure 6``: the shape of FastFlow's Fig. 6, seven workloads in six environments.
``--plot FOLDER`` draws what was measured: Fig. 9 and 10, with Fig. 8 by the model
(`benchmarks.cuts` measures a cut); with ``--figure 6`` that one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_least, at_most, report, table
from benchmarks.offloading import figures
from benchmarks.offloading.cases import FIGURE_6, SWEPT, THRESHOLD, Environment, Plan, Workload
from benchmarks.offloading.harmful import harmful_goals, run_harmful
from benchmarks.offloading.judging import (
    OURS,
    AnyMachine,
    Case,
    Times,
    calibrate,
    finalists,
    judge,
    look,
    row_of,
    sweep,
)
from benchmarks.offloading.machine import Machine
from benchmarks.offloading.virtual import VirtualMachine
from penstock.throughput.decision.offload import LEAST_GAIN

NEAR: Final = 0.03
NEAR_GOAL: Final = 0.9
WORST_GOAL: Final = 0.08
HARMFUL_ROUNDS: Final = 2
ERROR: Final = 0.01
"""Of what a gain is predicted with."""
VIRTUAL_SECONDS: Final = 8.0
"""Of a simulated run: as long as no rate depends on where it ends."""


async def measure(
    environment: Environment,
    workloads: list[Workload],
    times: Times,
    seed: int,
    *,
    swept: bool,
    virtual: bool = False,
) -> list[dict[str, Any]]:
    """All cases of an environment."""
    source = random.Random(f"{seed} {environment.name}")
    cases = [Case(one, environment) for one in source.sample(workloads, len(workloads))]
    if virtual:
        machine = VirtualMachine(environment, workloads, seed)
        await run_cases(machine, cases, times, source, swept=swept)
    else:
        with TemporaryDirectory() as name:
            async with Machine(environment, workloads, Path(name), seed) as real:
                await run_cases(real, cases, times, source, swept=swept)
    rows = [row_of(case) for case in cases]
    print(table([{k: v for k, v in row.items() if k != "sweep"} for row in rows]), file=sys.stderr)
    return rows


async def run_cases(
    machine: AnyMachine, cases: list[Case], times: Times, source: random.Random, *, swept: bool
) -> None:
    """Calibrate, decide, and judge them."""
    most = machine.environment.remote
    await machine.set_workers(most)
    for case in cases:
        await calibrate(machine, case)
    for case in cases:
        if swept:
            await sweep(machine, case, times, source)
        await settle(machine, case, only=most)
        here = case.settled and case.number in (0, most)
        shares = finalists(case)
        await judge(machine, case, [*shares, OURS] if here else shares, times)
    # Data workers are ended one by one, and started again only where the tuning climbs.
    for case in sorted(cases, key=lambda one: -one.number):
        if OURS not in case.finals:
            await settle(machine, case)
            await have(machine, case.number)
            await judge(machine, case, [OURS], times)


async def settle(machine: AnyMachine, case: Case, only: int | None = None) -> None:
    """Follow the tuning to its end; ``only``: as long as it wants so many data workers."""
    while not case.settled and (only is None or case.number == only):
        await have(machine, case.number)
        await look(machine, case)


async def have(machine: AnyMachine, number: int) -> None:
    """So many data workers; those of a case without any have nothing to do."""
    if number and machine.workers != number:
        await machine.set_workers(number)


async def run_plan(
    plan: Plan, times: Times, seed: int, *, swept: bool, virtual: bool = False
) -> list[dict[str, Any]]:
    """All cases of a plan."""
    rows = []
    for environment, workloads in plan.pairs:
        rows += await measure(environment, workloads, times, seed, swept=swept, virtual=virtual)
    return rows


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """What was to be reached, by the cases that were run."""
    goals = []
    for kind, chosen in (
        ("all", rows),
        ("real", [row for row in rows if row["kind"] == "real"]),
    ):
        if not chosen:
            continue
        losses = [row["loss"] for row in chosen]
        theirs = [row["fastflow_loss"] for row in chosen]
        within = sum(one <= NEAR for one in losses) / len(losses)
        goals.append(at_least(f"{kind}: within 3 % of the best", NEAR_GOAL, round(within, 3)))
        goals.append(at_most(f"{kind}: worst loss", WORST_GOAL, max(losses)))
        for name, of in (("median", median), ("mean", lambda x: sum(x) / len(x)), ("worst", max)):
            bound, got = round(of(theirs), 4), round(of(losses), 4)
            goals.append(at_most(f"{kind}: {name} loss, FastFlow's rule", bound, got))
        noise = [row["noise"] for row in chosen if row["noise"] is not None]
        if noise:
            sure = sum(one <= NEAR for one in noise) / len(noise)
            name = f"{kind}: the best share beside itself"
            goals.append(at_least(f"{name}, within 3 %", NEAR_GOAL, round(sure, 3)))
            goals.append(at_most(f"{name}, worst", WORST_GOAL, max(noise)))
    return goals


def threshold_goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """Nothing is lost but what the rule gives away."""
    below = [row["loss"] for row in rows if not row["chosen_workers"]]
    above = [row["loss"] for row in rows if row["chosen_workers"]]
    return [
        at_most("worst loss without data workers", LEAST_GAIN + ERROR, max(below, default=0.0)),
        at_most("worst loss with data workers", NEAR, max(above, default=0.0)),
    ]


def chosen_plan(plan: Plan, cases: str, kinds: str) -> Plan:
    """Some of a plan: ``cases`` are words that a case's "workload in environment" contains."""
    wanted, allowed = [one for one in cases.split(";") if one], kinds.split(",")
    pairs = []
    for environment, workloads in plan.pairs:
        found = [
            one
            for one in workloads
            if one.kind in allowed
            and (not wanted or any(word in f"{one.name} in {environment.name}" for word in wanted))
        ]
        if found:
            pairs.append((environment, found))
    return Plan(pairs)


def main() -> int:
    """Measure, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", default="", help='some: "T in 7:21;jpeg"')
    parser.add_argument("--kinds", default="permits,real")
    parser.add_argument("--rounds", type=int, help="of the judged runs, at most: 6; harmful: 2")
    parser.add_argument("--virtual", action="store_true", help="permits only, in simulated time")
    parser.add_argument("--threshold", action="store_true", help="gains of 2 to 20 %%, simulated")
    parser.add_argument("--harmful", action="store_true", help="cases that nothing can help")
    parser.add_argument("--figure", type=int, choices=(6,), help="of FastFlow, not the cases")
    parser.add_argument("--plot", type=Path, help="write the figures to this folder")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    options.virtual = options.virtual or options.threshold
    if options.virtual and options.harmful:
        parser.error("--virtual: the harmful cases compare with a program on a machine")
    times = Times() if options.rounds is None else Times(rounds=options.rounds)
    kinds = "permits" if options.virtual else options.kinds
    if options.virtual:
        times = Times(VIRTUAL_SECONDS, VIRTUAL_SECONDS, 2)
    load = [os.getloadavg()[0]]
    goals: list[Goal]
    if options.harmful:
        rounds = HARMFUL_ROUNDS if options.rounds is None else options.rounds
        rows = asyncio.run(run_harmful(options.seed, options.cases, options.kinds, rounds))
        goals = harmful_goals(rows)
    else:
        plans = FIGURE_6 if options.figure else THRESHOLD if options.threshold else SWEPT
        plan = chosen_plan(plans, options.cases, kinds)
        if not plan.pairs:
            parser.error(f"--cases: {options.cases!r} names none")
        swept = not options.figure
        running = run_plan(plan, times, options.seed, swept=swept, virtual=options.virtual)
        rows = asyncio.run(running)
        goals = figures.shape_goals(rows) if options.figure else goals_of(rows)
        if options.threshold:
            goals = threshold_goals(rows)
        if options.plot is not None:
            options.plot.mkdir(parents=True, exist_ok=True)
            figures.draw_figures(rows, options.plot, figure_6=bool(options.figure))
    load.append(os.getloadavg()[0])
    return report({"seed": options.seed, "load": load, "rows": rows}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
