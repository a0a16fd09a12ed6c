"""Cases in which data workers cannot help: none is to be kept, and nothing is to be slower.

Four reasons: the training waits for nothing; the link is so thin that next to nothing passes it;
all wait for one storage; a core elsewhere is worth a fortieth of one here. The last two reasons are
not seen before data workers are tried, and are what the tuning takes back.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_least, at_most, table
from benchmarks.offloading.cases import ENVIRONMENTS, FASTFLOW, REAL, Environment, Workload
from benchmarks.offloading.judging import Case, calibrate, look
from benchmarks.offloading.machine import JUDGED, Machine

SLOWER_GOAL: Final = 0.02
RUN_SECONDS: Final = 2.0
_SEVEN, _ONE = ENVIRONMENTS["7:7"], ENVIRONMENTS["1:1"]
_PATIENT: Final = [replace(one, step_seconds=0.05) for one in REAL.values()]


def _of(names: str) -> list[Workload]:
    return [FASTFLOW[name] for name in names]


_STORED: Final = replace(_SEVEN, name="7:7, storage", storage_seconds=0.025, cold=True)


HARMFUL: Final[list[tuple[str, Environment, list[Workload]]]] = [
    ("no stall", _SEVEN, _of("ML")),
    ("no stall", ENVIRONMENTS["14:7"], _of("GR")),
    ("no stall", ENVIRONMENTS["7:28"], _of("M")),
    ("no stall", _ONE, _PATIENT),
    ("thin link", replace(_SEVEN, name="7:7, 32 Mb/s", link=4e6), _of("TC")),
    ("thin link", replace(_ONE, name="1:1, 32 Mb/s", link=4e6), [REAL["jpeg"], REAL["arrays"]]),
    (
        "storage",
        replace(_SEVEN, name="7:7, storage", storage_seconds=0.025, cold=True),
        _of("STGR"),
    ),
    ("weak remote", replace(_SEVEN, name="7:7, weak", slowness=40.0), _of("SRTC")),
]


async def run_harmful(seed: int, cases: str, kinds: str, rounds: int) -> list[dict[str, Any]]:
    """A row for each case; ``cases`` and ``kinds`` as the command has them."""
    wanted, allowed = [one for one in cases.split(";") if one], kinds.split(",")
    rows: list[dict[str, Any]] = []
    for reason, environment, workloads in HARMFUL:
        chosen = [
            one
            for one in workloads
            if one.kind in allowed
            and (not wanted or any(word in f"{one.name} in {environment.name}" for word in wanted))
        ]
        if not chosen:
            continue
        with TemporaryDirectory() as name:
            machine = Machine(environment, chosen, Path(name), seed, beside_alone=True)
            async with machine:
                rows += await _measure(machine, reason, environment, chosen, rounds)
        print(table(rows[-len(chosen) :]), file=sys.stderr)
    return rows


async def _measure(
    machine: Machine, reason: str, environment: Environment, workloads: list[Workload], rounds: int
) -> list[dict[str, Any]]:
    cases = [Case(one, environment) for one in workloads]
    await machine.set_workers(environment.remote)
    for case in cases:
        await calibrate(machine, case)
        while not case.settled:
            if machine.workers != case.number:
                await machine.set_workers(case.number)
            await look(machine, case)
    rows = []
    for case in sorted(cases, key=lambda one: -one.number):
        if machine.workers != case.number:
            await machine.set_workers(case.number)
        name, rates, ratios = case.workload.name, [], []
        for turn in range(2 * rounds):
            pair = {}
            for alone in (False, True) if turn % 2 == 0 else (True, False):
                run = await machine.run(name, None, RUN_SECONDS, half=JUDGED, alone=alone)
                pair[alone] = run.rate
            rates.append(pair[False])
            ratios.append(pair[False] / pair[True])
        decision, tuned = case.decision, case.tuned
        rows.append(
            {
                "workload": name,
                "environment": environment.name,
                "kind": case.workload.kind,
                "reason": reason,
                "decided_workers": decision.data_workers if decision else 0,
                "kept_workers": case.number,
                "rate": round(median(rates), 2),
                "slower": round(1 - median(ratios), 4),
                "pairs": [round(one, 3) for one in ratios],
                "why": (tuned.why if tuned else decision.why if decision else "no profile")[:200],
            }
        )
    return rows


def harmful_goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """None offloaded, and nobody slowed down."""
    return [
        at_least("cases", 20, len(rows)),
        at_most("offloaded", 0, sum(row["kept_workers"] > 0 for row in rows)),
        at_most("worst slow-down", SLOWER_GOAL, max(row["slower"] for row in rows)),
    ]
