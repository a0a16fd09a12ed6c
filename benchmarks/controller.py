"""How fast the controller makes pods, how soon it replaces them, and what that costs.

    python -m benchmarks.controller --jobs 1000 --pods-per-job 10 --json

One process holds the embedded API server and plays the users; the controller under test runs in a
process of its own, as ``penstock controller`` does. The kubelet is a no-op: pods stay Pending until
the benchmark fails some of them. Beside it, in the same run, a naive operator of the usual kopf
pattern (create and update handlers, `benchmarks.naive_operator`) does the same for fewer jobs.

Four phases: what the server sustains in creations of the very pods that the controller makes, by a
client that does nothing else, with one watcher as in the run (`server_writes_per_second`); all jobs
at once (`pods_per_second`, `p50_seconds`, `p99_seconds` from apply to the last of a job's
pods); jobs at two a second (`steady_p99_seconds`); thirty pods of one job failing at once, until
thirty new ones exist (`thirty_failures_seconds`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import replica_pod
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock.crds.manifests import MANIFESTS
from penstock_cluster.apiserver import ServeOptions, serve
from penstock_cluster.registry import Engine, EngineOptions

Json = dict[str, Any]

OURS = (
    sys.executable,
    "-m",
    "penstock.cli",
    "controller",
    "--metrics-port=0",
)
NAIVE = (sys.executable, "-m", "benchmarks.naive_operator")
OWN_AGENT = "benchmark"
TOKEN = "BENCHMARK_TOKEN"
STEADY_JOBS = 30
STEADY_PAUSE_SECONDS = 0.5
FAILURES = 30
LIMIT_SECONDS = 900.0


class Counting:
    """Counts the requests of the operator under test."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    async def on_request(self, request: Any) -> None:
        if request.user_agent != OWN_AGENT:
            self.requests[request.verb] += 1

    def on_watch_event(self, request: Any, event: Any) -> bool:
        return True

    @property
    def calls(self) -> int:
        return self.requests.total()


class Watcher:
    """When which job had how many pods."""

    def __init__(self, engine: Engine) -> None:
        self._api = engine.api("system:admin", groups=("system:masters",), manager="benchmark")
        self.created: dict[str, list[float]] = {}
        self.pods = 0
        self.last = 0.0

    async def run(self) -> None:
        async with self._api.watch("pods", label_selector="penstock.dev/job") as events:
            async for event in events:
                if event.type == "ADDED" and "for" not in event.object["metadata"]["labels"]:
                    name = event.object["metadata"]["labels"]["penstock.dev/job"]
                    self.last = time.perf_counter()
                    self.created.setdefault(name, []).append(self.last)
                    self.pods += 1


def job(name: str, workers: int) -> Json:
    container = {
        "name": "main",
        "image": "image",
        "command": ["train"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "strategy": "AllReduce",
            "optimize": "Manual",
            "replicaSpecs": {
                "worker": {
                    "replicas": workers,
                    "template": {"spec": {"containers": [container]}},
                }
            },
        },
    }


async def server_writes_per_second(url: str, token: str) -> float:
    """Creations of pods by a client process that does nothing else."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.controller",
        f"--writer={url}",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, TOKEN: token},
    )
    out, _ = await process.communicate()
    return float(out)


async def write_pods(url: str, token: str, seconds: float = 5.0) -> float:
    """The client process of `server_writes_per_second`."""
    import aiohttp

    template = worker_pod()
    headers = {"Authorization": f"Bearer {token}", "User-Agent": OWN_AGENT}
    path = f"{url}/api/v1/namespaces/default/pods"
    done = 0
    begun = time.perf_counter()

    async def writer(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal done
        count = 0
        while time.perf_counter() - begun < seconds:
            count += 1
            metadata = {**template["metadata"], "name": f"write-{number}-{count}"}
            body = {**template, "metadata": metadata}
            async with session.post(path, json=body) as answer:
                await answer.read()
                assert answer.status == 201, await answer.text()
            done += 1

    async def watcher(session: aiohttp.ClientSession) -> None:
        query = {"watch": "true", "labelSelector": "for=measure"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with session.get(path, params=query, timeout=timeout) as answer:
            async for _ in answer.content.iter_any():
                pass

    async with aiohttp.ClientSession(headers=headers, read_bufsize=2**21) as session:
        watching = asyncio.create_task(watcher(session))
        await asyncio.gather(*(writer(session, number) for number in range(32)))
        rate = done / (time.perf_counter() - begun)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return rate


def worker_pod() -> Json:
    """A pod as the controller makes it, but of no job."""
    raw = job("measure", 1)
    raw["metadata"].update(uid="none", resourceVersion="1")
    spec, fault = read_spec(raw["spec"])
    assert spec is not None, fault
    pod = replica_pod(read_job(raw, spec, ""), spec, Role.WORKER, 0, 0, RankTarget())
    pod["metadata"] = {"labels": {**pod["metadata"]["labels"], "for": "measure"}}
    return pod


@contextlib.asynccontextmanager
async def operator(command: tuple[str, ...], kubeconfig: Path) -> AsyncIterator[psutil.Process]:
    """The operator under test as a process; it has started when it prints its line."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed below
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        if not line:
            log.seek(0)
            raise RuntimeError(f"{command} did not start: {log.read()[-2000:]}")
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        log.close()


async def until(what: str, probe: Any) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not probe():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT_SECONDS} s: {what}")
        await asyncio.sleep(0.02)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(
    command: tuple[str, ...], jobs: int, workers: int, per_job: int, kubeconfig_folder: Path
) -> Json:
    """All phases with one operator on a server of its own.

    ``per_job`` is how many pods the operator makes for a job: our controller makes a trainer too.
    """
    async with (
        Engine(EngineOptions()) as engine,
        serve(engine, ServeOptions()) as server,
    ):
        admin = engine.api("system:admin", groups=("system:masters",), manager="benchmark")
        for manifest in MANIFESTS[:2]:
            for crd in manifest.objects():
                await admin.create("customresourcedefinitions.apiextensions.k8s.io", crd)
        kubeconfig = server.write_kubeconfig(kubeconfig_folder / f"{os.getpid()}-{per_job}")
        sustained = await server_writes_per_second(server.url, server.token)
        await admin.delete_collection("pods", "default", label_selector="for=measure")
        counting = Counting()
        engine.interceptor = counting
        watcher = Watcher(engine)
        watching = asyncio.create_task(watcher.run())
        async with operator(command, kubeconfig) as process:
            await asyncio.sleep(3)  # kopf's first watches
            gc.collect()  # the server's: a full collection takes as long as all pods of 30 jobs
            calls, cpu = counting.calls, sum(process.cpu_times()[:2])
            applied: dict[str, float] = {}
            begun = time.perf_counter()
            for number in range(jobs):
                applied[f"job-{number}"] = time.perf_counter()
                await admin.create("elasticjobs.penstock.dev", job(f"job-{number}", workers))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            await until("all pods of all jobs", lambda: watcher.pods >= jobs * per_job)
            seconds = watcher.last - begun
            delays = [max(watcher.created[name]) - at for name, at in applied.items()]
            await asyncio.sleep(3)
            made = watcher.pods
            result = {
                "pods_per_second": round(made / seconds, 1),
                "server_writes_per_second": round(sustained, 1),
                "p50_seconds": round(statistics.median(delays), 3),
                "p99_seconds": round(quantile(delays, 0.99), 3),
                "api_calls_per_pod": round((counting.calls - calls) / made, 3),
                "rss_mb": round(process.memory_info().rss / 2**20, 1),
                "cpu_seconds": round(sum(process.cpu_times()[:2]) - cpu, 2),
            }
            result["steady_p99_seconds"] = await steady(admin, watcher, workers, per_job)
            result["thirty_failures_seconds"] = await thirty_failures(
                admin, watcher, per_job - workers
            )
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return result


async def steady(admin: Any, watcher: Watcher, workers: int, per_job: int) -> float:
    """Two jobs a second."""
    applied: dict[str, float] = {}
    for number in range(STEADY_JOBS):
        name = f"steady-{number}"
        applied[name] = time.perf_counter()
        await admin.create("elasticjobs.penstock.dev", job(name, workers))
        await asyncio.sleep(STEADY_PAUSE_SECONDS)
    await until(
        "the pods of the steady jobs",
        lambda: all(len(watcher.created.get(name, ())) >= per_job for name in applied),
    )
    delays = [max(watcher.created[name]) - at for name, at in applied.items()]
    return round(quantile(delays, 0.99), 3)


async def thirty_failures(admin: Any, watcher: Watcher, extra: int) -> float:
    """Thirty workers of one job fail together, in one burst of status writes."""
    await admin.create("elasticjobs.penstock.dev", job("thirty", FAILURES))
    await until(
        "thirty workers", lambda: len(watcher.created.get("thirty", ())) >= FAILURES + extra
    )
    await asyncio.sleep(3)
    pods = await admin.list(
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
        await admin.patch("pods", name, status, "default", kind="merge", subresource="status")
    await until("thirty replacements", lambda: len(watcher.created["thirty"]) >= before + FAILURES)
    return round(watcher.created["thirty"][before + FAILURES - 1] - begun, 3)


async def run(jobs: int, pods_per_job: int, naive_jobs: int) -> Json:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        result = await measure(OURS, jobs, pods_per_job, pods_per_job + 1, Path(folder))
        if naive_jobs:
            naive = await measure(NAIVE, naive_jobs, pods_per_job, pods_per_job, Path(folder))
            result["naive"] = naive
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods-per-job", type=int, default=10)
    parser.add_argument(
        "--naive-jobs", type=int, default=100, help="jobs for the naive operator; 0 leaves it out"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--writer", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer:
        print(asyncio.run(write_pods(arguments.writer, os.environ[TOKEN])))
        return
    result = asyncio.run(run(arguments.jobs, arguments.pods_per_job, arguments.naive_jobs))
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
