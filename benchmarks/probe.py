"""How near `penstock profile` comes to the speed of a training that never waits for its data.

    python -m benchmarks.probe --json

That speed, G, is measured in the running program, which goes on with the same batches in the same
order: delivery is withheld until the loader's window is ready, and then let go while its workers
get no new work. Each program of `benchmarks.probe_programs` runs in turns alone, profiled, and with
its batches made beforehand; the last is what G is compared with. The digest of all batches and of
the trained weights has to be the same in all of them. ``lost`` is by how much longer a program of
``--batches`` batches takes, as a share of a run of 20 minutes, which FastFlow's sessions take up to
3.1 % of (PVLDB 16(5), Table 4). ``faults`` are pages that a step fills anew: where they differ the
programs differ in what their allocator gave back, and not in their training; so those that compute
also run with an allocator that gives nothing back (``keeps``). Figures are medians over the rounds:
two, and more, up to ``--rounds``, until what was probed and what it is compared with are each known
to a hundredth. Each of the eight programs then takes half a minute or more, most of it for
starting; what is being run is on stderr.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks.goals import Goal, at_most, error_of, report, table
from benchmarks.profile_cost import RUN
from benchmarks.programs import answer_of, profiling
from penstock.throughput.profiles.profile import loads

PROGRAM: Final = Path(__file__).with_name("probe_programs") / "train.py"
ERROR_GOAL: Final = 0.03
LOST_GOAL: Final = 0.005
RUN_SECONDS: Final = 120.0
LEAST_ROUNDS: Final = 2
SURE: Final = 0.01
"""Standard error of a rate, as a share of it: a third of what is asked of G."""
ALONE, PROFILED, REPLAYED = WAYS = ("alone", "profiled", "replayed")


class Case(NamedTuple):
    """A program."""

    step: str
    workers: int
    iterable: bool = False
    keeps: bool = False
    """Its allocator gives nothing back to the system."""


CASES: Final = (
    Case("sleep", 0),
    Case("sleep", 1),
    Case("sleep", 2),
    Case("compute", 0),
    Case("compute", 1),
    Case("compute", 0, keeps=True),
    Case("compute", 1, keeps=True),
    Case("sleep", 1, iterable=True),
)
KEEPING: Final = ("env", "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=17179869184")


def run(case: Case, way: str, batches: int, profile: Path) -> dict[str, Any]:
    """What the program says of itself."""
    program = [sys.executable, str(PROGRAM), "--step", case.step, "--workers", str(case.workers)]
    program += ["--batches", str(batches), *["--iterable"] * case.iterable]
    if way == REPLAYED:
        program.append("--replay")
    if way == PROFILED:
        program = profiling(profile, program, "--no-storage")
    if case.keeps:
        program = [*KEEPING, *program]
    found: dict[str, Any] = answer_of(program, RUN_SECONDS)
    return found


def measure(case: Case, rounds: int, batches: int, source: random.Random) -> dict[str, Any]:
    """One row."""
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    probed = list[float]()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        for turn in range(rounds):
            rates = [one["rate"] for one in seen[REPLAYED]]
            if turn >= LEAST_ROUNDS and max(error_of(probed), error_of(rates)) <= SURE:
                break
            for way in source.sample(WAYS, len(WAYS)):
                print(f"{_named(case)}: round {turn + 1}, {way}", file=sys.stderr, flush=True)
                seen[way].append(run(case, way, batches, path))
            profile = loads(path.read_text())
            probed.append(profile.batch_size / profile.step.value)
    true = median(one["rate"] for one in seen[REPLAYED])
    found = median(probed)
    digests = {one["digest"] for ones in seen.values() for one in ones}
    seconds = {way: median(one["seconds"] for one in seen[way]) for way in WAYS}
    faults = {f"faults_{way}": round(median(one["faults"] for one in seen[way])) for way in WAYS}
    return {
        "step": case.step,
        "workers": case.workers,
        "dataset": "iterable" if case.iterable else "map",
        "keeps": case.keeps,
        "rounds": len(probed),
        "alone": round(median(one["rate"] for one in seen[ALONE]), 1),
        "true": round(true, 1),
        "probed": round(found, 1),
        "error": round(found / true - 1, 4),
        "same_bits": len(digests) == 1,
        **faults,
        "alone_seconds": round(seconds[ALONE], 2),
        "profiled_seconds": round(seconds[PROFILED], 2),
        "lost": round(max(0.0, seconds[PROFILED] - seconds[ALONE]) / RUN, 5),
    }


def _named(case: Case) -> str:
    kind = ", iterable" if case.iterable else ""
    memory = ", memory kept" if case.keeps else ""
    return f"{case.step}, {case.workers} loader workers{kind}{memory}"


def main() -> int:
    """Run, profile, replay, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="at most")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--cases", default="", help='some: "compute, 0"')
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source = random.Random(options.seed)
    load = [os.getloadavg()[0]]
    rows = []
    cases = [case for case in CASES if options.cases in _named(case)]
    if not cases:
        parser.error(f"--cases {options.cases}: must be in one of {[_named(one) for one in CASES]}")
    for case in cases:
        rows.append(measure(case, options.rounds, options.batches, source))
        print(table(rows[-1:]), file=sys.stderr, flush=True)
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("error of G", ERROR_GOAL, max(abs(row["error"]) for row in rows)),
        at_most("programs with other bits", 0, sum(not row["same_bits"] for row in rows)),
        at_most("lost of 20 min", LOST_GOAL, max(row["lost"] for row in rows)),
    ]
    result = {"seed": options.seed, "load": load, "published": {"session": 0.031}, "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
