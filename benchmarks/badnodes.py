"""Bad machines among 10,000: which are named, and after how many rounds of pairs.

    python -m benchmarks.badnodes --json
    python -m benchmarks.badnodes --cluster --json

Simulated machines of three kinds of hardware measure compute, memory and their link to a partner,
each with noise, now and then disturbed for a moment, as `WORLD` says. One in a hundred is planted:
slow in one of the three (a fifth to six tenths of its class), or failing on its link, most of the
time. Three ways to find them see the same worlds:

- ``penstock``: `penstock.trainer.nodecheck.check`, the rounds that a job runs;
- ``two rounds``: as DLRover does it (``rdzv_manager.py``): one time for all that a pair does, the
  smaller of two rounds; in the second the slowest are paired with the fastest; above twice the
  median is slow, and who failed in both is faulty; here for each class of hardware by itself;
- ``binary search``: whole groups exchange, and one that fails or is slow is halved, all halves at
  the same time, down to single machines beside a good one.

Recall is the share of the planted that are named, precision the share of the named that were
planted, over all seeds. Nothing waits: the seconds are those of deciding. With ``--cluster`` real
jobs on the embedded cluster follow (`benchmarks.badnodes_cluster`).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import badnodes_cluster
from benchmarks.goals import at_least, at_most, report
from penstock.trainer.nodecheck.check import (
    MOST_ROUNDS,
    Check,
    Measurement,
    Verdict,
    findings,
    next_round,
)
from penstock.trainer.nodecheck.outliers import Speed

GOAL: Final = 0.99
HARDWARE: Final = {"old": (0.2, 1.0), "usual": (0.7, 2.2), "new": (0.1, 5.0)}
"""Share of the machines and speed of each class."""
ENDLESS: Final = 1000.0
"""Seconds of a pair that failed."""


@dataclass(frozen=True)
class World:
    """How machines behave."""

    planted: float = 0.01
    noise: float = 0.04
    disturbed: float = 0.005
    """Measurements that something else makes two to four times slower."""
    lost: float = 0.001
    """Pairs of good machines that fail nevertheless."""
    failing: float = 0.95
    """Pairs with a failing machine that fail."""


WORLD: Final = World()


class Cluster:
    """Machines with planted faults, and what they measure."""

    def __init__(self, machines: int, seed: int, world: World = WORLD) -> None:
        self._random = random.Random(seed)
        self._world = world
        names = [f"node-{number:05}" for number in range(machines)]
        shares = [share for share, _ in HARDWARE.values()]
        self.hardware = dict(
            zip(names, self._random.choices(list(HARDWARE), shares, k=machines), strict=True)
        )
        self.slow: dict[str, dict[Speed, float]] = {}
        self.failing: set[str] = set()
        for name in self._random.sample(names, round(machines * world.planted)):
            kind = self._random.choice([*Speed, None])
            if kind is None:
                self.failing.add(name)
            else:
                self.slow[name] = {kind: self._random.uniform(0.2, 0.6)}

    @property
    def planted(self) -> set[str]:
        """The bad machines."""
        return {*self.slow, *self.failing}

    def own(self, name: str, what: Speed) -> float:
        """What a machine would reach in a measurement of its own."""
        usual = HARDWARE[self.hardware[name]][1] * self.slow.get(name, {}).get(what, 1.0)
        if self._random.random() < self._world.disturbed:
            usual /= self._random.uniform(2, 4)
        return usual * self._random.lognormvariate(0, self._world.noise)

    def fails(self, *names: str) -> bool:
        """Whether these do not get their bytes across."""
        bad = sum(name in self.failing for name in names)
        return any(self._random.random() < self._world.failing for _ in range(bad)) or (
            self._random.random() < self._world.lost
        )

    def measure(self, pair: tuple[str, str]) -> list[Measurement]:
        """What the two measure in one round."""
        there = [name for name in pair if name]
        failed = len(there) == 2 and self.fails(*there)
        link = min(self.own(name, Speed.LINK) for name in there)
        measured = []
        for name, partner in zip(there, reversed(there), strict=True):
            speeds = {what: self.own(name, what) for what in (Speed.COMPUTE, Speed.MEMORY)}
            if len(there) == 2 and not failed:
                speeds[Speed.LINK] = link
            measured.append(Measurement(name, partner if len(there) == 2 else "", speeds, failed))
        return measured


@dataclass(frozen=True)
class Found:
    """What one way has named."""

    named: set[str]
    rounds: int
    measured: int
    """Measurements of single machines, over all rounds."""


def by_check(cluster: Cluster) -> Found:
    """As a job does it."""
    check, measured = Check(cluster.hardware), 0
    while (pairs := next_round(check)) is not None:
        done = [one for pair in pairs for one in cluster.measure(pair)]
        measured += len(done)
        check = check.add(done)
    bad = (Verdict.SLOW, Verdict.FAILING)
    named = {name for name, found in findings(check).items() if found.verdict in bad}
    return Found(named, len(check.rounds), measured)


def by_two_rounds(cluster: Cluster) -> Found:
    """As DLRover does it, and for each class of hardware alone, which it does not tell apart."""
    named, measured = set[str](), 0
    for kind in HARDWARE:
        names = [name for name, hardware in cluster.hardware.items() if hardware == kind]
        found = _two_rounds(cluster, names)
        named |= found.named
        measured += found.measured
    return Found(named, 2, measured)


def _two_rounds(cluster: Cluster, names: list[str]) -> Found:
    took: dict[str, float] = {}
    well: set[str] = set()
    order, measured = names, 0
    for _ in range(2):
        for one, other in zip(order[::2], order[1::2], strict=False):
            measured += 2
            fails = cluster.fails(one, other)
            link = min(cluster.own(each, Speed.LINK) for each in (one, other))
            for each in (one, other):
                own = (cluster.own(each, what) for what in (Speed.COMPUTE, Speed.MEMORY))
                seconds = sum(1 / speed for speed in own) + 1 / link
                seconds = ENDLESS if fails else seconds
                took[each] = min(seconds, took.get(each, seconds))
                well.update([] if fails else [each])
        by_time = sorted(names, key=lambda each: took.get(each, 0.0))
        half = len(by_time) // 2
        order = [each for pair in zip(by_time, reversed(by_time), strict=True) for each in pair]
        order = order[: 2 * half]
    usual = median(took.values())
    slow = {name for name, seconds in took.items() if seconds > 2 * usual}
    return Found(slow | (set(took) - well), 2, measured)


def by_halves(cluster: Cluster) -> Found:
    """Groups that fail, or of which one is slower than it may be, are halved."""
    usual = {kind: speed for kind, (_, speed) in HARDWARE.items()}
    groups, named, rounds, measured = [list(cluster.hardware)], set[str](), 0, 0
    while groups:
        rounds += 1
        halves = []
        for group in groups:
            measured += len(group)
            bad = cluster.fails(*group) or any(
                cluster.own(name, what) < usual[cluster.hardware[name]] / 1.5
                for name in group
                for what in Speed
            )
            if bad and len(group) == 1:
                named.add(group[0])
            elif bad:
                middle = len(group) // 2
                halves += [group[:middle], group[middle:]]
        groups = halves
    return Found(named, rounds, measured)


WAYS: Final = {"penstock": by_check, "two rounds": by_two_rounds, "binary search": by_halves}


def run(machines: int, seeds: range) -> list[dict[str, Any]]:
    """One row for each way."""
    rows = []
    for name, way in WAYS.items():
        planted = named = right = measured = 0
        rounds: list[int] = []
        seconds: list[float] = []
        for seed in seeds:
            cluster = Cluster(machines, seed)
            began = time.process_time()
            found = way(cluster)
            seconds.append(time.process_time() - began)
            planted += len(cluster.planted)
            named += len(found.named)
            right += len(found.named & cluster.planted)
            measured += found.measured
            rounds.append(found.rounds)
        rows.append(
            {
                "way": name,
                "planted": planted,
                "named": named,
                "recall": round(right / planted, 4) if planted else None,
                "precision": round(right / named, 4) if named else None,
                "rounds": max(rounds),
                "measurements_per_machine": round(measured / machines / len(seeds), 3),
                "cpu_seconds": round(median(seconds), 3),
            }
        )
    return rows


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worlds", type=int, default=10, help="how many seeds, from --seed on")
    parser.add_argument("--cluster", action="store_true", help="real jobs, too: some minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows = run(options.machines, range(options.seed, options.seed + options.worlds))
    own = rows[0]
    goals = [
        at_least("recall", GOAL, own["recall"]),
        at_least("precision", GOAL, own["precision"]),
        at_most("rounds", MOST_ROUNDS, own["rounds"]),
    ]
    result: dict[str, Any] = {
        "seed": options.seed,
        "load": round(os.getloadavg()[0], 2),
        "machines": options.machines,
        "worlds": options.worlds,
        "rows": rows,
    }
    if options.cluster:
        with tempfile.TemporaryDirectory(prefix="badnodes-") as folder:
            cases = badnodes_cluster.run(Path(folder), lambda text: print(text, file=sys.stderr))
        result["cluster"] = [asdict(case) for case in cases]
        wrong = [case.name for case in cases if not case.right]
        goals.append(at_most("cases on the cluster that were named wrongly", 0, len(wrong)))
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
