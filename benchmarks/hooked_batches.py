"""How much dearer a batch is to make while `penstock profile` looks.

    python -m benchmarks.hooked_batches --json

The programs of `benchmarks.stalls` make batches in this process, of the same files, in turns that
are mirrored (plain, hooked, hooked, plain), and CPU seconds of the thread are compared, so that
other load on the machine counts on both sides. ``hooked`` is the median of the turns' ratios, less
one; ``control`` the same with nothing hooked on either side, which is what this can tell; and
``outside_us`` what of it is before and after the seconds that a profile counts as the batch's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_most, report
from benchmarks.stalls import KINDS, PROGRAM
from penstock.data.profiling.maker_hooks import Makers
from penstock.data.profiling.record_files import read_records

BATCH: Final = 16
DEARER_GOAL: Final = 0.03
_WARM: Final = 16
"""Batches of each side before any counts: as many files are opened as are remembered."""


def program() -> Any:
    """The module of the programs, which is a script."""
    spec = importlib.util.spec_from_file_location("stalls_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compared(
    folder: Path, records: Path, kind: str, turns: int, *, hooks: bool
) -> tuple[float, float, float]:
    """CPU seconds of a plain batch, by what share the other is dearer, and what was not counted."""
    from torch.utils.data import default_collate
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    class Other(_MapDatasetFetcher):
        """The class that is hooked, so that the plain one stays as it is."""

    makers = Makers(records)
    if hooks:
        makers.install(Other, lambda: None)
    files = program().Files
    sides = [
        kind_of(files(folder / kind, kind), True, default_collate, False)
        for kind_of in (_MapDatasetFetcher, Other)
    ]
    source = random.Random(5)
    seconds: list[list[float]] = [[], []]
    for turn in range(_WARM + turns):
        indices = [source.randrange(len(sides[0].dataset)) for _ in range(BATCH)]
        for side in (0, 1, 1, 0):
            begun = time.thread_time()
            sides[side].fetch(indices)
            if turn >= _WARM:
                seconds[side].append(time.thread_time() - begun)
    makers.end()
    plain, other = ([a + b for a, b in zip(one[::2], one[1::2], strict=True)] for one in seconds)
    counted = [one["c"] for _, one in read_records(records) if one["k"] == "made"][-2 * turns :]
    outside = [whole - part for whole, part in zip(seconds[1], counted, strict=False)]
    dearer = median(b / a for a, b in zip(plain, other, strict=True)) - 1
    return median(plain) / 2, dearer, median(outside) if outside else 0.0


def main() -> int:
    """Make batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the order of the comparisons")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    load = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for kind in options.kinds.split(","):
            program().write_files(folder / kind, kind)
            found = {}
            for hooks in random.Random(options.seed).sample([False, True], 2):
                records = folder / f"{kind}-{hooks}"
                records.mkdir()
                found[hooks] = compared(folder, records, kind, options.turns, hooks=hooks)
            plain, dearer, outside = found[True]
            rows.append(
                {
                    "program": kind,
                    "plain_ms": round(1e3 * plain, 3),
                    "hooked": round(dearer, 4),
                    "control": round(found[False][1], 4),
                    "outside_us": round(1e6 * outside, 1),
                }
            )
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("a hooked batch is dearer by", DEARER_GOAL, max(row["hooked"] for row in rows))
    ]
    return report({"seed": options.seed, "load": load, "rows": rows}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
