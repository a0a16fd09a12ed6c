"""The Brain's whole loop with real parameter servers, at the scale of two cores.

    python -m benchmarks.ps_loop --json --plot docs/pictures/ps-loop.svg
    python -m benchmarks.ps_loop --model xdeepfm --json

``examples/criteo`` is submitted without a number or a resource to an embedded cluster that enforces
CPU limits; the job as a whole may have 1.5 cores, and the Brain plans in tenths of one
(``limits.core_milli_cpu``). Its plans are made on measured data. When they have come to rest, the
node of one server is slowed to a quarter, and the time is taken for as many batches as would have
taken `WORK_SECONDS` without that. Then the same with a static job: what the Brain had chosen,
written into the spec, with nobody to change it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.elastic.cluster import Cluster, running_cluster, wait
from benchmarks.parameters.jobs import server_job
from benchmarks.parameters.steplogs import Step, read_steps, speed

CPU_MILLI = 1500
NODES = [{"name": "node", "count": 10, "cpu": "600m", "memory": "4Gi"}]
SLOW_PERCENT = 25
QUIET_SECONDS = 25.0
ADAPT_SECONDS = 110.0
WORK_SECONDS = 25.0
LONGEST_SECONDS = 120.0
BIN_SECONDS = 2.0
BRAIN = {
    "administrator": {
        "enough_steps": 50, "enough_seconds": 8, "interval_seconds": 6,
        "servers_interval_seconds": 8, "reaction_seconds": 5,
    },
    "limits": {"core_milli_cpu": 100, "pod_cpu": "500m"},
    "algorithms": {
        "fitted_ps": {"params": {"server_interval_seconds": 15, "judging_seconds": 10}},
        "hot_ps": {"params": {"server_interval_seconds": 15}},
        "straggler": {"params": {"retry_seconds": 60}},
    },
}  # fmt: skip
PROGRAMS = {"wide-deep": "examples/criteo/wide_deep.py", "xdeepfm": "examples/criteo/xdeepfm.py"}


@dataclass(frozen=True)
class Pods:
    """What a job has: pods of each role, and milli-cores of each by rank."""

    workers: tuple[int, ...]
    servers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{_told(self.workers)} workers, {_told(self.servers)} servers"


class Watched:
    """One job on the cluster, and what is seen of it."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, model: str, **roles: Any) -> None:
        self.name = name
        self._cluster = cluster
        self._steps = folder / "steps"
        self.applied = time.time()
        cluster.apply(
            server_job(
                name,
                PROGRAMS[model],
                ["--samples=100000000"],
                workers=roles.pop("workers"),
                servers=roles.pop("servers"),
                step_log=str(self._steps),
                checkpoints=str(folder / "checkpoints"),
                resourceLimits={"cpu": f"{CPU_MILLI}m", "memory": "8Gi"},
                signature={"model": name},
                **roles,
            )
        )

    def steps(self) -> list[Step]:
        """All batches so far."""
        return read_steps(self._steps)

    def plans(self) -> list[dict[str, Any]]:
        """The Brain's plans for it."""
        return self._cluster.plans(self.name)

    def pods(self) -> Pods:
        """What it has now."""
        return Pods(*(tuple(_milli(pod) for pod in self._of(role)) for role in ("worker", "ps")))

    def _of(self, role: str) -> list[dict[str, Any]]:
        return [pod for pod in self._cluster.pods(role) if _labels(pod)["job"] == self.name]

    def lonely_server(self) -> dict[str, Any]:
        """The pod of a server that shares its node with as few others as possible."""
        nodes = [pod["spec"]["nodeName"] for role in ("worker", "ps") for pod in self._of(role)]
        return min(self._of("ps"), key=lambda pod: nodes.count(pod["spec"]["nodeName"]))

    def slow_down(self) -> tuple[int, str]:
        """Slow the node of one server; its rank and the node."""
        pod = self.lonely_server()
        node = pod["spec"]["nodeName"]
        self._cluster.fault("slow_node", name=node, percent=SLOW_PERCENT)
        return int(_labels(pod)["rank"]), node

    def until_done(self, batches: int, since: float) -> float:
        """Seconds until so many batches have been done."""

        def done() -> float:
            times = [step.time_seconds for step in self.steps() if step.time_seconds >= since]
            return times[batches - 1] - since if len(times) >= batches else 0.0

        found: float = wait(done, LONGEST_SECONDS, f"{batches} batches", pause=0.3)
        return found

    def until_at_rest(self) -> None:
        """Until the Brain has planned, and then let some time go by without a plan."""

        def rests() -> bool:
            if time.time() > self.applied + ADAPT_SECONDS:
                return True
            plans = self.plans()
            newest = max((plan["created_seconds"] for plan in plans), default=time.time())
            return len(plans) > 1 and time.time() > newest + QUIET_SECONDS

        wait(rests, 2 * ADAPT_SECONDS, "the plans come to rest", pause=1.0)


def run(cluster: Cluster, folder: Path, model: str) -> dict[str, Any]:
    """Both jobs; the figures, and what is drawn."""
    auto = Watched(
        cluster,
        "auto",
        folder / "auto",
        model,
        workers={"maxReplicas": 8},
        servers={"maxReplicas": 4},
        optimize="Auto",
    )
    auto.until_at_rest()
    chosen, before = auto.pods(), time.time()
    reached = speed(auto.steps(), before - 10, before)
    batches = int(reached * WORK_SECONDS)
    rank, node = auto.slow_down()
    slowed = time.time()
    with_brain = auto.until_done(batches, slowed)
    steps, plans, after = auto.steps(), auto.plans(), auto.pods()
    cluster.fault("clear")
    cluster.delete_job("auto")
    static = Watched(
        cluster,
        "static",
        folder / "static",
        model,
        workers=_fixed(chosen.workers),
        servers=_fixed(chosen.servers),
        optimize="Manual",
    )
    _wait_for_pods(static, chosen)
    static_reached = speed(static.steps(), time.time() - 6, time.time())
    static.slow_down()
    static_slowed = time.time()
    alone = static.until_done(batches, static_slowed)
    cluster.delete_job("static")
    return {
        "model": model,
        "limit_milli_cpu": CPU_MILLI,
        "chosen": str(chosen),
        "steps_per_second": round(reached, 1),
        "plans": [_plan(plan, auto.applied, steps) for plan in plans],
        "slowed": {
            "server": rank,
            "node": node,
            "percent": SLOW_PERCENT,
            "at_seconds": round(slowed - auto.applied, 1),
            "steps_per_second_after_3_to_8_s": round(speed(steps, slowed + 3, slowed + 8), 1),
            "seconds_until_planned": _until_planned(plans, slowed),
            "pods_afterwards": str(after),
        },
        "batches_after_that": batches,
        "seconds_with_brain": round(with_brain, 1),
        "seconds_static": round(alone, 1),
        "static_steps_per_second_before": round(static_reached, 1),
        "completion_time_change": round(with_brain / alone - 1, 3),
        "speed_over_time": _binned(steps, auto.applied),
    }


def _wait_for_pods(job: Watched, wanted: Pods) -> None:
    def trains() -> bool:
        now = time.time()
        here = {step.worker for step in job.steps() if step.time_seconds > now - 5}
        return len(here) == len(wanted.workers) and bool(speed(job.steps(), now - 8, now - 6))

    wait(trains, ADAPT_SECONDS, f"{wanted} train", pause=0.5)


def _fixed(milli: tuple[int, ...]) -> dict[str, Any]:
    """So many replicas of one size: the mean, where the Brain gave ranks different ones."""
    size = f"{round(sum(milli) / len(milli))}m"
    limits = {"cpu": size}
    return {"replicas": len(milli), "resources": {"limits": limits, "requests": limits}}


def _until_planned(plans: list[dict[str, Any]], slowed: float) -> dict[str, float]:
    """When each reason was given for the first time after the slowdown."""
    found: dict[str, float] = {}
    for plan in plans:
        if plan["created_seconds"] > slowed:
            found.setdefault(plan["reason"], round(plan["created_seconds"] - slowed, 1))
    return found


def _plan(plan: dict[str, Any], began: float, steps: list[Step]) -> dict[str, Any]:
    at = plan["created_seconds"]
    return {
        "at_seconds": round(at - began, 1),
        "stage": plan.get("stage"),
        "reason": plan["reason"],
        "message": plan["message"],
        "steps_per_second_before": round(speed(steps, at - 5, at), 1),
    }


def _binned(steps: list[Step], began: float) -> list[list[float]]:
    if not steps:
        return []
    count = int((steps[-1].time_seconds - began) // BIN_SECONDS)
    edges = [began + BIN_SECONDS * index for index in range(count)]
    return [
        [round(edge - began, 1), round(speed(steps, edge, edge + BIN_SECONDS), 2)] for edge in edges
    ]


def _labels(pod: dict[str, Any]) -> dict[str, str]:
    return {key.partition("/")[2]: value for key, value in pod["metadata"]["labels"].items()}


def _milli(pod: dict[str, Any]) -> int:
    text = str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _told(sizes: tuple[int, ...]) -> str:
    each = " + ".join(f"{size}m" for size in sorted(set(sizes)))
    return f"{len(sizes)} x {each}"


def plot(figures: dict[str, Any], path: Path) -> None:
    """Throughput over time, with the plans and their reasons."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    axes = figure.add_subplot()
    times, speeds = zip(*figures["speed_over_time"], strict=True)
    axes.step(times, speeds, where="post", color="#1f6f8b")
    top = max(speeds) * 1.6
    marks = [(plan["at_seconds"], plan["reason"], "#8a5a00") for plan in figures["plans"]]
    slowed = figures["slowed"]
    marks.append((slowed["at_seconds"], f"server {slowed['server']} slowed to 25 %", "#a02020"))
    for at, text, colour in marks:
        axes.axvline(at, color=colour, linewidth=1, linestyle=":")
        axes.text(at + 0.5, top * 0.98, text, rotation=90, va="top", fontsize=8, color=colour)
    axes.set(xlabel="seconds since the job was applied", ylabel="batches per second", ylim=(0, top))
    axes.set_xlim(0, times[-1] + BIN_SECONDS)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(PROGRAMS), default="wide-deep")
    parser.add_argument("--plot", type=Path, help="draw the throughput over time into this file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = folder / "brain.yaml"
        config.write_text(yaml.safe_dump(BRAIN))
        more = ("--enforce-cpu-limits", f"--brain-config={config}")
        with running_cluster(folder / "home", NODES, *more) as cluster:
            figures = run(cluster, folder, options.model)
    if options.plot:
        plot(figures, options.plot)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
