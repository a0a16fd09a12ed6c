"""DS-Analyzer's Figures 4, 11 and 12: what a cache of a part of the files does for training.

    python -m benchmarks.cache_figures --json --plot caches.png

Every epoch reads each file once, in a new random order (PVLDB 14(5), section 4.3.2). ``misses``: of
20,000 files, counted in a cache that drops what was used longest ago (LRU) and in one that never
drops anything (MinIO), beside the formulas of `penstock.throughput.limits.cache_hits`, which every
what-if about caches rests on, and beside what the paper counted in Linux's page cache. ``small``
(Fig. 12): four files and room for two, over all orders that there are.

``speed`` (Fig. 11) and ``epoch`` (Fig. 4) are arithmetic in multiples of min(P, G), which the paper
does not print: storage gives a half of it, since by equation 2 that is what its statement means
that a cache of 50 % is enough for AlexNet. An epoch is divided into computing, fetching that no
cache of this size can spare, and what LRU fetches on top; ``thrashing_linux`` has the paper's
misses. What programs then do with real files is in `benchmarks.stalls`, whose rows with caches are
measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import OrderedDict
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.goals import Goal, at_most, report
from penstock.throughput.limits.cache_hits import cache_for, fetch_rate, lru_hits, minio_hits

FILES: Final = 20_000
EPOCHS: Final = 4
SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
PUBLISHED_MISSES: Final = {0.35: 0.85, 0.65: 0.53}
"""Of Linux's page cache (sections 4.3.2 and 7.1)."""
STORAGE: Final = 0.5
"""Of min(P, G); 1 / (1 - 0.5) of it is 1."""
MEMORY: Final = 40.0
"""Of min(P, G): memory is some eighty times as quick as an SSD."""
ENOUGH: Final = 0.5
FORMULA_GOAL: Final = 0.01
HIGHEST: Final = 2.0
"""Multiples of min(P, G) that are drawn of F."""
SMALL_FILES, SMALL_ROOM = 4, 2


class LeastRecentlyUsed:
    """Room for so many files; reading one that is not there drops the one read longest ago."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._files: OrderedDict[int, None] = OrderedDict()

    def read(self, file: int) -> bool:
        """Whether it was there."""
        found = file in self._files
        if found:
            self._files.move_to_end(file)
        elif self._room:
            if len(self._files) >= self._room:
                self._files.popitem(last=False)
            self._files[file] = None
        return found


class NeverReplaced:
    """Room for so many files; when it is full it stays as it is (MinIO, section 6.1)."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._files: set[int] = set()

    def read(self, file: int) -> bool:
        """Whether it was there."""
        if file in self._files:
            return True
        if len(self._files) < self._room:
            self._files.add(file)
        return False


Cache = LeastRecentlyUsed | NeverReplaced
POLICIES: Final[dict[str, type[Cache]]] = {"LRU": LeastRecentlyUsed, "MinIO": NeverReplaced}
HITS: Final = {"LRU": lru_hits, "MinIO": minio_hits}


def missed(cache: Cache, order: Iterable[int]) -> int:
    """Files of an epoch that were not there."""
    return sum(not cache.read(file) for file in order)


def miss_rows(source: np.random.Generator) -> list[dict[str, Any]]:
    """Misses of an epoch after the first, as a share of all files."""
    rows = []
    for share in SHARES:
        for policy, kind in POLICIES.items():
            cache = kind(round(share * FILES))
            counts = [missed(cache, source.permutation(FILES).tolist()) for _ in range(EPOCHS)]
            counted = sum(counts[1:]) / len(counts[1:]) / FILES
            formula = 1 - HITS[policy](share)
            rows.append(
                {
                    "cached": share,
                    "policy": policy,
                    "missed": round(counted, 4),
                    "formula": round(formula, 4),
                    "error": round(formula - counted, 4),
                    "linux_published": PUBLISHED_MISSES.get(share),
                }
            )
    return rows


def small_rows() -> list[dict[str, Any]]:
    """Misses of two epochs, each counted for itself, over all their orders."""
    rows = []
    orders = list(permutations(range(SMALL_FILES)))
    for policy, kind in POLICIES.items():
        seen = []
        for first in orders:
            for second in orders:
                cache = kind(SMALL_ROOM)
                missed(cache, first)
                seen.append(missed(cache, second))
        mean = sum(seen) / len(seen)
        rows.append({"policy": policy, "least": min(seen), "mean": mean, "most": max(seen)})
    return rows


def speed_rows() -> list[dict[str, Any]]:
    """Rates as multiples of min(P, G)."""
    rows = []
    for percent in range(0, 101, 5):
        share = percent / 100
        fetch = fetch_rate(minio_hits(share), MEMORY, STORAGE)
        with_lru = fetch_rate(lru_hits(share), MEMORY, STORAGE)
        rows.append(
            {
                "cached": share,
                "F": round(fetch, 4),
                "speed": round(min(1.0, fetch), 4),
                "speed_lru": round(min(1.0, with_lru), 4),
            }
        )
    return rows


def epoch_rows() -> list[dict[str, Any]]:
    """The time of an epoch, as multiples of that without waiting."""
    rows = []
    for share in SHARES:
        ideal = max(1.0, 1 / fetch_rate(minio_hits(share), MEMORY, STORAGE))
        with_lru = max(1.0, 1 / fetch_rate(lru_hits(share), MEMORY, STORAGE))
        row: dict[str, Any] = {
            "cached": share,
            "computing": 1.0,
            "fetching": round(ideal - 1, 4),
            "thrashing": round(with_lru - ideal, 4),
        }
        if share in PUBLISHED_MISSES:
            hits = 1 - PUBLISHED_MISSES[share]
            linux = max(1.0, 1 / fetch_rate(hits, MEMORY, STORAGE))
            row["thrashing_linux"] = round(linux - ideal, 4)
        rows.append(row)
    return rows


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The three figures, what the paper has dashed."""
    from penstock.sim.report.plot import Curve, Panel
    from penstock.sim.report.plot import draw as draw_panels

    def curve(label: str, rows: list[dict[str, Any]], name: str) -> Curve:
        return Curve(label, [row["cached"] for row in rows], [row[name] for row in rows])

    by_policy = {
        policy: [row for row in found["misses"] if row["policy"] == policy] for policy in POLICIES
    }
    linux = sorted(PUBLISHED_MISSES.items())
    panels = [
        Panel(
            "Fig. 4: time of an epoch, storage at half of min(P, G)",
            "share of the files that is cached",
            "of the time without waiting",
            [
                Curve(
                    "LRU: with thrashing",
                    [row["cached"] for row in found["epoch"]],
                    [1 + row["fetching"] + row["thrashing"] for row in found["epoch"]],
                ),
                Curve(
                    "what cannot be spared",
                    [row["cached"] for row in found["epoch"]],
                    [1 + row["fetching"] for row in found["epoch"]],
                ),
                curve("computing", found["epoch"], "computing"),
            ],
        ),
        Panel(
            "Fig. 11: speed, 50 % published as enough",
            "share of the files that is cached",
            "of min(P, G)",
            [
                curve("F", [row for row in found["speed"] if row["F"] <= HIGHEST], "F"),
                curve("speed", found["speed"], "speed"),
                curve("speed with LRU", found["speed"], "speed_lru"),
                Curve("enough, published", [ENOUGH], [1.0], beside="speed"),
            ],
        ),
        Panel(
            "Fig. 12: files that are missed in an epoch",
            "share of the files that is cached",
            "share of the files",
            [
                curve("LRU", by_policy["LRU"], "missed"),
                curve("MinIO", by_policy["MinIO"], "missed"),
                Curve(
                    "Linux, published",
                    [share for share, _ in linux],
                    [misses for _, misses in linux],
                    beside="LRU",
                ),
            ],
        ),
    ]
    draw_panels(panels, path)


def main() -> int:
    """Count, compute, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw the figures (.png, .svg, .pdf)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    load = [os.getloadavg()[0]]
    found = {
        "misses": miss_rows(np.random.default_rng(options.seed)),
        "small": small_rows(),
        "speed": speed_rows(),
        "epoch": epoch_rows(),
    }
    if options.plot is not None:
        draw(found, options.plot)
    load.append(os.getloadavg()[0])
    enough = cache_for(1.0, MEMORY, STORAGE)
    by_policy = {row["policy"]: row for row in found["small"]}
    outside = [
        row
        for row in found["misses"]
        if row["linux_published"] is not None
        and not 1 - row["cached"] <= row["linux_published"] <= 1 - lru_hits(row["cached"])
    ]
    goals: list[Goal] = [
        at_most("formula of misses, worst error", FORMULA_GOAL, _worst(found["misses"])),
        at_most("MinIO's misses of four files, most", 2, by_policy["MinIO"]["most"]),
        at_most("LRU's misses of four files, most", 4, by_policy["LRU"]["most"]),
        at_most("published misses outside of the two formulas", 0, len(outside)),
    ]
    result = {"seed": options.seed, "load": load, "enough": enough, **found}
    return report(result, goals, as_json=options.json)


def _worst(rows: list[dict[str, Any]]) -> float:
    return max(abs(row["error"]) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
