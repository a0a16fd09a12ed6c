"""How soon a running job is at its best again after something has changed, and by how many changes.

    python -m benchmarks.redecide --json

A program of `benchmarks.redecide_programs` with two data workers, all real processes. Then, one at
a time: a data worker gets a third of its processor (it is stopped two thirds of the time); the link
of one drops to a fifth of what went over it; what was read from far away is in memory. ``seconds``
is from the change until the rate of two neighbouring windows of `WINDOW` seconds is within 5 % of
what it is in the end. ``decisions`` are the data workers that the model of the running job asks for
every 15 s, as in a job's trainer, and ``changes`` how often that number changes from the change on.
Who makes which batch is not decided but follows from who is done, so that no decision is needed
where a maker slows down. Nothing of this is in the papers.

A case takes some seconds to begin, 20 until the change, and 60 after it: the goal of 30, the four
windows that say what the rate is in the end, and one decision that has seen nothing but them. All
three take some five minutes; what they are at is on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.goals import Goal, at_most, report, table
from benchmarks.links import Link
from benchmarks.programs import PENSTOCK
from penstock.data.protocol import WorkerReply, WorkerReport
from penstock.data.standalone import LocalDataPlane
from penstock.throughput.decision.in_job import decide_in_job

PROGRAM: Final = Path(__file__).with_name("redecide_programs") / "train.py"
WORKERS: Final = 2
MOST: Final = 4
WINDOW: Final = 5.0
NEAR: Final = 0.05
DECISION_SECONDS: Final = 15.0
START_SECONDS: Final = 60.0
SECONDS_GOAL: Final = 30.0
CHANGES_GOAL: Final = 2
_PERIOD: Final = 0.06


@dataclass
class Run:
    """One program with its data workers, and what happened."""

    plane: LocalDataPlane
    link: Link
    warm: Path
    taken: list[float] = field(default_factory=list)
    decisions: list[tuple[float, int]] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def rate(self, begin: float, end: float) -> float:
        """Batches a second."""
        return sum(begin <= at < end for at in self.taken) / (end - begin)


def slow_worker(run: Run) -> None:
    """One data worker has a third of its processor."""
    victim = min(_data_workers())

    async def stop_and_go() -> None:
        while True:
            os.kill(victim, signal.SIGSTOP)
            await asyncio.sleep(_PERIOD * 2 / 3)
            os.kill(victim, signal.SIGCONT)
            await asyncio.sleep(_PERIOD / 3)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)

    run.tasks.append(asyncio.create_task(stop_and_go()))
    run.undo.append(go_on)


def slow_link(run: Run) -> None:
    """A fifth of what went over it."""
    run.link.bytes_per_second = run.link.passed / (time.monotonic() - run.taken[0]) / 5


def warm_files(run: Run) -> None:
    """Nothing is read from far away any more."""
    run.warm.touch()


Change = Callable[[Run], None]
CASES: Final[dict[str, tuple[float, float, Change]]] = {
    "a data worker slows 3x": (4.0, 0.0, slow_worker),
    "a link drops to a fifth": (3.0, 0.0, slow_link),
    "the second epoch is warm": (2.0, 6.0, warm_files),
}
"""Milliseconds of computing and reading of a sample, and what changes."""


def _data_workers() -> Iterator[int]:
    """The processes of data workers that this one has started."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
            if parent == os.getpid() and b"penstock.data.worker_process" in command:
                yield int(entry.name)


@contextlib.asynccontextmanager
async def running(compute: float, read: float, folder: Path) -> AsyncIterator[Run]:
    """The program at work."""
    run = Run(LocalDataPlane(WORKERS), Link(), folder / "warm")
    await run.link.listen()
    dispatcher = run.plane.dispatcher
    plain, proxied = dispatcher.worker_reply, list[str]()

    def worker(told: WorkerReport, now: float, *, guest: bool = False) -> WorkerReply:
        reply = plain(told, now, guest=guest)
        if not proxied:
            proxied.append(told.name)
        if told.name != proxied[0]:
            return reply
        consumers = tuple(
            replace_address(one, run.link.address(one.address)) for one in reply.consumers
        )
        return reply.model_copy(update={"consumers": consumers})

    dispatcher.worker_reply = worker  # type: ignore[method-assign,assignment]  # a link for one of them
    program = [sys.executable, str(PROGRAM), "--compute-ms", str(compute), "--read-ms", str(read)]
    async with contextlib.aclosing(run.link), run.plane:
        process = await asyncio.create_subprocess_exec(
            *(PENSTOCK, "run", "--", *program, "--warm", str(run.warm)),
            env=run.plane.environ(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        run.tasks += [asyncio.create_task(_listen(run, process)), asyncio.create_task(_decide(run))]
        try:
            yield run
        finally:
            for task in run.tasks:
                task.cancel()
            for undo in run.undo:
                undo()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def replace_address(entry: Any, address: str) -> Any:
    """The same consumer, to be reached there over TCP."""
    return entry.model_copy(update={"address": address, "local": ""})


async def _listen(run: Run, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None, "it is a pipe"
    async for line in process.stdout:
        run.taken.append(float(line))


async def _decide(run: Run) -> None:
    """As the trainer and the Brain do: a profile every 15 s, and what the model asks for."""
    dispatcher, due = run.plane.dispatcher, time.monotonic() + DECISION_SECONDS
    while True:
        await asyncio.sleep(0.5)
        now = time.monotonic()
        run.plane.input.note(dispatcher.consumers(now), len(dispatcher.workers(now)), now)
        if now >= due:
            due += DECISION_SECONDS
            if (profile := run.plane.input.profile(1.0)) is not None:
                run.decisions.append((now, decide_in_job(profile, MOST).data_workers))


def settled(run: Run, changed: float, end: float) -> float:
    """Seconds after a change until the rate is what it is in the end."""
    final = run.rate(end - 4 * WINDOW, end)
    begin = changed
    while begin + 2 * WINDOW <= end:
        both = [run.rate(begin + at, begin + at + WINDOW) for at in (0.0, WINDOW)]
        if all(abs(one / final - 1) <= NEAR for one in both):
            return begin - changed
        begin += 0.5
    return end - changed


async def _until_at_work(run: Run) -> None:
    while len(run.taken) < 10 or len(list(_data_workers())) < WORKERS:  # noqa: ASYNC110  processes say nothing
        await asyncio.sleep(0.1)


async def measure(name: str, before: float, after: float) -> dict[str, Any]:
    """One row."""
    compute, read, change = CASES[name]
    _say(f"{name}: begins")
    with TemporaryDirectory() as folder:
        async with running(compute, read, Path(folder)) as run:
            async with asyncio.timeout(START_SECONDS):
                await _until_at_work(run)
            _say(f"{name}: at work, to change in {before:.0f} s")
            await asyncio.sleep(before)
            changed = time.monotonic()
            change(run)
            _say(f"{name}: changed, to end in {after:.0f} s")
            await asyncio.sleep(after)
            end = time.monotonic()
    asked = [number for at, number in run.decisions if at >= changed]
    earlier = [number for at, number in run.decisions if at < changed][-1:]
    return {
        "change": name,
        "rate_before": round(run.rate(changed - 2 * WINDOW, changed), 1),
        "rate_after": round(run.rate(end - 4 * WINDOW, end), 1),
        "seconds": round(settled(run, changed, end), 1),
        "decisions": [*earlier, *asked],
        "changes": _changes([*earlier, *asked]),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _changes(numbers: Sequence[int]) -> int:
    return sum(one != other for one, other in pairwise(numbers))


def main() -> int:
    """Run each case, in an order that ``--seed`` draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", type=float, default=20.0, help="seconds until the change")
    parser.add_argument("--after", type=float, default=60.0, help="seconds from then on")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    load = [os.getloadavg()[0]]
    names = random.Random(options.seed).sample(list(CASES), len(CASES))
    rows = []
    for name in names:
        rows.append(asyncio.run(measure(name, options.before, options.after)))
        print(table(rows[-1:]), file=sys.stderr, flush=True)
    load.append(os.getloadavg()[0])
    goals: list[Goal] = [
        at_most("seconds until the rate is steady", SECONDS_GOAL, max(r["seconds"] for r in rows)),
        at_most("changes of the decision", CHANGES_GOAL, max(row["changes"] for row in rows)),
    ]
    mean = round(fmean(row["seconds"] for row in rows), 1)
    result = {"seed": options.seed, "load": load, "mean_seconds": mean, "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
