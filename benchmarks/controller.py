"""How fast the controller makes pods, how soon it replaces them, and what that costs.

    python -m benchmarks.controller --jobs 1000 --pods-per-job 10 --json

The controller under test runs in a process of its own, as ``penstock controller`` does, against the
embedded API server (`benchmarks.operated_cluster`). Each row is a run with a fresh server:

* ``alone``: neither scheduler nor kubelet; pods stay Pending until some of them are made to fail.
* ``stand-ins``: every pod is bound, Running and Ready some seconds after it was made, by chance of
  the seed. Neither a real scheduler nor a real kubelet takes part.
* ``naive``: as ``alone``, with an operator of the usual kopf pattern (create and update handlers,
  `benchmarks.naive_operator`) and fewer jobs.

Four phases: what the server sustains in creations of the very pods that the controller makes, by a
client that does nothing else, with one watcher as in the run (`server_writes_per_second`); all jobs
at once (`pods_per_second`, `share` of what the server sustains; `p50_seconds`, `p99_seconds` from
apply to the last of a job's pods), until the operator asks for nothing more (`api_calls_per_pod`,
`calls_per_second`; ``calls`` has them by kind);
jobs at about two a second (`steady_p99_seconds`); thirty pods of one job failing at once, until
thirty new ones exist (`thirty_failures_seconds`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.goals import Goal, at_least, at_most, report, table
from benchmarks.operated_cluster import (
    TOKEN,
    Watcher,
    World,
    job,
    operator,
    until,
    world,
    write_pods,
)
from penstock_cluster.registry import Api

Json = dict[str, Any]

OURS: Final = (sys.executable, "-m", "penstock.cli", "controller", "--metrics-port=0")
NAIVE: Final = (sys.executable, "-m", "benchmarks.naive_operator")
STEADY_JOBS: Final = 30
STEADY_PAUSE_SECONDS: Final = (0.25, 0.75)
FAILURES: Final = 30


@dataclass(frozen=True)
class Case:
    """One operator in one surrounding; ``extra`` pods of a job are none of its workers."""

    name: str
    command: tuple[str, ...]
    jobs: int
    workers: int
    extra: int
    stand_ins: bool = False

    @property
    def per_job(self) -> int:
        """Pods of a job: our controller makes a trainer too."""
        return self.workers + self.extra


def quantile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(case: Case, seed: int) -> tuple[Json, Counter[str]]:
    """All phases of one case on a server of its own: its row, and the calls of the first rush."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        async with (
            world(Path(folder), stand_ins_seed=seed if case.stand_ins else None) as cluster,
            operator(case.command, cluster.kubeconfig) as process,
        ):
            await asyncio.sleep(3)  # kopf's first watches
            row, calls = await rush(case, cluster, process)
            gc.unfreeze()
            row["steady_p99_seconds"] = await steady(cluster, case, random.Random(seed))
            row["thirty_failures_seconds"] = await thirty_failures(
                cluster.api, cluster.watcher, case.extra
            )
    return row, calls


async def rush(case: Case, cluster: World, process: psutil.Process) -> tuple[Json, Counter[str]]:
    """All jobs at once."""
    # A full collection of the server's takes as long as all pods of 30 jobs, most of it for what
    # the measurement of the server itself has left behind.
    gc.collect()
    gc.freeze()
    before, cpu = cluster.counting.requests.copy(), sum(process.cpu_times()[:2])
    seconds, delays = await apply_all(case, cluster)
    watcher = cluster.watcher
    calls = cluster.counting.requests - before
    rate, writes = watcher.pods / seconds, cluster.server_writes
    row = {
        "case": case.name,
        "jobs": case.jobs,
        "pods": watcher.pods,
        "pods_per_second": round(rate, 1),
        "server_writes_per_second": round(writes, 1),
        "share": round(rate / writes, 3),
        "calls_per_second": round(rate * calls.total() / watcher.pods, 1),
        "p50_seconds": round(statistics.median(delays), 3),
        "p99_seconds": round(quantile(delays, 0.99), 3),
        "api_calls_per_pod": round(calls.total() / watcher.pods, 3),
        "rss_mb": round(process.memory_info().rss / 2**20, 1),
        "cpu_seconds": round(sum(process.cpu_times()[:2]) - cpu, 2),
    }
    return row, calls


async def apply_all(case: Case, cluster: World) -> tuple[float, list[float]]:
    """Create all jobs at once, and wait for their pods.

    Returns:
        Seconds until the last pod was there, and for each job those until its last was.
    """
    applied: dict[str, float] = {}
    begun = time.perf_counter()
    for number in range(case.jobs):
        name = f"job-{number}"
        applied[name] = time.perf_counter()
        await cluster.api.create("elasticjobs.penstock.dev", job(name, case.workers))
        if number % 20 == 0:
            await asyncio.sleep(0)
    watcher = cluster.watcher
    await until("all pods of all jobs", lambda: watcher.pods >= case.jobs * case.per_job)
    delays = [max(watcher.created[name]) - at for name, at in applied.items()]
    seconds = watcher.last - begun
    await cluster.counting.quiet()
    return seconds, delays


async def steady(
    cluster: World, case: Case, generator: random.Random, jobs: int = STEADY_JOBS
) -> float:
    """About two jobs a second."""
    watcher = cluster.watcher
    applied: dict[str, float] = {}
    for number in range(jobs):
        name = f"steady-{number}"
        applied[name] = time.perf_counter()
        await cluster.api.create("elasticjobs.penstock.dev", job(name, case.workers))
        await asyncio.sleep(generator.uniform(*STEADY_PAUSE_SECONDS))
    await until(
        "the pods of the steady jobs",
        lambda: all(len(watcher.created.get(name, ())) >= case.per_job for name in applied),
    )
    delays = [max(watcher.created[name]) - at for name, at in applied.items()]
    return round(quantile(delays, 0.99), 3)


async def thirty_failures(api: Api, watcher: Watcher, extra: int) -> float:
    """Thirty workers of one job fail together, in one burst of status writes."""
    await api.create("elasticjobs.penstock.dev", job("thirty", FAILURES))
    await until(
        "thirty workers", lambda: len(watcher.created.get("thirty", ())) >= FAILURES + extra
    )
    await asyncio.sleep(3)
    pods = await api.list(
        "pods", "default", label_selector="penstock.dev/job=thirty,penstock.dev/role=worker"
    )
    ended = {
        "name": "main",
        "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:00Z"}},
    }
    before = len(watcher.created["thirty"])
    begun = time.perf_counter()
    for pod in pods.items:
        status = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
        name = pod["metadata"]["name"]
        await api.patch("pods", name, status, "default", kind="merge", subresource="status")
    await until("thirty replacements", lambda: len(watcher.created["thirty"]) >= before + FAILURES)
    return round(watcher.created["thirty"][before + FAILURES - 1] - begun, 3)


def goals_of(rows: Sequence[Json]) -> list[Goal]:
    """What the controller has to reach; the naive operator has to reach nothing."""
    goals: list[Goal] = []
    for row in rows:
        name = row["case"]
        if name == "alone":
            goals += [
                at_least("share of the server's own writes, alone", 0.6, row["share"]),
                at_most("API calls per pod, alone", 1.3, row["api_calls_per_pod"]),
            ]
        elif name == "stand-ins":
            goals.append(at_most("API calls per pod, stand-ins", 2.5, row["api_calls_per_pod"]))
        else:
            continue
        goals += [
            at_most(f"{key}, {name}", bound, row[key])
            for key, bound in (
                ("p99_seconds", 6.0),
                ("steady_p99_seconds", 2.0),
                ("thirty_failures_seconds", 2.0),
                ("rss_mb", 300.0),
            )
        ]
    return goals


def calls_of(case: Case, calls: Counter[str]) -> list[Json]:
    """The calls of one case by kind, the most frequent first."""
    return [
        {"case": case.name, "call": kind, "count": count, "per_job": round(count / case.jobs, 2)}
        for kind, count in calls.most_common()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods-per-job", type=int, default=10)
    parser.add_argument(
        "--naive-jobs", type=int, default=100, help="jobs for the naive operator; 0 leaves it out"
    )
    parser.add_argument(
        "--no-stand-ins", action="store_true", help="leave out the run with stand-ins"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the pauses of users and stand-ins")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--writer", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        print(asyncio.run(write_pods(options.writer, os.environ[TOKEN])))
        return 0
    workers = options.pods_per_job
    cases = [Case("alone", OURS, options.jobs, workers, extra=1)]
    if not options.no_stand_ins:
        cases.append(Case("stand-ins", OURS, options.jobs, workers, extra=1, stand_ins=True))
    if options.naive_jobs:
        cases.append(Case("naive", NAIVE, options.naive_jobs, workers, extra=0))
    load = [os.getloadavg()[0]]
    rows, calls = [], []
    for case in cases:
        row, counted = asyncio.run(measure(case, options.seed))
        print(table([row]), file=sys.stderr, flush=True)
        rows.append(row)
        calls += calls_of(case, counted)
        load.append(os.getloadavg()[0])
    result = {
        "seed": options.seed,
        "load": load,
        "cores": len(os.sched_getaffinity(0)),
        "rows": rows,
        "calls": calls,
    }
    return report(result, goals_of(rows), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
