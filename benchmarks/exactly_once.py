"""Which samples an unmodified loop trains on when the number of processes changes in mid-epoch.

    python -m benchmarks.exactly_once --json
    python -m benchmarks.exactly_once --kills 20 --checkpoints 2 --json
    python -m benchmarks.exactly_once --kinds plain --worlds 2,1 --samples 48 --every 2 --json

Each life is a ``penstock run --nproc-per-node=N``, killed by SIGKILL (all of it) after some
checkpoint and a step more, somewhere in an epoch; the next one goes on from the program's
own checkpoint. What the surviving model has been trained on is what each life had done until the
checkpoint that the next one began from. Goals: in each epoch no sample is lost, and none is
repeated but those that even out the last step of a world, fewer than it has processes; and the
final model's loss over all samples is within 1 % of that of the same program run once, undisturbed,
in the last of the worlds (a model that began anew on the way is far off; with few samples both are,
see `exactly_once_programs/log.py`). With ``--without`` the same runs under torchrun, for
comparison: it misses its goals. No figure depends on how busy the machine is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.elastic.processes import ROOT, kill_tree
from benchmarks.goals import Goal, at_least, at_most, report

PROGRAMS: Final = Path(__file__).with_name("exactly_once_programs")
KINDS: Final = ("plain", "with_accelerate", "hugging_face", "with_lightning", "fsdp")
LIFE_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.05
ALLOWED_LOSS: Final = 0.01
"""Relative difference between the losses of a disturbed and an undisturbed run."""


@dataclass
class Life:
    """What the processes of one world have written.

    Attributes:
        batches: per step, the samples of all ranks.
        saved: checkpoints, as name and steps of this life before it.
        resumed: the checkpoint that it began from; empty: none.
        ended: all has been trained.
        loss: over all samples, of the model that came of it.
    """

    batches: dict[int, list[int]] = field(default_factory=dict)
    saved: list[tuple[str, int]] = field(default_factory=list)
    resumed: str = ""
    ended: bool = False
    loss: float | None = None

    @classmethod
    def read(cls, folder: Path, number: int) -> Life:
        """From the files of its processes."""
        life = cls()
        for path in sorted(folder.glob(f"life-{number}-rank-*.jsonl")):
            for text in path.read_text().splitlines():
                try:
                    line = json.loads(text)
                except ValueError:  # it was killed while it wrote
                    continue
                if "samples" in line:
                    life.batches.setdefault(line["seq"], []).extend(line["samples"])
                elif "saved" in line and "rank-0" in path.name:
                    life.saved.append((line["saved"], line["after"]))
                elif "resumed" in line:
                    life.resumed = line["resumed"]
                elif "ended" in line and "rank-0" in path.name:
                    life.loss = line["loss"]
                life.ended |= "ended" in line
        return life


@contextmanager
def running(command: list[str], environ: dict[str, str], log: Path) -> Iterator[Any]:
    """A command whose processes are gone at the end of the block."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
    try:
        yield process
    finally:
        psutil.wait_procs(kill_tree(process.pid), timeout=10)
        process.wait()


def live(
    kind: str,
    folder: Path,
    number: int,
    world: int,
    checkpoints: int | None,
    words: list[str],
    *,
    without: bool,
) -> Life:
    """One life, ended after so many checkpoints and a step; None: it ends by itself.

    Raises:
        RuntimeError: it came to nothing, and what its processes said.
    """
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {**outside, "EXACTLY_ONCE_LIFE": str(number), "PYTHONPATH": path}
    commands = Path(sys.executable).parent
    starter = [str(commands / "penstock"), "run", f"--nproc-per-node={world}", "--"]
    if without:
        starter = [str(commands / "torchrun"), "--standalone", f"--nproc-per-node={world}"]
    command = [*starter, str(PROGRAMS / f"{kind}.py"), str(folder), *words]
    log = folder / f"log-{number}.txt"
    with running(command, environ, log) as process:
        deadline = time.monotonic() + LIFE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            life = Life.read(folder, number)
            if checkpoints is not None and len(life.saved) >= checkpoints:
                after = life.saved[-1][1]
                if after + 1 in life.batches:
                    break
            time.sleep(POLL_SECONDS)
    life = Life.read(folder, number)
    if not life.saved and not life.ended:
        raise RuntimeError(f"life {number} of {kind} came to nothing: {log.read_text()[-3000:]}")
    return life


def surviving(lives: list[Life]) -> list[list[int]]:
    """Steps that the last model has had, in order."""
    history: list[list[int]] = []
    wanted: str | None = None
    for life in reversed(lives):
        if wanted is None:
            steps = len(life.batches)
        else:
            found = [after for name, after in life.saved if name == wanted]
            if not found:
                continue  # went on from an earlier one, and saved nothing that lived
            steps = found[-1]
        history = [life.batches[seq] for seq in sorted(life.batches) if seq <= steps] + history
        wanted = life.resumed
        if not wanted:
            break
    return history


def count(history: list[list[int]], samples: int, epochs: int) -> tuple[int, int]:
    """Samples lost, and repeated, within epochs; no step has samples of two."""
    lost = repeated = 0
    steps = iter(history)
    for _ in range(epochs):
        seen: list[int] = []
        while len(seen) < samples and (step := next(steps, None)) is not None:
            seen += step
        lost += samples - len(set(seen))
        repeated += len(seen) - len(set(seen))
    return lost, repeated + sum(len(step) for step in steps)


def run(kind: str, options: argparse.Namespace, rng: random.Random) -> dict[str, Any]:
    """One kind of program, over all worlds."""
    worlds = [int(each) for each in options.worlds.split(",")]
    if options.kills is not None:
        worlds = list(itertools.islice(itertools.cycle(worlds), options.kills + 1))
    words = [options.samples, options.epochs, options.batch, options.every]
    arguments = [str(word) for word in words]
    undisturbed = loss_alone(kind, worlds[-1], arguments)
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as name:
        folder, lives = Path(name), []
        for number, world in enumerate(worlds):
            last = number == len(worlds) - 1
            checkpoints = None if last else rng.randint(1, options.checkpoints)
            without = options.without
            lives.append(live(kind, folder, number, world, checkpoints, arguments, without=without))
        history = surviving(lives)
        lost, repeated = count(history, options.samples, options.epochs)
        return {
            "kind": kind,
            "worlds": worlds,
            "kills": len(worlds) - 1,
            "steps": len(history),
            "ended": lives[-1].ended,
            "lost": lost,
            "repeated": repeated,
            "allowed": sum(world - 1 for world in worlds),
            "loss": lives[-1].loss,
            "undisturbed_loss": undisturbed,
            "loss_difference": difference(lives[-1].loss, undisturbed),
            "resumed": [life.resumed for life in lives],
        }


def loss_alone(kind: str, world: int, arguments: list[str]) -> float | None:
    """The final loss of a program that nobody stops, under torchrun."""
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as name:
        return live(kind, Path(name), 0, world, None, arguments, without=True).loss


def difference(loss: float | None, undisturbed: float | None) -> float | None:
    """Between two losses, beside the undisturbed one; None where a run did not end."""
    if loss is None or not undisturbed:
        return None
    return round(abs(loss / undisturbed - 1), 5)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--worlds", default="1,2,3,1")
    parser.add_argument("--kills", type=int, help="the worlds again and again, for so many")
    parser.add_argument("--samples", type=int, default=480)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4, help="of each process")
    parser.add_argument("--every", type=int, default=3, help="steps between checkpoints")
    parser.add_argument("--checkpoints", type=int, default=3, help="at most, in a life")
    parser.add_argument("--without", action="store_true", help="under torchrun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    load = os.getloadavg()[0]
    rows = [run(kind, options, rng) for kind in options.kinds.split(",")]
    goals: list[Goal] = []
    for row in rows:
        goals.append(at_most(f"{row['kind']}: samples lost", 0, row["lost"]))
        goals.append(at_most(f"{row['kind']}: samples repeated", row["allowed"], row["repeated"]))
        goals.append(at_least(f"{row['kind']}: trained to the end", 1, int(row["ended"])))
        name = f"{row['kind']}: loss, beside undisturbed"
        goals.append(at_most(name, ALLOWED_LOSS, row["loss_difference"]))
    result = {"seed": options.seed, "load": load, "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
