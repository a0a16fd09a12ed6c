"""Many jobs on several processes of the controller: what each takes, and what a job costs.

    python -m benchmarks.scale --jobs 10000 --shards 4 --json

The embedded API server is in this process; neither scheduler nor kubelet takes part. ``--shards``
processes of ``penstock controller`` and one to spare divide the jobs (docs/operations/shards.md).
For each of ``--sizes`` (by default a quarter, a half and all of ``--jobs``) a fresh server: all
jobs at once until all their pods are made; jobs at about two a second (`steady_p99_seconds`); then
the holder of a shard is killed and a job of that shard asks for one worker more
(`takeover_seconds`, from the kill until the pod is made). Each phase is named on stderr when it
begins.

What is measured of the processes: resident memory of the largest, CPU of all together. `per_job`
has what a job more costs in each, between the smallest and the largest size; from it and the
largest size follows what ``--of`` jobs would take (`beyond`), which is an estimate and is not held
to a goal.

With ``--brain-replicas 2`` the Brain's part follows (`benchmarks.brain_replicas`): ``--brain-jobs``
(by default as many as ``--jobs``) that send samples to so many Brains on one PostgreSQL, of which
one is killed. ``--no-controllers`` has that part alone.
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
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import brain_replicas
from benchmarks.controller import OURS, STEADY_JOBS, Case, apply_all, quantile, steady
from benchmarks.goals import Goal, at_most, report, table
from benchmarks.operated_cluster import World, operator, until, world
from penstock.base.shards import NUMBER_KEY, NUMBER_OBJECT, lease_names, read_holder, shard_of
from penstock.crds.group import SYSTEM_NAMESPACE

Json = dict[str, Any]

RSS_GOAL_MB: Final = 1024.0
STEADY_GOAL_SECONDS: Final = 2.0
TAKEOVER_GOAL_SECONDS: Final = 15.0


async def measure(
    jobs: int, workers: int, shards: int, seed: int, *, steady_jobs: int = STEADY_JOBS
) -> Json:
    """All phases with so many jobs."""
    case = Case("shards", OURS, jobs, workers, extra=1)
    begun = time.perf_counter()

    def phase(what: str) -> None:
        print(f"{jobs} jobs, {time.perf_counter() - begun:.0f} s: {what}", file=sys.stderr)

    phase("the server's own speed, 5 s")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        async with (
            world(Path(folder), stand_ins_seed=None) as cluster,
            AsyncExitStack() as stack,
        ):
            await divide(cluster, shards)
            phase(f"{shards + 1} controllers start")
            processes = [
                await stack.enter_async_context(operator(OURS, cluster.kubeconfig))
                for _ in range(shards + 1)
            ]
            phase(f"{shards} shards find their holders")
            await held_by_all(cluster, shards)
            phase(f"{jobs * case.per_job} pods at once, and until nothing more is asked for")
            row = await rush(case, cluster, processes)
            gc.unfreeze()
            phase(f"{steady_jobs} more, two a second")
            generator = random.Random(seed)
            row["steady_p99_seconds"] = await steady(cluster, case, generator, steady_jobs)
            phase("a holder is killed")
            row["takeover_seconds"] = await takeover(case, cluster, processes, shards)
            phase("the controllers end")
    return {"shards": shards, **row}


async def divide(cluster: World, shards: int) -> None:
    """Say how many shards there are."""
    namespace = {"metadata": {"name": SYSTEM_NAMESPACE}}
    await cluster.api.create("namespaces", namespace)
    number = {"metadata": {"name": NUMBER_OBJECT}, "data": {NUMBER_KEY: str(shards)}}
    await cluster.api.create("configmaps", number, SYSTEM_NAMESPACE)


async def holders(cluster: World) -> dict[int, str]:
    """Who holds which shard."""
    found = await cluster.api.list("leases.coordination.k8s.io", SYSTEM_NAMESPACE)
    names = lease_names()
    return {
        names.index(item["metadata"]["name"]): str(holder)
        for item in found.items
        if item["metadata"]["name"] in names and (holder := item["spec"].get("holderIdentity"))
    }


async def held_by_all(cluster: World, shards: int) -> None:
    """Wait until every shard has a holder."""
    async with asyncio.timeout(120):
        while True:
            held = await holders(cluster)
            if len(held) == shards and {read_holder(one).number for one in held.values()} == {
                shards
            }:
                return
            await asyncio.sleep(0.1)


def used(processes: Sequence[psutil.Process]) -> float:
    """CPU of all of them, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def rush(case: Case, cluster: World, processes: Sequence[psutil.Process]) -> Json:
    """All jobs at once."""
    gc.collect()
    gc.freeze()
    cpu = used(processes)
    seconds, delays = await apply_all(case, cluster)
    watcher = cluster.watcher
    return {
        "jobs": case.jobs,
        "pods": watcher.pods,
        "pods_made_twice": watcher.pods - case.jobs * case.per_job,
        "pods_per_second": round(watcher.pods / seconds, 1),
        "server_writes_per_second": round(cluster.server_writes, 1),
        "p50_seconds": round(statistics.median(delays), 3),
        "p99_seconds": round(quantile(delays, 0.99), 3),
        **memory_of(processes),
        "cpu_seconds": round(used(processes) - cpu, 2),
    }


def memory_of(processes: Sequence[psutil.Process]) -> Json:
    """Resident memory of the largest, and of all together."""
    memory = [process.memory_info().rss / 2**20 for process in processes]
    return {"rss_mb": round(max(memory), 1), "rss_all_mb": round(sum(memory), 1)}


async def takeover(
    case: Case, cluster: World, processes: Sequence[psutil.Process], shards: int
) -> float:
    """From the kill of a shard's holder until a job of the shard has what it asks for then."""
    held = await holders(cluster)
    shard, holder = next(iter(held.items()))
    victim = next(process for process in processes if f"-{process.pid}-" in holder)
    name = next(
        f"job-{number}"
        for number in range(case.jobs)
        if shard_of("default", f"job-{number}", shards) == shard
    )
    before = len(cluster.watcher.created[name])
    victim.kill()
    killed = time.perf_counter()
    count = {"spec": {"replicaSpecs": {"worker": {"replicas": case.workers + 1}}}}
    await cluster.api.patch("elasticjobs.penstock.dev", name, count, "default", kind="merge")
    await until("the pod", lambda: len(cluster.watcher.created[name]) > before)
    return round(cluster.watcher.created[name][before] - killed, 2)


def per_job(rows: Sequence[Json]) -> Json | None:
    """What a job more costs, between the smallest and the largest size; None with one size."""
    first, last = rows[0], rows[-1]
    more = last["jobs"] - first["jobs"]
    if more <= 0:
        return None
    shards = last["shards"]
    return {
        "rss_kb": round(1024 * (last["rss_mb"] - first["rss_mb"]) / (more / shards), 2),
        "cpu_milliseconds": round(1000 * (last["cpu_seconds"] - first["cpu_seconds"]) / more, 2),
    }


def beyond(row: Json, each: Json, of: int) -> Json:
    """An estimate of what so many jobs would take with the same number of shards."""
    more = of - row["jobs"]
    cpu = row["cpu_seconds"] + each["cpu_milliseconds"] / 1000 * more
    return {
        "jobs": of,
        "rss_mb": round(row["rss_mb"] + each["rss_kb"] / 1024 * more / row["shards"], 1),
        "cpu_seconds": round(cpu, 1),
        "cpu_seconds_of_a_shard": round(cpu / row["shards"], 1),
    }


def sizes_of(text: str) -> list[int]:
    """Numbers of jobs, divided by commas."""
    return [int(word) for word in text.split(",")]


def brains_of(jobs: int, options: argparse.Namespace) -> Json:
    """The Brain's part; each of its phases is named, too."""
    begun = time.perf_counter()

    def say(what: str) -> None:
        print(
            f"{options.brain_replicas} Brains, {time.perf_counter() - begun:.0f} s: {what}",
            file=sys.stderr,
        )

    row = asyncio.run(
        brain_replicas.measure(
            jobs,
            options.brain_replicas,
            interval=options.brain_interval,
            endpoints_seconds=options.brain_endpoints_seconds,
            seed=options.seed,
            say=say,
        )
    )
    print(table([row]), file=sys.stderr, flush=True)
    return row


def goals_of(rows: Sequence[Json]) -> list[Goal]:
    """What each size has to reach."""
    return [
        at_most(f"{name}, {row['jobs']} jobs", bound, row[name])
        for row in rows
        for name, bound in (
            ("pods_made_twice", 0),
            ("rss_mb", RSS_GOAL_MB),
            ("steady_p99_seconds", STEADY_GOAL_SECONDS),
            ("takeover_seconds", TAKEOVER_GOAL_SECONDS),
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--sizes", type=sizes_of, help="numbers of jobs, divided by commas")
    parser.add_argument("--of", type=int, default=10_000, help="of so many jobs an estimate")
    parser.add_argument("--pods-per-job", type=int, default=10)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--brain-replicas", type=int, default=0, help="Brains; 0 leaves them out")
    parser.add_argument("--brain-jobs", type=sizes_of, help="numbers of jobs that send samples")
    parser.add_argument("--brain-interval", type=float, default=15.0, help="from sample to sample")
    parser.add_argument(
        "--brain-endpoints-seconds",
        type=float,
        default=brain_replicas.ENDPOINTS_SECONDS,
        help="from the kill of a Brain until nobody calls it",
    )
    parser.add_argument("--no-controllers", action="store_true", help="the Brain's part alone")
    parser.add_argument("--seed", type=int, default=0, help="of the pauses of users")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    sizes = sorted(options.sizes or [options.jobs // 4, options.jobs // 2, options.jobs])
    if options.no_controllers:
        sizes = []
    if options.brain_replicas == 1 or (options.no_controllers and not options.brain_replicas):
        parser.error("--brain-replicas must be 2 or more: one is killed, and another goes on")
    load = [os.getloadavg()[0]]
    rows = []
    for size in sizes:
        rows.append(asyncio.run(measure(size, options.pods_per_job, options.shards, options.seed)))
        print(table([rows[-1]]), file=sys.stderr, flush=True)
        load.append(os.getloadavg()[0])
    brains = []
    if options.brain_replicas:
        for jobs in options.brain_jobs or [options.jobs]:
            brains.append(brains_of(jobs, options))
            load.append(os.getloadavg()[0])
    each = per_job(rows) if rows else None
    result = {
        "seed": options.seed,
        "load": load,
        "cores": len(os.sched_getaffinity(0)),
        "rows": rows,
        "per_job": each,
        "beyond": None if each is None else beyond(rows[-1], each, options.of),
        "brains": brains,
    }
    goals = goals_of(rows) + [goal for row in brains for goal in brain_replicas.goals_of(row)]
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
