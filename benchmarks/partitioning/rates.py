"""GoldMiner's Fig. 10: how much faster than with the dataset alone moved.

The paper's *simple partition* moves the dataset, its automatic one the stateless part of the step
too. Here each program that moves something trains with one local worker under ``--partition never``
and ``--partition auto``, alternating: two processes, and no more than two cores.

``limit``: the gain that two cores have room for, by the seconds of the processor that a step takes:
with the dataset alone moved it takes as long as the busier of both processes; at best as long as
half of all work, or as the part that cannot move, whichever is longer. How much could move is the
moved part's share of a step as recorded, or what a declared function took. ``gain`` is of the
clock, and means nothing where other programs run beside this one; ``cpu_gain`` is what it would be
on two free cores, by the seconds of the processor of both processes, and says nothing of what they
wait for each other. Seconds are those of the settled epoch that a quarter of them are faster than,
of both ways: what else a machine does makes epochs slower, and none faster.
"""

from __future__ import annotations

import os
from statistics import median
from typing import Any, Final

from benchmarks.goals import Goal, at_least
from benchmarks.partitioning.workloads import BATCH, WORKLOADS, train

PUBLISHED: Final = {"clicks": ("WDL", 1.4), "tokenise": ("DeepFM", 1.6)}
"""The nearest of the paper's; its third is a production model of 1.43."""
WORKERS: Final = 1
EPOCHS: Final = 6
SETTLED: Final = 2
"""Epochs before that are recorded and compared."""
LIMIT_GOAL: Final = 0.95
FAST_GOAL: Final = 1.6
FAST_COUNT: Final = 3
LEAST_GOAL: Final = 0.97
CALM_LOAD: Final = 0.5
"""Above that a rate says more about the machine than about the partition."""
WAYS: Final = ("never", "auto")


def run(names: list[str], steps: int, repeats: int) -> tuple[list[dict[str, Any]], list[Goal]]:
    """Rows, and their goals; ``names``: of workloads that move, or ``all``."""
    load = os.getloadavg()[0]
    able = [one for one in WORKLOADS if one.moves and not one.draws]
    chosen = [one for one in able if "all" in names or one.name in names]
    found: dict[str, dict[str, list[Any]]] = {one.name: {way: [] for way in WAYS} for one in chosen}
    for declared in (False, True):
        together = [one.name for one in chosen if one.declared is declared]
        for _ in range(repeats if together else 0):
            for way in WAYS:
                for its in train(together, ("--partition", way), WORKERS, steps, EPOCHS):
                    found[its["name"]][way].append(its)
    rows = [_row(one.name, found[one.name], steps) for one in chosen]
    return rows, _goals(rows, load)


def _row(name: str, found: dict[str, list[Any]], steps: int) -> dict[str, Any]:
    never, auto = (_milliseconds(found[way], steps) for way in WAYS)
    movable = median(
        _movable(*pair, steps) for pair in zip(found["never"], found["auto"], strict=True)
    )
    train_part = max(0.0, never["training"] - movable)
    before = max(never["training"], never["worker"])
    best = max(train_part, (never["training"] + never["worker"]) / 2)
    gain = never["step"] / auto["step"]
    cpu_gain = before / max(auto["training"], auto["worker"])
    limit = before / best
    of, published = PUBLISHED.get(name, ("", None))
    last = found["auto"][-1]
    return {
        "workload": name,
        "published": published,
        "published_of": of,
        "samples_per_second": {
            "dataset_boundary": round(1000 * BATCH / never["step"], 1),
            "partition": round(1000 * BATCH / auto["step"], 1),
        },
        "gain": round(gain, 3),
        "cpu_gain": round(cpu_gain, 3),
        "limit": round(limit, 3),
        "share_of_limit": round(gain / limit, 3),
        "cpu_share_of_limit": round(cpu_gain / limit, 3),
        "cpu_milliseconds": {
            "dataset_boundary": {key: round(never[key], 2) for key in ("training", "worker")},
            "partition": {key: round(auto[key], 2) for key in ("training", "worker")},
            "train_part": round(train_part, 2),
        },
        "losses_equal": len({one["losses"] for way in WAYS for one in found[way]}) == 1,
        "moved_steps": last["moved"],
        "steps": last["steps"],
    }


def _milliseconds(runs: list[Any], steps: int) -> dict[str, float]:
    """Of a step, in the settled epochs."""
    epochs = [epoch for one in runs for epoch in one["epochs"][SETTLED:]]
    names = ("step", "training", "worker")
    return {
        name: 1000 * _undisturbed([epoch[place] for epoch in epochs]) / steps
        for place, name in enumerate(names)
    }


def _undisturbed(seconds: list[float]) -> float:
    """See the module's docstring."""
    return sorted(seconds)[len(seconds) // 4]


def _movable(never: Any, auto: Any, steps: int) -> float:
    """Milliseconds of the processor that a step spends, in the program, on what can move."""
    if declared := never["declared_seconds"]:
        return float(1000 * declared / never["steps"])
    moved, whole = auto["recorded"]
    spent = _undisturbed([epoch[1] for epoch in never["epochs"][SETTLED:]])
    return float(1000 * spent / steps * moved / whole) if whole else 0.0


def _goals(rows: list[dict[str, Any]], load: float) -> list[Goal]:
    calm = load < CALM_LOAD
    gain, share = ("gain", "share_of_limit") if calm else ("cpu_gain", "cpu_share_of_limit")
    by = "by the clock" if calm else "by seconds of the processor"
    goals = []
    for row in rows:
        name = row["workload"]
        goals.append(at_least(f"{name}: gain, {by}", LEAST_GOAL, row[gain]))
        what = f"{name}: share of the two-core limit of {row['limit']}, {by}"
        goals.append(at_least(what, LIMIT_GOAL, row[share]))
        goals.append(at_least(f"{name}: losses are equal", 1, int(row["losses_equal"])))
    if len(rows) >= FAST_COUNT:
        fast = sum(row[gain] >= FAST_GOAL for row in rows)
        goals.append(
            at_least(f"programs at least {FAST_GOAL} times as fast, {by}", FAST_COUNT, fast)
        )
    return goals
