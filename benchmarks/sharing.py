"""Programs that share what is made of their data: how much is made, and what becomes of samples.

    python -m benchmarks.sharing --jobs 1,2,4,8 --json
    python -m benchmarks.sharing --speeds 0.3 --jobs 8        # or --joins 3
    python -m benchmarks.sharing --kill job,worker,stop --jobs 8
    python -m benchmarks.sharing --mode prep --jobs 8 --pipeline jpeg,audio
    python -m benchmarks.sharing --batch-sizes 32,64,128
    python -m benchmarks.sharing --chaos 100 --seed 1
    python -m benchmarks.sharing --peers tfdata --jobs 8

Plain PyTorch programs under ``penstock run --share``, as real processes that decode JPEG files.
They sleep instead of training, so that two cores are enough for many; what is made is counted by
whoever makes it, and not by what the group says of itself. ``needed`` is the dataset once an epoch,
or the least that any rule makes which loses nothing, for when the programs really took their
batches (`penstock.sim.sharing.rules.bound_of`).

Counts can be trusted on a busy machine, seconds cannot, and CPU seconds not to the last percent:
``load`` says how busy it was. What data workers used in all has their start in it. ``--peers
tfdata`` has tf.data service's cross-trainer cache, the real one, feed as many
consumers from a dataset without end, which is the only kind that it takes.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from typing import Any, Final

from benchmarks.dataplane.workloads import BATCH as KIND_BATCH
from benchmarks.goals import Goal, at_least, at_most, report
from benchmarks.sharing_jobs import peer, scenarios
from benchmarks.sharing_jobs.programs import PROGRAM_BYTES, Program, most_programs

EPOCHS: Final = 2
MANY: Final = 64
KINDS: Final = ("job", "worker", "stop", "stop_worker", "keeper")
SHARED_CPU: Final = 0.6
"""Of what tf.data service uses for a sample and job."""


def numbers(text: str) -> list[int]:
    """Whole numbers above 0, divided by commas."""
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers from 1 on, divided by commas")
    return found


def faults(text: str) -> list[str]:
    """Kinds of faults, divided by commas."""
    found = text.split(",")
    if unknown := [word for word in found if word not in KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown}: choose from {', '.join(KINDS)}")
    return found


def pipelines(text: str) -> list[str]:
    """Pipelines of samples, divided by commas."""
    found = text.split(",")
    if unknown := [word for word in found if word not in KIND_BATCH]:
        raise argparse.ArgumentTypeError(f"{unknown}: choose from {', '.join(KIND_BATCH)}")
    return found


def no_loss(rows: list[dict[str, Any]]) -> list[Goal]:
    """What holds in every scenario."""
    return [
        at_most("samples lost", 0, sum(row["lost"] for row in rows)),
        at_most("samples repeated", 0, sum(row["repeated"] for row in rows)),
        at_most("processes and shared memory left", 0, sum(row["left"] for row in rows)),
    ]


def together_goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """Of jobs of one speed."""
    one = next((row for row in rows if row["jobs"] == 1), None)
    goals = [
        at_most(f"made by needed, {row['jobs']} jobs", 1.0, row["made_by_needed"]) for row in rows
    ]
    if one is None:
        return goals
    for row in rows:
        if row is one:
            continue
        cpu = row["making_cpu_seconds"] / one["making_cpu_seconds"]
        most = 1.05 if row["jobs"] < MANY else 1.10
        goals.append(
            at_most(f"CPU of making by one job's, {row['jobs']} jobs", most, round(cpu, 3))
        )
        longer = row["seconds_after_first"] / one["seconds_after_first"] - 1
        goals.append(at_most(f"longer than one job, {row['jobs']} jobs", 0.03, round(longer, 3)))
    return goals


def apart_goals(rows: list[dict[str, Any]], *, joins: bool) -> list[Goal]:
    """Of jobs of several speeds, or that come one after the other."""
    goals = []
    for row in rows:
        name = f"{row['jobs']} jobs, {row['data_workers']} data workers"
        most = 1.05 if joins else 1.10 if row["jobs"] <= 8 else 1.15
        goals.append(at_most(f"made by the bound, {name}", most, row["made_by_needed"]))
        goals.append(at_most(f"slowdown of the fastest, {name}", 0.03, row["slowdown_of_fastest"]))
        if joins:
            goals.append(at_most(f"first batch of a joiner, {name}", 1.0, row["first_batch"]))
    return goals


def making_goals(kind: str, alone: dict[str, Any], shared: dict[str, Any]) -> list[Goal]:
    """Of jobs that wait for data all the time."""
    return [
        at_least(
            f"throughput of a job by alone, {kind}{when}", 5.5, round(shared[of] / alone[of], 2)
        )
        for of, when in (
            ("samples_per_second_and_job", ""),
            ("later_per_second_and_job", ", after the first batches"),
        )
    ]


def measured(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Goal]]:
    """Rows and goals of what was asked for."""
    seed, workers = options.seed, options.data_workers
    # A window of a tenth of the dataset is to be some tiles for each of several data workers.
    times = 5 if workers == 1 else 10
    step_seconds = options.step_seconds * 2.5 / times
    long = Program(options.samples * times, scenarios.BATCH, EPOCHS, step_seconds)
    short = Program(options.samples, scenarios.BATCH, EPOCHS, options.step_seconds)
    jobs = options.jobs[-1]
    rows: list[dict[str, Any]]
    if options.speeds or options.joins:
        how = {"speeds": options.speeds, "joins": options.joins}
        rows = [scenarios.apart(count, long, seed, workers, **how) for count in options.jobs]
        goals = apart_goals(rows, joins=bool(options.joins))
    elif options.kill or options.chaos:
        if options.kill:
            rows = [scenarios.disturbed(jobs, short, seed, max(2, workers), options.kill)]
            goals = [at_least("faults", len(options.kill), rows[0]["count_of_faults"])]
        else:
            steps = math.ceil(options.chaos * scenarios.SECONDS_A_FAULT / options.step_seconds)
            samples = max(options.samples * 3, -(-steps // EPOCHS) * scenarios.BATCH)
            longer = Program(samples, scenarios.BATCH, EPOCHS, options.step_seconds)
            rows = [scenarios.chaos(jobs, longer, seed, max(2, workers), options.chaos)]
            goals = [at_least("faults", options.chaos, rows[0]["count_of_faults"])]
        goals.append(at_most("longest wait of a survivor", 1.0, rows[0]["longest_wait"]))
    elif options.mode == "prep":
        rows, goals = [], []
        for kind in options.pipeline:
            both = scenarios.making_bound(jobs, short, seed, max(2, workers), kind)
            rows += both
            goals += making_goals(kind, *both)
    elif options.batch_sizes:
        sizes = options.batch_sizes
        wide = Program(max(sizes) * 4, min(sizes), EPOCHS, options.step_seconds * 4)
        rows = [scenarios.of_sizes(sizes, wide, seed, workers)]
        goals = [
            at_most("made by needed", 1.0, rows[0]["made_by_needed"]),
            at_most("jobs with batches of a wrong size", 0, rows[0]["wrong_sizes"]),
        ]
    elif options.peers == "tfdata":
        # Long enough that what a program spends before its first batch does not decide.
        steady = Program(options.samples * 5, 16, EPOCHS, options.step_seconds / 2)
        rows = peer.rows(jobs, steady, seed, workers)
        ours, theirs = rows
        goals = [
            at_most(name, SHARED_CPU, round(ours[of] / theirs[of], 3))
            for name, of in (
                ("CPU by tf.data service's", "cpu_ms_per_sample_and_job"),
                ("CPU by tf.data service's, after the first batches", "later_ms"),
            )
        ]
        return rows, [*goals, *no_loss(rows[:1])]
    else:
        rows = [scenarios.together(count, short, seed, workers) for count in options.jobs]
        goals = together_goals(rows)
    judged = [row for row in rows if row.get("how") != "each alone"]
    return rows, [*goals, *no_loss(judged)]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=numbers, default=None, help="default: 1,2,4,8, or 8")
    parser.add_argument("--samples", type=int, default=160, help="of an epoch of a short run")
    parser.add_argument("--step-seconds", type=float, default=0.4, help="that a step sleeps")
    parser.add_argument("--data-workers", type=int, default=1, help="of the group")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--speeds", type=float, default=0.0, help="0.3: within 30 %%")
    chosen.add_argument("--joins", type=float, default=0.0, help="jobs begin within so many epochs")
    chosen.add_argument("--kill", type=faults, help=f"of {', '.join(KINDS)}")
    chosen.add_argument("--mode", choices=("sleep", "prep"), default="sleep")
    parser.add_argument(
        "--pipeline", type=pipelines, default=["jpeg"], help="of --mode prep: jpeg,audio"
    )
    chosen.add_argument("--batch-sizes", type=numbers, help="a job for each")
    chosen.add_argument("--chaos", type=int, default=0, help="so many random faults")
    chosen.add_argument("--peers", choices=("none", "tfdata"), default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    if options.jobs is None:
        others = options.speeds or options.joins or options.kill or options.chaos
        alone = options.mode == "sleep" and options.peers == "none" and not others
        options.jobs = [1, 2, 4, 8] if alone else [8]
    wanted = len(options.batch_sizes) if options.batch_sizes else max(options.jobs)
    if (most := most_programs()) < wanted:
        parser.error(
            f"--jobs: {wanted} programs take {wanted * PROGRAM_BYTES / 1e9:.1f} GB together; there "
            f"is memory for {most} now: say fewer, or end what else runs"
        )
    load, begun = [os.getloadavg()[0]], time.monotonic()
    rows, goals = measured(options)
    load.append(os.getloadavg()[0])
    result = {
        "command": "sharing",
        "seed": options.seed,
        "load": load,
        "seconds": round(time.monotonic() - begun, 1),
        "rows": rows,
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
