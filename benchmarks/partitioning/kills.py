"""Kill -9 of whoever has a part in a partitioned training: are losses the same, bit by bit?

A training program (`benchmarks.partition_programs.survive`), two data workers and one of stage 1,
which takes batches from them. Each kill is for a phase of the partition, *Recording*, *Verifying*
or *On*, and of a worker or of the training process itself; up to a second later the same joins
again. Steps are held where a worker that was killed in the second phase is to join before the
third. A worker has *joined* when the training process knows it, which in the first phase is also
one that lived on while the training process was started anew. Then an epoch is ended, and the
program trains as many alone: each loss, each trained parameter and the samples of each epoch have
to be the same. ``session``: half as many more in an elastic session
(`benchmarks.partitioning.session_kills`).
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.dataplane.systems import ROOT
from benchmarks.goals import Goal, at_least, at_most, equal
from benchmarks.kill import DATA_WORKER, Scenario, leftovers, shared_memory
from benchmarks.partitioning import session_kills
from penstock.crds import environment as names

PROGRAM: Final = (sys.executable, "-m", "benchmarks.partition_programs.survive")
MEMBER: Final = "training"
WORKERS: Final = ("data-worker-0", "data-worker-1", "stage-worker")
RECORDING, VERIFYING, ON = PHASES = ("Recording", "Verifying", "On")
SCHEDULE: Final = (
    (RECORDING, "worker"), (VERIFYING, "worker"), (ON, MEMBER),
    (RECORDING, "worker"), (VERIFYING, MEMBER),
    (RECORDING, MEMBER),
    (ON, "worker"), (ON, "worker"), (ON, MEMBER),
)  # fmt: skip  # a line for each life of the training process, but the last has two of them
"""Each phase begins anew with the training process."""
DELAY_SECONDS: Final = {RECORDING: 0.03, VERIFYING: 1.0, ON: 1.0}
"""Of a kill after the phase was seen, at most."""
SAMPLE_SECONDS: Final = 0.004
PATIENCE_SECONDS: Final = 120.0
"""For a phase to come; the kill then comes in another one."""
END_SECONDS: Final = 600.0
LONGEST_WAIT_SECONDS: Final = 1.0
CALM_LOAD: Final = 1.0
"""Above that a wait says more about the machine than about the kills."""


class Killing:
    """One training that is killed, in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._program = [*PROGRAM, str(folder), "--seed", str(seed)]
        commands: dict[str, Sequence[str]] = {
            **dict.fromkeys(WORKERS, DATA_WORKER),
            MEMBER: [*self._program, "--sample-seconds", str(SAMPLE_SECONDS)],
        }
        environ = {names.PARTITION: "auto", names.WEIGHTS_DIR: str(folder / "weights")}
        self.scenario = Scenario(folder, commands, environ, {WORKERS[-1]: {names.DATA_STAGE: "1"}})
        self.killed: Counter[str] = Counter()
        self.joined: Counter[str] = Counter()
        self._known = (0, 0)
        """The training process, and how many workers it knew when it was looked at last."""
        self.longest = 0.0
        self.why = ""

    def run(self, kills: int) -> None:
        """All kills, and an epoch's end."""
        for name in self.scenario.commands:
            self.scenario.start(name)
        for phase, victim in itertools.islice(itertools.cycle(SCHEDULE), kills):
            self._await(phase)
            time.sleep(self._chance.uniform(0, DELAY_SECONDS[phase]))
            if victim == MEMBER:
                self._kill(MEMBER)
            else:
                with self._held() if phase == VERIFYING else nullcontext():
                    self._kill(self._chance.choice(WORKERS))
        self._await(ON, moved=1)
        (self._folder / "enough").touch()
        code = self.scenario.running[MEMBER].wait(END_SECONDS)
        if code:
            raise RuntimeError(f"the training ended with {code}: {self.log()}")
        self._progress()

    def alone(self, epochs: int) -> dict[str, Any]:
        """What the same training is like that nothing happens to, and of which nothing moves."""
        with tempfile.TemporaryDirectory() as folder:
            command = [*PROGRAM, folder, *self._program[-2:], "--epochs", str(epochs)]
            environ = {key: one for key, one in os.environ.items() if "PENSTOCK" not in key}
            subprocess.run(
                command, check=True, cwd=ROOT, timeout=END_SECONDS,
                env={**environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            done: dict[str, Any] = json.loads((Path(folder) / "done.json").read_text())
            return done

    def log(self) -> str:
        """The end of what everybody said."""
        return (self._folder / "log.txt").read_text()[-3000:]

    def _await(self, phase: str, moved: int = 0) -> None:
        """Until the training is in a phase, or past it; *On* also until everybody has joined.

        ``moved``: steps that have used what data workers made of them.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if (code := self.scenario.running[MEMBER].poll()) is not None:
                raise RuntimeError(f"the training ended with {code}: {self.log()}")
            now = self._progress()
            reached = PHASES.index(now["phase"]) if now.get("phase") in PHASES else -1
            joined = now.get("workers", 0) == len(WORKERS) or phase != ON
            if joined and reached >= PHASES.index(phase) and now.get("moved", 0) >= moved:
                return
            time.sleep(0.01)

    def _kill(self, name: str) -> None:
        told = self._progress().get("phase", "") or "before"
        self.scenario.kill(name)
        self.killed[f"{name.rstrip('-01')} while {told}"] += 1
        time.sleep(self._chance.uniform(0, 1))
        self.scenario.start(name)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the training's steps until one more worker has joined."""
        hold = self._folder / "hold"
        hold.touch()
        yield
        before, deadline = self.joined.total(), time.monotonic() + PATIENCE_SECONDS
        while self.joined.total() == before and time.monotonic() < deadline:
            self._progress()
            time.sleep(0.05)
        hold.unlink()

    def _progress(self) -> dict[str, Any]:
        """What the training process that runs now has told last."""
        with suppress(OSError):
            told: dict[str, Any] = json.loads((self._folder / "progress.json").read_text())
            if told["pid"] == self.scenario.running[MEMBER].pid:
                self._count_joined(told)
                self.longest = max(self.longest, told["longest"])
                self.why = told["why"] or self.why
                return told
        return {}

    def _count_joined(self, told: dict[str, Any]) -> None:
        """Of workers that the training process knows since it was looked at last."""
        pid, count = self._known
        new = told["workers"] - (count if pid == told["pid"] else 0)
        self._known = told["pid"], told["workers"]
        if new > 0:
            self.joined[f"worker while {told['phase'] or 'before'}"] += new


def run(kills: int, seed: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures of both trainings, and their goals."""
    figures, goals = run_process(kills, seed)
    print(f"without a session: {json.dumps(figures)}", file=sys.stderr, flush=True)
    figures["session"], its = session_kills.run(-(-kills // 2), seed)
    return figures, goals + its


def run_process(kills: int, seed: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures of the training that is no session, and their goals."""
    load, before, began = os.getloadavg()[0], shared_memory(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(Path(folder), seed)
        try:
            killing.run(kills)
        finally:
            killing.scenario.end()
        left = leftovers(killing.scenario.mark, before)
        done = json.loads((Path(folder) / "done.json").read_text())
        alone = killing.alone(len(done["losses"]))
    figures = {
        "kills": sum(killing.killed.values()),
        "killed": dict(killing.killed),
        "joined": dict(killing.joined),
        **_compared(done, alone),
        "moved": done["moved"],
        "compared": done["compared"],
        "said": killing.why,
        "longest_wait_seconds": round(killing.longest, 2),
        "left_behind": left,
        "seconds": round(time.monotonic() - began, 1),
        "load": load,
    }
    return figures, _goals(figures, kills)


def _compared(done: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """What differs from the training alone."""
    counts = [Counter(epoch) for epoch in done["seen"]]
    every = set(alone["seen"][0])
    pairs = zip(itertools.chain(*done["losses"]), itertools.chain(*alone["losses"]), strict=True)
    return {
        "steps": sum(map(len, alone["losses"])),
        "lost": sum(len(every - count.keys()) for count in counts),
        "repeated": sum(count.total() - len(count) for count in counts),
        "losses_that_differ": sum(one != other for one, other in pairs),
        "parameters_equal": done["parameters"] == alone["parameters"],
    }


def _goals(figures: dict[str, Any], kills: int) -> list[Goal]:
    goals = [
        at_least("kills", kills, figures["kills"]),
        *(at_most(name, 0, figures[name]) for name in ("lost", "repeated", "losses_that_differ")),
        equal("trained parameters", [] if figures["parameters_equal"] else ["they differ"]),
        *session_kills.in_each(figures, PHASES, kills, len(SCHEDULE)),
        at_least("steps that used what data workers had made of them", 1, figures["moved"]),
        equal("processes, sockets and shared memory afterwards", figures["left_behind"]),
    ]
    if figures["load"] < CALM_LOAD:
        what = "seconds that a living training process waited for a batch"
        goals.append(at_most(what, LONGEST_WAIT_SECONDS, figures["longest_wait_seconds"]))
    return goals
