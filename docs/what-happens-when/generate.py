"""Writes ``docs/what-happens-when.md`` from recorded results of the benchmarks that do harm.

    python docs/what-happens-when/generate.py [--check]
    python docs/what-happens-when/generate.py record chaos --faults 50 --seed 1

    python docs/what-happens-when/generate.py record chaos-of-delays \\
        --kinds delay-worker-20s,freeze-worker-30s --faults 4
    python docs/what-happens-when/generate.py record islands-of-pods --groups 2x2 --kills 25

``record`` runs ``python -m benchmarks.chaos --faults 50 --seed 1 --json``, and keeps the object
that it prints beside this file, with the command. The page is that and no more: a figure in it was
measured, by the command beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from penstock.crds.generated import command

Json = Mapping[str, Any]

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.with_suffix(".md")
RECORD_SECONDS: Final = 4 * 3600

_CHAOS: Final = {
    "kill-worker": "the container of a worker is killed",
    "kill-script": "a training process is killed",
    "kill-agent": "the agent of a worker is killed",
    "kill-trainer": "the Elastic Trainer is killed",
    "kill-brain": "the Brain is killed",
    "lose-node": "the node of a worker is lost for 5 s, with all pods on it",
    "partition-10s": "the network of a worker is cut for 10 s",
    "freeze-worker-10s": "a worker is frozen for 10 s",
    "freeze-worker-30s": "a worker is frozen for 30 s",
    "freeze-trainer-10s": "the Elastic Trainer is frozen for 10 s",
    "delay-worker-20s": "all that a worker says and hears comes 0.1 to 0.5 s late, for 20 s",
    "full-disk-10s": "the disk of the checkpoints is full for 10 s",
    "read-only-disk-10s": "the disk of the checkpoints is read-only for 10 s",
    "hanging-disk-10s": "the disk of the checkpoints hangs for 10 s",
}
_HANGS: Final = {
    "stopped": "a rank is stopped (SIGSTOP)",
    "lock": "a rank waits for a lock for ever",
    "loop": "a rank is in a loop that never ends",
    "data": "a rank waits for its dataset for ever",
    "checkpoint": "a rank saves a checkpoint that nobody takes",
    "collective": "a rank enters a collective that the others do not",
}
_INTRODUCTION: Final = """\
What faults cost a training, as the benchmarks that do harm have measured it. Each row is what the \
command in it printed; nothing is estimated. Seconds are those in which no step was committed, \
the fault itself included (a worker that is frozen for 10 s), unless the row says otherwise."""

_LOADS: Final = """\
Seed, and the machine's load average of a minute as the command began and ended, or at one of \
these:"""
_END: Final = """\
What is lost is counted over all faults of a command. What follows each fault, and why: \
[training](training.md), [data workers](data-workers.md), [the controller](controller.md). What \
follows a rank that stands still is for the job to say: \
[ending a process that hangs](training.md#ending-a-process-that-hangs)."""


@dataclass(frozen=True)
class Recorded:
    """One result: the command, and what it printed."""

    command: str
    printed: Json

    @property
    def load(self) -> str:
        """The machine's load average at the begin, and at the end where that was printed."""
        said = self.printed["load"]
        return " to ".join(f"{one:.1f}" for one in (said if isinstance(said, list) else [said]))


@dataclass(frozen=True)
class Row:
    """One fault; ``lost``: in words; ``seconds``: of each time, or what is known of them."""

    fault: str
    times: int
    lost: str
    middle: float | None
    longest: float | None

    def line(self, recorded: Recorded) -> str:
        """As a line of the table."""
        cells = [self.fault, str(self.times), self.lost, _seconds(self.middle)]
        return f"| {' | '.join([*cells, _seconds(self.longest), f'`{recorded.command}`'])} |"


def _seconds(one: float | None) -> str:
    return "-" if one is None else f"{one:.1f} s"


def _samples(lost: int | None, repeated: int | None, of: int) -> str:
    if lost is None or repeated is None:
        return "the run did not end"
    return f"{lost:,} lost and {repeated:,} repeated of {of:,} samples"


def chaos(printed: Json) -> Iterator[Row]:
    """`benchmarks.chaos`: what is lost is counted over all of its faults together."""
    lost = _samples(printed["lost"], printed["repeated"], printed["samples_expected"])
    groups = printed.get("replica_groups")
    within = f" ({groups.replace('x', ' replica groups of ')} pods)" if groups else ""
    for kind, stalls in printed["stalls"].items():
        said = _named(printed, kind, len(stalls))
        yield Row(_CHAOS[kind] + within, len(stalls), lost + said, median(stalls), max(stalls))


def _named(printed: Json, kind: str, times: int) -> str:
    """What became of the worker, where a slow one and one that stands still are told apart."""
    named, without = printed.get("named", {}), printed.get("trained_without", {})
    if not {"delay-worker-20s", "freeze-worker-30s"} <= without.keys():
        return ""
    return (
        f"; the others trained without the worker in {without[kind]} of {times}, and it was said "
        f"to hang in {named[kind]}"
    )


def kill(printed: Json) -> Iterator[Row]:
    """`benchmarks.kill`: stalls of the training process, less its own restarts."""
    killed = ", ".join(f"{name} {times}" for name, times in sorted(printed["killed"].items()))
    yield Row(
        f"a process between the data and the training is killed ({killed})",
        printed["kills"],
        _samples(printed["lost"], printed["repeated"], printed["samples"]),
        None,
        printed["longest_stall_seconds"],
    )


def hang(printed: Json) -> Iterator[Row]:
    """`benchmarks.hang`: the seconds are those until the rank is named."""
    for kind, fault in _HANGS.items():
        rows = [row for row in printed["rows"] if row["kind"] == kind]
        named = [row["seconds"] for row in rows if row["seconds"] is not None]
        right = sum(row["right_rank"] and row["right_place"] for row in rows)
        if rows:
            yield Row(
                f"{fault}; seconds until it is named",
                len(rows),
                f"nothing is ended; {right} of {len(rows)} named with rank and function",
                median(named) if named else None,
                max(named, default=None),
            )


def alarms(printed: Json) -> Iterator[Row]:
    """`benchmarks.hang --cases 0`: whom it names where nothing stands still."""
    for goal in printed.get("goals", ()):
        if goal["name"].startswith("false alarms"):
            _, _, spent = goal["name"].partition(" in ")
            told = f"nothing is ended; {goal['got']} times a rank was named that was well"
            yield Row(f"nothing stands still, in {spent}", 1, told, None, None)


def islands(printed: Json) -> Iterator[Row]:
    """`benchmarks.islands`: one row for each number of replica groups."""
    for row in printed["rows"]:
        kinds = ", ".join(f"{name} {times}" for name, times in sorted(row["kinds"].items()))
        yield Row(
            f"a part of one of {row['groups']} replica groups{_pods(row)} is killed ({kinds})",
            row["kills"],
            f"{row['samples_lost']:,} samples lost, {row['samples_repeated']:,} repeated, "
            f"{row['steps_undone']:,} steps undone in {row['steps']:,} steps",
            row["stall_seconds_median"],
            row["stall_seconds_worst"],
        )


def _pods(row: Json) -> str:
    pods = row.get("pods", 1)
    return f" of {pods} pods" if pods > 1 else ""


READERS: Final[Mapping[str, Callable[[Json], Iterator[Row]]]] = {
    "chaos": chaos,
    "chaos-of-islands": chaos,
    "chaos-of-delays": chaos,
    "islands": islands,
    "islands-of-pods": islands,
    "kill": kill,
    "hang": hang,
    "hang-alarms": alarms,
}


def recorded(name: str) -> Recorded | None:
    """A result that is kept; None: there is none of this benchmark."""
    path = HERE / f"{name}.json"
    if not path.exists():
        return None
    said = json.loads(path.read_text(encoding="utf-8"))
    return Recorded(said["command"], said["printed"])


def page() -> str:
    """The page."""
    lines, loads = [], []
    for name, read in READERS.items():
        if (found := recorded(name)) is not None:
            lines += [row.line(found) for row in read(found.printed)]
            loads.append(f"- `{found.command}`: seed {found.printed['seed']}, load {found.load}")
    return "\n".join(
        [
            "# What happens when",
            "",
            "<!-- Generated by docs/what-happens-when/generate.py from the results beside it. -->",
            "",
            _INTRODUCTION,
            "",
            "| fault | times | what is lost | median | longest | command |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
            _LOADS,
            "",
            *loads,
            "",
            _END,
            "",
        ]
    )


def record(words: list[str]) -> int:
    """Run a benchmark and keep what it prints; its exit status."""
    if not words or words[0] not in READERS:
        sys.stderr.write(f"record: name one of {', '.join(READERS)}, and its options\n")
        return 2
    name, *options = words
    run = [sys.executable, "-m", f"benchmarks.{name.partition('-')[0]}", *options, "--json"]
    done = subprocess.run(
        run, stdout=subprocess.PIPE, text=True, timeout=RECORD_SECONDS, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.stderr.write(f"record: {' '.join(run)} printed no result\n")
        return done.returncode or 1
    printed = lines[-1].replace(f"{HERE.parents[1]}/", "")  # where the checkout is, is no result
    said = {"command": " ".join(["python", *run[1:]]), "printed": json.loads(printed)}
    (HERE / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(record(sys.argv[2:]) if sys.argv[1:2] == ["record"] else command({PAGE: page}))
