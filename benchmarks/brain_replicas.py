"""Several Brains on one PostgreSQL, of which one is killed while jobs send their samples.

The Brain's part of `benchmarks.scale`. Each of ``replicas`` processes of ``penstock brain`` has the
same database, as the chart's Deployment has it. Jobs send samples as trainers do: a sample is sent
again, after the client's own pauses, until it is acknowledged. In the place of the Service a job
keeps to one replica while its calls succeed, and otherwise takes any endpoint by chance: the dead
one, too, until ``endpoints_seconds`` after the kill. A kubelet sees within a second that a
container has ended, and endpoints follow; of a node that is lost nobody hears for 40 s
(``--node-monitor-grace-period``).

Measured are the latencies before the kill; then, from the kill (SIGKILL) on, the longest time from
a sample's first attempt until it was acknowledged, and the time until the others administer all
jobs. In the end the samples in the database are counted against those that were acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil

from benchmarks.brain import JSON, Latencies, Load, batch, register, running_server, stored
from benchmarks.goals import Goal, at_most
from benchmarks.postgres import running_postgres
from penstock.client import RetryPolicy

Json = dict[str, Any]

SAMPLES_GOAL_MS: Final = 100.0
MEMORY_GOAL_MB: Final = 500.0
TAKEOVER_GOAL_SECONDS: Final = 15.0
ENDPOINTS_SECONDS: Final = 5.0
"""A dead replica is an endpoint for so long."""
AFTER_SECONDS: Final = 30.0
"""Jobs send on for so long after the kill, at least."""
GIVE_UP_SECONDS: Final = 60.0
"""A sample that is not acknowledged by then counts as lost."""
_ADMINISTERED: Final = "penstock_brain_administered_jobs "
_LOOK_SECONDS: Final = 0.25


@dataclass
class Senders:
    """All jobs, and what became of their samples. Times are those of the monotonic clock."""

    replicas: Sequence[Load]
    endpoints_seconds: float = ENDPOINTS_SECONDS
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    killed_at: float = float("inf")
    acknowledged: int = 0
    given_up: int = 0
    again: int = 0
    before: Latencies = field(default_factory=Latencies)
    longest_after: float = 0.0

    async def job(self, uid: str, offset: float, interval: float, ranks: int, end: float) -> None:
        """Send a sample each `interval` seconds until `end`, and read the plan every third time."""
        rng = random.Random(uid)
        await asyncio.sleep(offset)
        replica, number, due = rng.randrange(len(self.replicas)), 0, time.monotonic()
        while time.monotonic() < end:
            number += 1
            body = batch(time.time(), number * 150, ranks, rng)
            replica = await self._send(uid, body, replica, rng)
            if number % 3 == 1:
                await self.replicas[replica].call("plan", "GET", f"/v1/jobs/{uid}/plans/current")
            due += interval
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _endpoint(self, rng: random.Random) -> int:
        """Any of the endpoints; the first replica is the one that is killed."""
        gone = time.monotonic() - self.killed_at > self.endpoints_seconds
        return rng.randrange(1 if gone else 0, len(self.replicas))

    async def _send(self, uid: str, body: bytes, replica: int, rng: random.Random) -> int:
        """Send one sample until it is acknowledged; the replica that did."""
        began, attempt, path = time.monotonic(), 1, f"/v1/jobs/{uid}/samples"
        while True:
            status = await self.replicas[replica].call(
                "samples", "POST", path, data=body, headers=JSON
            )
            now = time.monotonic()
            if status == 200:
                break
            if now - began > GIVE_UP_SECONDS:
                self.given_up += 1
                return replica
            self.again += 1
            await asyncio.sleep(self.retry.pause_seconds(attempt, rng))
            attempt += 1
            replica = self._endpoint(rng)
        self.acknowledged += 1
        if now <= self.killed_at:
            self.before.seconds.append(now - began)
        else:
            self.longest_after = max(self.longest_after, now - max(began, self.killed_at))
        return replica


async def measure(
    jobs: int,
    replicas: int,
    *,
    seconds: float = 60.0,
    after: float = AFTER_SECONDS,
    interval: float = 15.0,
    ranks: int = 20,
    endpoints_seconds: float = ENDPOINTS_SECONDS,
    seed: int = 0,
    within: float = 120.0,
    say: Callable[[str], None] = lambda _: None,
) -> Json:
    """So many jobs on so many Brains.

    Args:
        jobs: that send samples.
        replicas: two or more.
        seconds: from the first sample to the kill.
        after: from the kill to the last sample; two intervals at least.
        interval: of each job, from sample to sample.
        ranks: workers of each sample.
        endpoints_seconds: from the kill until no call is sent to the dead replica.
        seed: of the jobs' offsets.
        within: in so many seconds all jobs have an administrator, before and after the kill.

    Raises:
        PostgresMissingError: PostgreSQL cannot be run here.
        TimeoutError: Not all jobs had an administrator in time.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        say("PostgreSQL starts")
        database = stack.enter_context(running_postgres(durable=True)).new_database()
        say(f"{replicas} Brains start")
        servers = []
        for number in range(replicas):
            own = folder / str(number)
            own.mkdir()
            servers.append(stack.enter_context(running_server(own, database)))
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=10),
            connector=aiohttp.TCPConnector(limit=256),
        ) as session:
            loads = [Load(url, process, session) for url, process in servers]
            senders = Senders(loads, endpoints_seconds)
            say(f"{jobs} jobs are registered")
            uids = await register(loads[0], jobs, "job")
            say("all jobs find an administrator")
            await administered(loads, jobs, within=within)
            end = time.monotonic() + seconds + max(after, 2 * interval)
            say(f"samples for {seconds:g} s")
            rng = random.Random(seed)
            async with asyncio.TaskGroup() as group:
                for uid in uids:
                    offset = rng.uniform(0, interval)
                    group.create_task(senders.job(uid, offset, interval, ranks, end))
                used = [_cpu(load.process) for load in loads]
                await asyncio.sleep(seconds)
                spent = [_cpu(load.process) - was for load, was in zip(loads, used, strict=True)]
                memory = [_memory_mb(load.process) for load in loads]
                alone = [load.memory_mib() for load in loads]
                say("a Brain is killed")
                loads[0].process.kill()
                senders.killed_at = time.monotonic()
                await administered(loads[1:], jobs, within=within)
                taken_over = time.monotonic() - senders.killed_at
            say("samples are counted")
            kept = await stored(loads[1], uids)
    latencies = senders.before.summary()
    return {
        "jobs": jobs,
        "replicas": replicas,
        "interval_seconds": interval,
        "ranks": ranks,
        "endpoints_seconds": endpoints_seconds,
        "samples": senders.acknowledged,
        "samples_lost": senders.given_up + senders.acknowledged - kept,
        "sent_again": senders.again,
        "samples_p50_ms": latencies["p50_ms"],
        "samples_p99_ms": latencies["p99_ms"],
        "memory_mb": round(max(memory), 1),
        "memory_without_executors_mb": max(alone),
        "cpu_cores": round(sum(spent) / seconds, 2),
        "calls_seconds": round(senders.longest_after, 2),
        "administrators_seconds": round(taken_over, 2),
    }


async def administered(loads: Sequence[Load], jobs: int, *, within: float) -> None:
    """Wait until these Brains together administer so many jobs.

    Raises:
        TimeoutError: They do not, within so many seconds.
    """
    async with asyncio.timeout(within):
        while True:
            if sum([await _administered_by(load) for load in loads]) >= jobs:
                return
            await asyncio.sleep(_LOOK_SECONDS)


async def _administered_by(load: Load) -> int:
    async with load.session.get(f"{load.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return int(float(next(line for line in lines if line.startswith(_ADMINISTERED)).split()[1]))


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _memory_mb(process: psutil.Process) -> float:
    """Of a Brain with its executors; what they share counts once."""
    return sum(one.memory_full_info().pss for one in _tree(process)) / 2**20


def _cpu(process: psutil.Process) -> float:
    """Of a Brain with its executors, in seconds."""
    return sum(sum(one.cpu_times()[:2]) for one in _tree(process))


def goals_of(row: Json) -> list[Goal]:
    """What the Brains have to reach."""
    where = f"{row['replicas']} Brains, {row['jobs']} jobs"
    return [
        at_most(f"{name}, {where}", bound, row[name])
        for name, bound in (
            ("samples_lost", 0),
            ("samples_p99_ms", SAMPLES_GOAL_MS),
            ("memory_mb", MEMORY_GOAL_MB),
            ("calls_seconds", TAKEOVER_GOAL_SECONDS),
            ("administrators_seconds", TAKEOVER_GOAL_SECONDS),
        )
    ]
