"""Hangs are planted in an unmodified DDP loop: is the right process named, where, and how soon?

    python -m benchmarks.hang --json
    python -m benchmarks.hang --cases 6 --minutes 2 --json
    python -m benchmarks.hang --cases 0 --minutes 10 --json

Two agents (``penstock run --nproc-per-node=1``) and a trainer, as two pods of a job would be; one
rank stops at some step: by SIGSTOP, in a lock, in an endless loop, in its dataset, in a checkpoint
that nobody takes, or in a collective that the other does not enter, where both wait. Named is what
the trainer's log says. Steps take 0.2 s, so that the usual pause is a second at most. Then nothing
is planted for ``--minutes``: steps of 0.05 to 8 s with evaluations of 15 s between, of which
nothing may be said.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.elastic.processes import ROOT, kill_tree
from benchmarks.goals import Goal, at_least, at_most, report
from benchmarks.programs import PENSTOCK

PROGRAM: Final = Path(__file__).with_name("hang_programs") / "train.py"
PLACES: Final = {
    "stopped": "",
    "lock": "hold_lock",
    "loop": "spin",
    "data": "__getitem__",
    "checkpoint": "save_state",
    "collective": "wait_alone",
}
WAITS_SECONDS: Final = 60.0
EVERY: Final = 200
"""Steps between two evaluations."""
USUAL_SECONDS: Final = 1.2
"""Between two statements of a process whose steps are short."""
_SAID: Final = re.compile(r"worker-(\d+): TrainingStandsStill: (?!over)(.*)")


@dataclass(frozen=True)
class Case:
    """One planted hang, and what was said of it."""

    kind: str
    rank: int
    named: tuple[int, ...]
    place: str
    right_rank: bool
    right_place: bool
    seconds: float | None
    """From where it was planted, less the usual pause; None: nothing was said."""


@contextmanager
def job(folder: Path, words: list[str]) -> Iterator[None]:
    """A trainer and two agents; they are gone at the end of the block."""
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    outside |= {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)), "OMP_NUM_THREADS": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, command: list[str], environ: dict[str, str]) -> None:
        with (folder / f"{name}.txt").open("wb") as file:
            started.append(
                subprocess.Popen([PENSTOCK, *command], env=environ, stdout=file, stderr=file)
            )

    try:
        start("trainer", ["trainer", "--port=0", "--workers=2"], outside)
        address = _address(folder / "trainer.txt")
        for rank in (0, 1):
            identity = {"PENSTOCK_RANK": str(rank), "PENSTOCK_NODE_NAME": f"node-{rank}"}
            start(
                f"worker-{rank}",
                ["run", f"--trainer={address}", "--nproc-per-node=1", "--", str(PROGRAM), *words],
                outside | identity,
            )
        yield
    finally:
        for process in started:
            psutil.wait_procs(kill_tree(process.pid), timeout=10)
            process.wait()


def _address(log: Path) -> str:
    deadline = time.monotonic() + WAITS_SECONDS
    while time.monotonic() < deadline:
        if found := re.search(r"listening on http://(\S+)", log.read_text()):
            return found.group(1)
        time.sleep(0.05)
    raise RuntimeError(f"the trainer did not come up: {log.read_text()[-2000:]}")


def hang(kind: str, rank: int, step: int, seed: int) -> Case:
    """Plant one hang, and wait for what is said of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with job(folder, [kind, str(rank), str(step), str(seed), "0", str(EVERY)]):
            planted = _wait(
                folder / f"worker-{rank}.txt", rf"HANG planted {kind} {rank} (\S+)", 180
            )
            if not planted:
                said = (folder / f"worker-{rank}.txt").read_text()
                raise RuntimeError(f"{kind} was never planted: {said[-2000:]}")
            found = _wait(folder / "trainer.txt", _SAID.pattern, WAITS_SECONDS)
            after = time.time() - float(planted)
            time.sleep(0.5)
            said_of = _SAID.findall((folder / "trainer.txt").read_text())
    named = tuple(sorted({int(one) for one, _ in said_of}))
    expected = (0, 1) if kind == "collective" else (rank,)
    of_rank = " ".join(text for one, text in said_of if int(one) == rank)
    return Case(
        kind=kind,
        rank=rank,
        named=named,
        place=of_rank[of_rank.find("before): ") + 9 :][:160],
        right_rank=named == expected,
        right_place=bool(of_rank) and PLACES[kind] in of_rank,
        seconds=round(after - USUAL_SECONDS, 2) if found else None,
    )


def _wait(log: Path, pattern: str, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.05)
    return ""


def alarms(minutes: float, seed: int, every: int = EVERY) -> int:
    """How often something was said while nothing stood still.

    ``every``: steps between two evaluations; the job goes on for its minutes and to the end of the
    first evaluation.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with job(folder, ["none", "0", "0", str(seed), str(int(minutes * 60)), str(every)]):
            if not _wait(folder / "worker-0.txt", r"HANG ended (\S+)", minutes * 60 + 300):
                raise RuntimeError((folder / "worker-0.txt").read_text()[-2000:])
            return len(_SAID.findall((folder / "trainer.txt").read_text()))


def goals_of(cases: list[Case], minutes: float, said: int | None) -> list[Goal]:
    """What has to be reached."""
    soonest = [one.seconds for one in cases if one.seconds is not None]
    goals = []
    if cases:
        ranks, places = sum(c.right_rank for c in cases), sum(c.right_place for c in cases)
        goals = [
            at_least("hangs with the right rank named", len(cases), ranks),
            at_least("hangs with the right place named", len(cases), places),
            at_most("seconds beyond the usual pause, at most", 10.0, max(soonest, default=99.0)),
        ]
    if said is not None:
        goals.append(at_most(f"false alarms in {minutes:g} minutes of uneven steps", 0, said))
    return goals


def main() -> None:
    """Parse the options, plant, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20, help="0: leave the first part out")
    parser.add_argument("--minutes", type=float, default=30.0, help="0: leave the last part out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cases < 0 or options.minutes < 0 or not (options.cases or options.minutes):
        parser.error("--cases and --minutes must be at least 0, and one of them more")
    load = os.getloadavg()[0]
    draws = random.Random(options.seed)
    kinds = list(PLACES)
    cases = [
        hang(kinds[number % len(kinds)], draws.randrange(2), 40 + draws.randrange(20), number)
        for number in range(options.cases)
    ]
    said = alarms(options.minutes, options.seed) if options.minutes else None
    rows = [asdict(one) for one in cases]
    figures = {
        "seed": options.seed, "load": [load, os.getloadavg()[0]], "false_alarms": said, "rows": rows
    }  # fmt: skip
    goals = goals_of(cases, options.minutes, said)
    raise SystemExit(report(figures, goals, as_json=options.json))


if __name__ == "__main__":
    main()
