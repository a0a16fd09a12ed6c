"""One system of `benchmarks.feed` with so many workers: its training program, started and asked."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import IO, Any, Final

from benchmarks.feeding.charged_memory import ChargedMemory, charged_memory
from benchmarks.feeding.process_tree import ProcessTree
from benchmarks.programs import PENSTOCK
from penstock.data.allocator import ALLOCATOR

ROOT: Final = Path(__file__).parents[2]
SYSTEMS: Final = ("torch", "local", "data")
"""DataLoader alone; the same under Penstock; the same with its workers elsewhere."""
Window = dict[str, float | None]
"""The figures of one; None: not to be known here."""
END_SECONDS: Final = 30.0
LIMIT_SECONDS: Final = 90.0
"""How long all workers may take to make their first batch."""


@dataclass(frozen=True)
class Load:
    """What a system is to do, whichever it is.

    Attributes:
        options: of the program: pipeline, batch and so on.
        settle_batches: are not counted when the program goes on after a pause.
        settle_seconds: nor is what comes within these.
        multiple: of so many batches each window is.
    """

    workers: int
    options: tuple[str, ...]
    settle_batches: int
    settle_seconds: float
    multiple: int = 1


@dataclass
class Feeder:
    """See `running`."""

    system: str
    load: Load
    process: Popen[str]
    tree: ProcessTree
    memory: ChargedMemory
    errors: IO[str]
    windows: list[Window] = field(default_factory=list)

    def warm(self) -> None:
        """Go on until every worker has made a batch, or has had its time."""
        self._say(do="settle", makers=self.load.workers, limit=LIMIT_SECONDS)
        self._hear()

    def measure(self, seconds: float) -> None:
        """Take one window."""
        self._say(
            do="measure",
            seconds=seconds,
            multiple=self.load.multiple,
            makers=0,
            limit=LIMIT_SECONDS,
        )
        self._hear()
        before = self.tree.cpu_time()
        found = self._hear()
        after = self.tree.cpu_time()
        tree_bytes = self.tree.peak_tree_bytes()
        charged = self.memory.peak_bytes()
        self.windows.append(
            {
                "images_per_second": found["images"] / found["seconds"],
                "cpu_ms_per_image": 1e3 * (after.tree - before.tree) / found["images"],
                "training_cores": (after.training - before.training) / found["seconds"],
                "wait_share": found["wait_share"],
                "makers": found["makers"],
                "peak_mb": self.tree.peak_training_bytes() / 1e6,
                "tree_peak_mb": tree_bytes / 1e6,
                "charged_mb": None if charged is None else charged / 1e6,
            }
        )

    def step_rate(self, seconds: float) -> float:
        """Images per second that the training step alone allows."""
        self._say(do="step", seconds=seconds)
        found = self._hear()
        return float(found["images"] / found["seconds"])

    def _say(self, **wanted: Any) -> None:
        assert self.process.stdin is not None
        settle = {
            "settle_batches": self.load.settle_batches,
            "settle_seconds": self.load.settle_seconds,
        }
        self.process.stdin.write(json.dumps(wanted | settle) + "\n")
        self.process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        return _hear(self.process, self.errors)


@contextmanager
def running(system: str, load: Load) -> Iterator[Feeder]:
    """The system's training program, every worker of which has begun; it ends with the block."""
    elsewhere = system == "data"
    program = [sys.executable, "-m", "benchmarks.feeding.program", *load.options]
    program.append(f"--workers={0 if elsewhere else load.workers}")
    if system != "torch":
        count = load.workers if elsewhere else 0
        program = [PENSTOCK, "run", f"--data-workers={count}", "--", *program]
    environ = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    environ |= {
        **ALLOCATOR,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",  # of more workers than cores
    }
    with TemporaryFile("w+") as errors, charged_memory() as memory:
        process = Popen(
            program, stdin=PIPE, stdout=PIPE, stderr=errors, text=True, cwd=ROOT, env=environ
        )
        memory.take(process.pid)
        try:
            training = _hear(process, errors)["pid"]
            tree = ProcessTree(process.pid, training)
            feeder = Feeder(system, load, process, tree, memory, errors)
            feeder.warm()
            yield feeder
        finally:
            _end(process)


def _hear(process: Popen[str], errors: IO[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        errors.seek(0)
        raise RuntimeError(f"{process.args!r}:\n{errors.read()[-3000:]}")
    found: dict[str, Any] = json.loads(line)
    return found


def _end(process: Popen[str]) -> None:
    """Let the program end: first by the end of its input, then as a cluster would."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            process.send_signal(number)
        try:
            process.wait(END_SECONDS)
        except TimeoutExpired:
            continue
        return
