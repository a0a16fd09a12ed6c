"""The Brain under load: many jobs that send samples and read plans, over HTTP on loopback.

    python -m benchmarks.brain --jobs 1000 --json

Starts ``penstock brain`` and drives it from this process:

1. *load*: every job sends one batch of `--ranks` ranks each `--interval` seconds, at its own
   moment, and reads its current plan every third time, for `--seconds`. Latencies are measured from
   before the request is sent; what the server stored is counted at the end against what was sent.
2. *hour*: the same batches for an hour of the jobs' own time, as fast as the server takes them (for
   a tenth of the jobs), with the server's memory noted at every tenth of the way.
3. *day*: one job for a day of simulated time with its roll-ups, in this process, for the size of
   the database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from benchmarks import programs
from penstock.base.enums import Optimize, Role, Strategy
from penstock.brain.assembly import running_brain
from penstock.brain.planning import JobDescription, RoleSpec
from penstock.brain.registration import Registration
from penstock.brain.service.samples import Reading
from penstock.brain.store.database import Database

START_SECONDS = 30.0
HOUR = 3600.0
DAY = 86_400.0


@dataclass
class Latencies:
    """Seconds per request of one endpoint."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0

    def summary(self) -> dict[str, float]:
        ordered = sorted(self.seconds)

        def quantile(share: float) -> float:
            if not ordered:
                return 0.0
            return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

        return {
            "requests": len(ordered),
            "errors": self.errors,
            "p50_ms": quantile(0.5),
            "p90_ms": quantile(0.9),
            "p99_ms": quantile(0.99),
            "max_ms": quantile(1.0),
        }


@dataclass
class Load:
    """A server, its process and what was measured."""

    url: str
    process: psutil.Process
    session: aiohttp.ClientSession
    latencies: dict[str, Latencies] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    async def call(self, name: str, method: str, path: str, **options: Any) -> int:
        """One timed request; its status, 0 where there was none."""
        measured = self.latencies.setdefault(name, Latencies())
        began = time.perf_counter()
        try:
            async with self.session.request(method, self.url + path, **options) as answer:
                await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError):
            status = 0
        measured.seconds.append(time.perf_counter() - began)
        if not (200 <= status < 300 or status == 304):
            measured.errors += 1
        return status

    def memory_mib(self) -> float:
        """Resident memory of the server without its executors."""
        return round(self.process.memory_info().rss / 2**20, 1)


def registration(uid: str) -> bytes:
    body = {
        "name": uid,
        "namespace": "bench",
        "strategy": "AllReduce",
        "roles": {"worker": {"max_replicas": 32, "cpu": "1", "memory": "1Gi"}},
        "slots_per_step": 32,
        "resource_limits": {"cpu": "32", "memory": "64Gi"},
        "signature": {"dataset": f"set-{hash(uid) % 50}", "user": f"user-{hash(uid) % 20}"},
    }
    return json.dumps(body).encode()


def batch(at: float, step: int, ranks: int, rng: random.Random) -> bytes:
    workers = {
        str(rank): {
            "cpu_cores": round(rng.uniform(0.7, 1.0), 3),
            "memory_bytes": 800_000_000 + rng.randrange(10**6),
            "step_seconds": round(rng.uniform(0.09, 0.11), 4),
            "wait_share": round(rng.uniform(0, 0.1), 3),
            "node": f"node-{rank % 7}",
        }
        for rank in range(ranks)
    }
    sample = {
        "time": at,
        "step": step,
        "steps_per_second": round(rng.uniform(9, 11), 3),
        "samples_per_second": 640.0,
        "world_size": ranks,
        "interval_seconds": 15,
        "roles": {"worker": workers},
    }
    return json.dumps({"samples": [sample], "sent": at}).encode()


JSON = {"Content-Type": "application/json"}


async def register(load: Load, jobs: int, prefix: str) -> list[str]:
    """Register the jobs, a few at a time."""
    uids = [f"{prefix}-{number:05d}" for number in range(jobs)]
    slots = asyncio.Semaphore(8)

    async def one(uid: str) -> None:
        async with slots:
            await load.call(
                "PUT /v1/jobs/{uid}", "PUT", f"/v1/jobs/{uid}", data=registration(uid), headers=JSON
            )

    await asyncio.gather(*(one(uid) for uid in uids))
    return uids


async def paced(load: Load, uids: list[str], options: argparse.Namespace) -> None:
    """The load as it would be: every job on its own beat."""
    end = time.monotonic() + options.seconds

    async def job(uid: str, offset: float) -> None:
        rng = random.Random(uid)
        await asyncio.sleep(offset)
        number, etag = 0, ""
        due = time.monotonic()
        while time.monotonic() < end:
            number += 1
            body = batch(time.time(), number * 150, options.ranks, rng)
            status = await load.call(
                "POST /v1/jobs/{uid}/samples",
                "POST",
                f"/v1/jobs/{uid}/samples",
                data=body,
                headers=JSON,
            )
            if status == 200:
                load.sent[uid] = load.sent.get(uid, 0) + 1
            if number % 3 == 1:
                headers = {"If-None-Match": etag} if etag else {}
                path = f"/v1/jobs/{uid}/plans/current"
                await load.call("GET /v1/jobs/{uid}/plans/current", "GET", path, headers=headers)
            due += options.interval
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    rng = random.Random(1)
    await asyncio.gather(*(job(uid, rng.uniform(0, options.interval)) for uid in uids))


async def hour(load: Load, uids: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """An hour of every job's time, as fast as it goes."""
    rounds = int(HOUR / options.interval)
    began, start = time.perf_counter(), time.time() - HOUR
    memory = [load.memory_mib()]
    rngs = {uid: random.Random(uid) for uid in uids}
    for number in range(rounds):
        at = start + number * options.interval

        async def one(uid: str, at: float = at, number: int = number) -> None:
            body = batch(at, number * 150, options.ranks, rngs[uid])
            status = await load.call(
                "unpaced POST /v1/jobs/{uid}/samples",
                "POST",
                f"/v1/jobs/{uid}/samples",
                data=body,
                headers=JSON,
            )
            if status == 200:
                load.sent[uid] = load.sent.get(uid, 0) + 1

        for index in range(0, len(uids), 16):
            await asyncio.gather(*(one(uid) for uid in uids[index : index + 16]))
        if (number + 1) % (rounds // 10) == 0:
            memory.append(load.memory_mib())
    seconds = time.perf_counter() - began
    return {
        "jobs": len(uids),
        "batches": rounds * len(uids),
        "batches_per_second": round(rounds * len(uids) / seconds, 1),
        "memory_mib": memory,
        "memory_growth_after_first_tenth_mib": round(memory[-1] - memory[1], 1),
    }


async def stored(load: Load, uids: list[str]) -> int:
    """Samples that the server has, read back page by page."""
    total = 0
    for uid in uids:
        query: dict[str, str] = {"limit": "500"}
        while True:
            async with load.session.get(
                f"{load.url}/v1/jobs/{uid}/samples", params=query
            ) as answer:
                page = await answer.json()
            total += len(page["items"])
            if page["continue"] is None:
                break
            query["continue"] = page["continue"]
    return total


async def day(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What one job adds to the database in a day."""

    file = folder / "day.sqlite"
    database = Database(f"sqlite+aiosqlite:///{file}")
    now = 1_800_000_000.0
    rng = random.Random(3)

    def used() -> int:

        with sqlite3.connect(file) as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    async with running_brain(database, clock=lambda: now, background=False) as brain:
        empty = used()
        job = JobDescription(
            uid="day",
            name="day",
            namespace="bench",
            strategy=Strategy.ALL_REDUCE,
            optimize=Optimize.MANUAL,
            roles={Role.WORKER: RoleSpec()},
        )
        await brain.jobs.register(Registration(description=job))
        ranks = options.ranks
        beats = int(DAY / options.interval)
        for number in range(beats):
            now += options.interval
            columns: dict[str, list[Any]] = {
                "rank": list(range(ranks)),
                "milli_cpu": [rng.randrange(700, 1000) for _ in range(ranks)],
                "memory_bytes": [800_000_000 + rng.randrange(10**6) for _ in range(ranks)],
                "step_seconds": [round(rng.uniform(0.09, 0.11), 4) for _ in range(ranks)],
                "wait_share": [round(rng.uniform(0, 0.1), 3) for _ in range(ranks)],
                "node": [f"node-{rank % 7}" for rank in range(ranks)],
            }
            reading = Reading(
                time_seconds=now,
                interval_seconds=options.interval,
                step=number,
                epoch=0,
                steps_per_second=10.0,
                samples_per_second=640.0,
                world_size=ranks,
                roles={Role.WORKER: columns},
            )
            await brain.samples.add("day", [reading])
            if number % 40 == 0:
                await brain.sweeper.sweep()
        await brain.sweeper.sweep()
        after = used()
    await database.close()
    return {
        "bytes_per_job_day": after - empty,
        "file_bytes": file.stat().st_size,
        "ranks": ranks,
        "batches": beats,
    }


@contextmanager
def running_server(folder: Path, database: str | None) -> Iterator[tuple[str, psutil.Process]]:
    """``penstock brain`` on a free port."""
    url = database or f"sqlite+aiosqlite:///{folder}/brain.sqlite"
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock.cli",
            "brain",
            "--port=0",
            f"--database={url}",
            "--auth=none",
            "--log-level=warning",
        ],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "http://" not in line:
            process.wait(START_SECONDS)
            raise SystemExit(f"the Brain did not start: {(folder / 'log').read_text()}")
        yield line[line.index("http://") :].strip(), psutil.Process(process.pid)
    finally:
        programs.end(process)
        if process.stdout is not None:
            process.stdout.close()
        log.close()


async def measure(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "jobs": options.jobs,
        "ranks": options.ranks,
        "interval_seconds": options.interval,
        "seconds": options.seconds,
        "cores": os.cpu_count(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as text:
        folder = Path(text)
        with running_server(folder, options.database) as (url, process):
            timeout = aiohttp.ClientTimeout(total=60)
            connector = aiohttp.TCPConnector(limit=256)
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                load = Load(url, process, session)
                say(f"registering {options.jobs} jobs")
                began = time.perf_counter()
                uids = await register(load, options.jobs, "job")
                result["registrations_per_second"] = round(
                    options.jobs / (time.perf_counter() - began), 1
                )
                before, cpu = load.memory_mib(), process.cpu_times()
                say(f"load for {options.seconds:g} s")
                began = time.perf_counter()
                await paced(load, uids, options)
                spent = time.perf_counter() - began
                after = process.cpu_times()
                result["server_cores_used"] = round(
                    (after.user + after.system - cpu.user - cpu.system) / spent, 2
                )
                result["memory_mib"] = {"before": before, "after": load.memory_mib()}
                sent = sum(load.sent.values())
                result["samples_sent"] = sent
                result["samples_lost"] = sent - await stored(load, uids)
                if not options.skip_hour:
                    some = max(1, options.jobs // 10)
                    say(f"an hour of {some} jobs")
                    fast = await register(load, some, "fast")
                    load.sent.clear()
                    result["hour"] = await hour(load, fast, options)
                    result["hour"]["samples_lost"] = sum(load.sent.values()) - await stored(
                        load, fast
                    )
                result["endpoints"] = {
                    name: each.summary() for name, each in sorted(load.latencies.items())
                }
        if not options.skip_day:
            say("a day of one job")
            result["database"] = await day(folder, options)
    result["load_average_after"] = round(os.getloadavg()[0], 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=20)
    parser.add_argument("--interval", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the paced load")
    parser.add_argument("--database", help="another database than a temporary SQLite file")
    parser.add_argument("--skip-hour", action="store_true")
    parser.add_argument("--skip-day", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    say = (lambda _: None) if options.json else (lambda text: print(text, file=sys.stderr))
    result = asyncio.run(measure(options, say))
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, figures in result["endpoints"].items():
        print(
            f"{name:44} {figures['requests']:7} requests  p50 {figures['p50_ms']:7.2f} ms  "
            f"p99 {figures['p99_ms']:7.2f} ms  errors {figures['errors']}"
        )
    for name, value in result.items():
        if name != "endpoints":
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
