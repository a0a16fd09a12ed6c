"""Kill -9 of members of an `elastic.session` whose steps are partitioned, and joins of others.

Two workers and a data worker train `benchmarks.partition_programs.session` under ``--partition
auto``. Each kill is for a mode in which all members of the group run their steps, *Record*,
*Compare* or *Partitioned*, and so is each join of whoever takes the dead one's place: what was
granted to the group, as its members' logs have it, says when. Then the session is ended. Each loss
of each slot and the trained rows have to be those of the same program alone: its numbers are exact.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.elastic.processes import ROOT, TOKEN, Job, run_alone, running_job
from benchmarks.goals import Goal, at_least, at_most, equal
from benchmarks.partition_programs.session import GLOBAL_BATCH, SAMPLES
from penstock.crds import environment as names

PROGRAM: Final = ("-m", "benchmarks.partition_programs.session")
DATA_WORKER: Final = "data-worker"
RECORD, COMPARE, USE = MODES = ("Record", "Compare", "Partitioned")
SCHEDULE: Final = (
    ("worker", RECORD, RECORD), ("worker", COMPARE, COMPARE), ("worker", USE, USE),
    (DATA_WORKER, RECORD, RECORD), ("worker", RECORD, COMPARE), (DATA_WORKER, USE, USE),
    ("worker", RECORD, USE), (DATA_WORKER, COMPARE, COMPARE), ("worker", USE, USE),
)  # fmt: skip
"""Who is killed, while the group is in which mode, and the one in which it joins again.

Or later ones: what was recorded by all who live is not recorded anew.
"""
EPOCHS_FOR_EACH: Final = 20
"""Of a kill: what is left of them at the end takes no time."""
STEP_SECONDS: Final = 0.15
START_SECONDS: Final = 120.0
PATIENCE_SECONDS: Final = 60.0
"""For a mode to come; the kill then comes in another one."""
END_SECONDS: Final = 400.0
EPOCH_SECONDS: Final = 3.0
"""More for each epoch that the program alone has to make, on a busy machine."""
LOGGED: Final = 0.95
"""Of the losses: who is killed may not have logged its step."""

Granted = tuple[int, int, str | None]
"""Group, step, and how all workers of the group run it; None: it has no mode."""


def losses_in(folder: Path) -> dict[tuple[int, str], float]:
    """Of all workers' step logs, by step and slot.

    Raises:
        ValueError: two workers that had the same slot of a step have other losses for it.
    """
    losses: dict[tuple[int, str], float] = {}
    for path in folder.glob("steps-*.jsonl"):
        for line in path.read_text().splitlines():
            said = json.loads(line)
            for slot, loss in said["losses"].items():
                if losses.setdefault((said["step"], slot), loss) != loss:
                    raise ValueError(f"slot {slot} of step {said['step']} has two losses")
    return losses


def end_of(text: str) -> dict[str, Any]:
    """The last line that the program printed of itself."""
    lines = [line for line in text.splitlines() if "encoding {" in line]
    found: dict[str, Any] = json.loads(lines[-1].partition("encoding ")[2])
    return found


def granted(text: str) -> list[Granted]:
    """What a worker's log has of it."""
    lines = [line for line in text.splitlines() if "granted [" in line and line.endswith("]")]
    return [tuple(json.loads(line.partition("granted ")[2])) for line in lines]


class Killing:
    """One session whose members are killed and join."""

    def __init__(self, job: Job, kills: int, seed: int) -> None:
        self._job = job
        self._kills = kills
        self._chance = random.Random(seed)
        self._hurry, self._hold = job.folder / "hurry", job.folder / "hold"
        (job.folder / "steps").mkdir()
        self.epochs = EPOCHS_FOR_EACH * max(1, kills)
        self.killed: Counter[str] = Counter()
        self.joined: Counter[str] = Counter()
        self._data_worker: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """All kills and joins, and the session's end."""
        with ExitStack() as stack:
            self._job.start_trainer("--workers=2")
            stack.callback(self._end_data_worker)
            self._start_data_worker()
            for rank in range(2):
                self._start_worker(rank)
            self._job.wait_for_world(2, START_SECONDS)
            for victim, while_, joins in itertools.islice(itertools.cycle(SCHEDULE), self._kills):
                self._await(while_, (0, 1))
                if victim == DATA_WORKER:
                    self._replace_data_worker(joins)
                else:
                    self._replace_worker(self._chance.randrange(2), joins)
            self._await(USE, (0, 1))
            self._hurry.touch()
            if set(codes := self._job.exit_codes(END_SECONDS).values()) != {0}:
                raise RuntimeError(f"the workers ended with {codes}: {self._job.logs()}")

    def _start_worker(self, rank: int) -> None:
        options = {
            "epochs": self.epochs, "step-seconds": STEP_SECONDS, "free": 0,
            "hurry": self._hurry, "hold": self._hold, "num-workers": 1,
        }  # fmt: skip
        environ = {names.PARTITION: "auto", names.STEP_LOG: str(self._job.folder / "steps")}
        command = [sys.executable, *PROGRAM, *(f"--{key}={one}" for key, one in options.items())]
        self._job.start_worker(rank, *command, environ=environ)

    def _start_data_worker(self) -> None:
        environ = {
            names.JOB_TOKEN: TOKEN,
            names.TRAINER_ADDRESS: self._job.address,
            names.ROLE: DATA_WORKER,
            names.POD_IP: "127.0.8.1",
        }
        with (self._job.folder / f"{DATA_WORKER}.log").open("ab") as log:
            self._data_worker = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", DATA_WORKER],
                env={**os.environ, **environ}, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _end_data_worker(self) -> None:
        if self._data_worker is not None:
            self._data_worker.kill()
            self._data_worker.wait(10)

    def _replace_data_worker(self, joins: str) -> None:
        told = self._mode(0)
        self._end_data_worker()
        self.killed[f"{DATA_WORKER} while {told}"] += 1
        self._await(joins, (0, 1))
        self._start_data_worker()
        self._job.wait_for_summary(lambda one: one["data_workers"] == 1, START_SECONDS)
        self.joined[f"{DATA_WORKER} while {self._mode(0)}"] += 1

    def _replace_worker(self, rank: int, joins: str) -> None:
        other = 1 - rank
        told = self._mode(other)
        self._job.kill(rank)
        self.killed[f"worker while {told}"] += 1
        self._job.wait_for_world(1, START_SECONDS)
        self._await(joins, (other,))
        self._hold.touch()  # else it would come when all of it is over
        self._start_worker(rank)
        path = self._job.log_path(rank)
        news = self._job.wait_for(
            lambda: granted(path.read_text(errors="replace")), START_SECONDS, "a step of the new"
        )
        self._hold.unlink()
        before = [one for one in self._granted(other) if one[0] < news[0][0]]
        self.joined[f"worker while {before[-1][2]}"] += 1

    def _await(self, mode: str, ranks: tuple[int, ...]) -> None:
        """Until these, one group, run their steps in a mode, or in a later one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            last = [found[-1] for rank in ranks if (found := self._granted(rank))]
            reached = [one for one in last if one[2] in MODES[MODES.index(mode) :]]
            if len(reached) == len(ranks) and len({group for group, *_ in reached}) == 1:
                return
            time.sleep(0.02)

    def _mode(self, rank: int) -> str:
        found = self._granted(rank)
        return str(found[-1][2]) if found else "None"

    def _granted(self, rank: int) -> list[Granted]:
        return granted(self._job.log_path(rank).read_text(errors="replace"))


def run(kills: int, seed: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures, and their goals."""
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running_job(Path(folder)) as job:
        killing = Killing(job, kills, seed)
        killing.run()
        result, losses = job.result(), losses_in(job.folder / "steps")
        ends = [end_of(job.log_path(rank).read_text(errors="replace")) for rank in job.workers]
        fell = sum("FellBack" in path.read_text() for path in job.folder.glob("worker-*.log"))
        alone, its_losses = _alone(killing.epochs)
    figures = {
        "kills": killing.killed.total(),
        "killed": dict(killing.killed),
        "joined": dict(killing.joined),
        "steps": killing.epochs * SAMPLES // GLOBAL_BATCH,
        "lost": result["samples_lost"],
        "repeated": result["samples_repeated"],
        "losses": len(its_losses),
        "losses_compared": len(losses.keys() & its_losses.keys()),
        "losses_that_differ": sum(its_losses.get(at) != one for at, one in losses.items()),
        "rows_equal": all(one["rows"] == alone["rows"] for one in ends),
        "moved": sum(one["moved"] for one in ends),
        "workers_that_fell_back": fell,
        "seconds": round(time.monotonic() - began, 1),
        "load": load,
    }
    return figures, goals_of(figures, kills)


def _alone(epochs: int) -> tuple[dict[str, Any], dict[tuple[int, str], float]]:
    with tempfile.TemporaryDirectory() as folder:
        environ = {"OMP_NUM_THREADS": "1", names.STEP_LOG: folder}
        said = run_alone(
            sys.executable, *PROGRAM, f"--epochs={epochs}",
            environ=environ, timeout=END_SECONDS + EPOCH_SECONDS * epochs,
        )  # fmt: skip
        return end_of(said), losses_in(Path(folder))


def goals_of(figures: dict[str, Any], kills: int) -> list[Goal]:
    """What has to be, in a session."""
    counted = ("lost", "repeated", "losses_that_differ", "workers_that_fell_back")
    return [
        at_least("kills in a session", kills, figures["kills"]),
        *(at_most(f"{name} of a session", 0, figures[name]) for name in counted),
        at_least("losses compared", int(LOGGED * figures["losses"]), figures["losses_compared"]),
        equal("trained rows", [] if figures["rows_equal"] else ["they differ"]),
        at_least("micro-batches that used what was made elsewhere", 1, figures["moved"]),
        *in_each(figures, MODES, kills, len(SCHEDULE)),
    ]


def in_each(figures: dict[str, Any], states: tuple[str, ...], kills: int, line: int) -> list[Goal]:
    """Somebody was killed in each of these, and somebody joined.

    Args:
        figures: have a count for each "WHO while STATE" in ``killed`` and ``joined``.
        states: of the partition.
        kills: that were asked for. Fewer than there are states are killed in some of them alone.
        line: kills after which the schedule begins anew; fewer joins come in some states alone.
    """
    asked = {"killed": kills >= len(states), "joined": kills >= line}
    return [
        at_least(f"{what} while {state}", 1, _count(figures[what], state))
        for what in asked
        for state in (states if asked[what] else ())
    ]


def _count(counts: dict[str, int], state: str) -> int:
    return sum(count for who, count in counts.items() if who.endswith(f"while {state}"))
