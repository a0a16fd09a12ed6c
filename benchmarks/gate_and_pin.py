"""How fast gated pods get a node through the planner, beside the binder alone.

    python -m benchmarks.gate_and_pin --nodes 5000 --pods 2000 --json

Pods are created as fast as the API server takes them; nine of ten are data workers of 1 to 8 cores,
every tenth is a GPU pod that nobody gates, so that the planner and kube-scheduler compete for the
same nodes. Twice: first without a gate, so that kube-scheduler (here the embedded cluster's binder)
does all of it; then gated, with ``penstock scheduler`` in a process of its own.

* ``pods_per_second``: data workers, from the first creation to the last binding.
* ``p50_seconds``, ``p99_seconds``: from the creation of a data worker, as its creator sends it, to
  its binding, as a watch shows it.
* ``bound``: how many of them have a node after three minutes at most; all, or the goal is missed.
* ``rejected_pins``: pins that kube-scheduler found unschedulable, and their share of all.

API server and binder are one process, the planner a second, this one the third: on two cores they
share the processor. With ``--kubeconfig`` a real API server and scheduler are used instead; the
nodes are then created there (tainted ``penstock.dev/benchmark``, which the pods tolerate, without a
kubelet) and deleted at the end. A watch that the server closes, as real ones do to those who read
too slowly, goes on where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.aio.client import ApiClient

from benchmarks import programs
from benchmarks.goals import at_least, report
from penstock.crds.manifests import MANIFESTS
from penstock.kube.api import Api, Page
from penstock.kube.connection import connect
from penstock.kube.errors import ApiError
from penstock.kube.watch import Watch

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
BENCHMARK = "penstock.dev/benchmark"
TAINT = {"key": BENCHMARK, "effect": "NoSchedule"}
GATE = {"name": "penstock.dev/placement"}
NODE_KINDS = ((8, 96, 768), (8, 128, 1024), (4, 48, 384), (2, 64, 512), (0, 64, 256))
NAMESPACE = "default"
OTHERS = 10
AT_ONCE = 16
LIMIT_SECONDS = 180.0


def node(index: int, generator: random.Random) -> Json:
    """A node of a mixed cluster."""
    gpus, cores, memory = generator.choice(NODE_KINDS)
    amounts = {"cpu": str(cores), "memory": f"{memory}Gi", "pods": "110"}
    if gpus:
        amounts[GPU] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"bench-{index:05d}", "labels": {BENCHMARK: "yes"}},
        "spec": {"taints": [TAINT]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, index: int, *, gated: bool) -> Json:
    """A data worker, or a GPU pod of somebody else."""
    other = index % OTHERS == 0
    cores = 8 if other else 1 + index % 8
    limits = {"cpu": str(cores), "memory": f"{2 * cores}Gi"} | ({GPU: "1"} if other else {})
    tags = {BENCHMARK: "yes"}
    if not other:
        tags |= {
            "penstock.dev/job": f"job-{index % 50}",
            "penstock.dev/job-uid": f"uid-{index % 50}",
            "penstock.dev/role": "data-worker",
            "penstock.dev/rank": str(index),
        }
    spec: Json = {
        "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        "automountServiceAccountToken": False,
    }
    if gated and not other:
        spec["schedulingGates"] = [GATE]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": tags},
        "spec": spec,
    }


@dataclass
class Observed:
    """When each data worker was created and bound; ``prefix`` begins the names of them all."""

    prefix: str
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def replace(self, page: Page) -> None:
        """All pods, after the watch began or was closed by a server that it was too slow for."""
        for found in page.items:
            self.take("ADDED", found)

    def take(self, kind: str, found: Json) -> None:
        """Note the time at which a data worker is first seen with a node."""
        name = found["metadata"].get("name", "")
        if kind not in {"ADDED", "MODIFIED"} or not name.startswith(self.prefix):
            return
        if found["spec"].get("nodeName") and name not in self.bound:
            self.bound[name] = time.perf_counter()
            self.changed.set()

    async def all_bound(self) -> None:
        """Wait until every data worker that was created has a node."""
        while not self.created.keys() <= self.bound.keys():
            self.changed.clear()
            await self.changed.wait()


async def run(api: Api, count: int, prefix: str, *, gated: bool) -> Json:
    """Create the pods, wait until all data workers are bound; the figures."""
    observed = Observed(f"{prefix}-d")
    watch = Watch(
        api,
        "pods",
        replace=observed.replace,
        take=observed.take,
        selector=BENCHMARK,
        random_source=random.Random(),  # of its pauses,
    )
    watching = asyncio.create_task(watch.run())
    await watch.synced.wait()
    numbers = iter(range(count))

    async def create() -> None:
        for index in numbers:
            name = f"{prefix}-{'g' if index % OTHERS == 0 else 'd'}{index}"
            if index % OTHERS:
                observed.created[name] = time.perf_counter()
            await api.submit("pods", NAMESPACE, pod(name, index, gated=gated))

    await asyncio.gather(*(create() for _ in range(AT_ONCE)))
    created_seconds = time.perf_counter() - min(observed.created.values())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_SECONDS):
            await observed.all_bound()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    delays = sorted(at - observed.created[name] for name, at in observed.bound.items())
    span = max(observed.bound.values()) - min(observed.created.values())
    return {
        "pods": len(observed.created),
        "bound": len(delays),
        "pods_per_second": round(len(delays) / span, 1),
        "created_per_second": round(count / created_seconds, 1),
        "p50_seconds": round(statistics.median(delays), 3),
        "p99_seconds": round(delays[min(len(delays) - 1, int(0.99 * len(delays)))], 3),
    }


async def send(client: ApiClient, method: str, path: str, body: Json | None = None) -> None:
    """A call that the planner itself never makes."""
    headers = {"Content-Type": "application/json", **client.default_headers}
    await client.update_params_for_auth(headers, None, ["BearerToken"], path, method, body)
    url = client.configuration.host + path
    answer = await client.rest_client.request(method, url, headers=headers, body=body)
    raw = await answer.response.read()
    if answer.response.status >= 300:
        raise RuntimeError(f"{method} {path}: {raw[:300]!r}")


async def remove_pods(api: Api) -> None:
    """Delete the pods of a run, and wait until they are gone."""
    while True:
        page = await api.list("pods", None)
        ours = [one for one in page.items if BENCHMARK in (one["metadata"].get("labels") or {})]
        if not ours:
            return
        rest = iter(ours)

        async def delete(rest: Any = rest) -> None:
            for one in rest:
                about = one["metadata"]
                try:
                    await api.delete(
                        "pods", about["namespace"], about["name"], about["uid"], grace_seconds=0
                    )
                except ApiError as error:
                    if error.code not in {404, 409}:
                        raise

        await asyncio.gather(*(delete() for _ in range(AT_ONCE)))


def serve_until_killed(folder: Path) -> None:
    """What the process of the API server and the binder does."""
    from penstock_cluster.apiserver import serve
    from penstock_cluster.scheduler.binder import Binder

    async def main() -> None:
        async with serve() as server, Binder(server.engine, records_events=False):
            server.write_kubeconfig(folder / "kubeconfig")
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def start_planner(kubeconfig: Path, log: Path) -> tuple[subprocess.Popen[str], str]:
    """The planner's process and where its metrics are."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.cli",
                "scheduler",
                f"--kubeconfig={kubeconfig}",
                "--metrics-port=0",
                "--no-leader-election",
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the planner did not start: {log.read_text()}")
    return process, line.split()[-1]


def decisions(url: str) -> dict[str, float]:
    """The planner's decisions by reason, and the time of its passes."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("penstock_scheduler_decisions_total{"):
                found[line.split('reason="')[1].split('"')[0]] = float(line.rsplit(" ", 1)[1])
            elif line.startswith("penstock_scheduler_plan_duration_seconds_sum"):
                found["plan_seconds"] = float(line.rsplit(" ", 1)[1])
    return found


async def measure(options: argparse.Namespace, kubeconfig: Path, folder: Path) -> list[Json]:
    """Both runs, a row each."""
    client = await connect(kubeconfig, "penstock-benchmark")
    api = Api(client)
    generator = random.Random(options.seed)
    numbers = iter(range(options.nodes))

    async def create_nodes() -> None:
        for index in numbers:
            await send(client, "POST", "/api/v1/nodes", node(index, generator))

    process = None
    try:
        if options.kubeconfig is None:
            for manifest in MANIFESTS[:2]:
                for document in manifest.objects():
                    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                    await send(client, "POST", path, document)
        await asyncio.gather(*(create_nodes() for _ in range(AT_ONCE)))
        alone = await run(api, options.pods, "alone", gated=False)
        await remove_pods(api)
        process, url = start_planner(kubeconfig, folder / "planner.log")
        while decisions(url).get("plan_seconds", 0.0) == 0.0:  # noqa: ASYNC110  it reads the nodes
            await asyncio.sleep(0.1)
        planner = await run(api, options.pods, "planned", gated=True)
        counts = decisions(url)
        rejected = counts.get("PinUnschedulable", 0.0)
        placed = counts.get("Placed", 0.0)
        planner["rejected_pins"] = int(rejected)
        planner["rejected_share"] = rejected / placed if placed else 0.0
        planner["plan_seconds"] = round(counts["plan_seconds"], 3)
        return [{"case": "binder alone", **alone}, {"case": "gate and pin", **planner}]
    finally:
        if process is not None:
            programs.end(process)
        if options.kubeconfig is not None:
            await remove_pods(api)
            for index in range(options.nodes):
                await send(client, "DELETE", f"/api/v1/nodes/bench-{index:05d}")
        await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--kubeconfig", type=Path, help="a real cluster to use")
    parser.add_argument("--seed", type=int, default=7, help="of the nodes' kinds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve_until_killed(options.serve)
        return 0
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = None
        kubeconfig = options.kubeconfig
        if kubeconfig is None:
            server = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gate_and_pin", "--serve", name],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert server.stdout is not None
            if not server.stdout.readline():
                raise RuntimeError("the API server did not start")
            kubeconfig = folder / "kubeconfig"
        try:
            rows = asyncio.run(measure(options, kubeconfig, folder))
        finally:
            if server is not None:
                programs.end(server)
    load.append(os.getloadavg()[0])
    result = {"seed": options.seed, "load": load, "nodes": options.nodes, "rows": rows}
    goals = [
        at_least(f"data workers bound, {row['case']}", row["pods"], row["bound"]) for row in rows
    ]
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
