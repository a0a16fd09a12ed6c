"""The Brain's whole loop with real parameter servers, at the scale of two cores.

    python -m benchmarks.ps_loop --rounds 5 --json --plot docs/pictures/ps-loop.svg
    python -m benchmarks.ps_loop --model xdeepfm --rounds 2 --json

In each round ``examples/criteo`` is submitted without a number or a resource to an embedded cluster
that enforces CPU limits; the job as a whole may have 1.5 cores, and the Brain plans in tenths of
one (``limits.core_milli_cpu``). Its plans are made on measured data. When they have come to rest,
the node of one server, drawn by lot, is slowed to a quarter, and the time is taken for as many
batches as would have taken `WORK_SECONDS` without that. Then the same with a static job: the same
pods, each server of the size that the Brain had given it, the same server slowed, and nobody to
change anything.

What a core does in a second differs from minute to minute on a machine that others share. So the
completion times are compared as multiples, too: each job's time over what the same batches would
have taken at the speed that it had itself just before (``completion_time_change``; as clocks have
it: ``raw_change``).

``--into FILE`` keeps each round as a line of a file and sums up all that are there, so that rounds
can be run one by one; ``--rounds 0`` only sums up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import yaml

from benchmarks.elastic.cluster import Cluster, api_server
from benchmarks.parameters.loopplot import plot
from benchmarks.parameters.steplogs import Step, speed
from benchmarks.parameters.watched import Pods, Watched

CPU_MILLI = 1500
NODES = [{"name": "node", "count": 16, "cpu": "600m", "memory": "4Gi"}]
"""More nodes than pods: each pod has one of its own, and a slow node slows one pod."""
SLOW_PERCENT = 25
QUIET_SECONDS = 20.0
ADAPT_SECONDS = 120.0
BEFORE_SECONDS = 15.0
WORK_SECONDS = 25.0
AFTER_SECONDS = 10.0
LONGEST_SECONDS = 150.0
BIN_SECONDS = 2.0
BRAIN = {
    "administrator": {
        "enough_steps": 50,
        "enough_seconds": 8,
        "interval_seconds": 6,
        "servers_interval_seconds": 8,
        "reaction_seconds": 5,
    },
    "limits": {"core_milli_cpu": 100, "pod_cpu": "500m"},
    "algorithms": {
        "fitted_ps": {"params": {"server_interval_seconds": 15, "judging_seconds": 10}},
        "hot_ps": {"params": {"server_interval_seconds": 15}},
        "straggler": {"params": {"retry_seconds": 60}},
    },
}
PROGRAMS = {"wide-deep": "examples/criteo/wide_deep.py", "xdeepfm": "examples/criteo/xdeepfm.py"}

Json = dict[str, Any]


def run(cluster: Cluster, folder: Path, model: str, seed: int) -> Json:
    """One round: both jobs; the figures, and what is drawn."""
    auto = Watched(
        cluster,
        "auto",
        folder / "auto",
        PROGRAMS[model],
        workers={"maxReplicas": 8},
        servers={"maxReplicas": 4},
        optimize="Auto",
        resourceLimits={"cpu": f"{CPU_MILLI}m", "memory": "8Gi"},
    )
    auto.until_at_rest(QUIET_SECONDS, ADAPT_SECONDS)
    chosen = auto.pods()
    rank = Random(seed).randrange(len(chosen.servers))
    began = time.time()
    reached = auto.speed(began - BEFORE_SECONDS, began)
    batches = round(reached * WORK_SECONDS)
    node = auto.node_of_server(rank)
    slowed = auto.slow_down(rank, SLOW_PERCENT)
    with_brain = auto.until_done(batches, slowed, LONGEST_SECONDS)
    time.sleep(max(0.0, slowed + with_brain + AFTER_SECONDS - time.time()))
    steps, plans, after = list(auto.steps()), auto.plans(), auto.pods()
    moved_to = auto.node_of_server(rank)
    mended = _mended(steps, plans, slowed, rank, reached)
    cluster.fault("clear")
    cluster.delete_job("auto")
    static = _static(cluster, folder, model, chosen, rank, batches)
    own = with_brain * reached / batches
    return {
        "model": model,
        "seed": seed,
        "chosen": str(chosen),
        "server": {"rank": rank, "milli_cpu": chosen.servers[rank]},
        "plans": [_plan(plan, auto.applied, steps) for plan in plans],
        "slowed_at_seconds": round(slowed - auto.applied, 1),
        "detected": moved_to not in ("", node) and "planned_after_seconds" in mended,
        **mended,
        "pods_after": str(after),
        "others_moved": _others_moved(plans, slowed, rank),
        "batches": batches,
        "auto": {
            "steps_per_second_before": round(reached, 1),
            "steps_per_second_after": round(_last(steps, AFTER_SECONDS), 1),
            "seconds": round(with_brain, 1),
            "times_as_long": round(own, 3),
        },
        "static": static,
        "completion_time_change": round(own / static["times_as_long"] - 1, 3),
        "raw_change": round(with_brain / static["seconds"] - 1, 3),
        "speed_over_time": _binned(steps, auto.applied),
    }


def _static(
    cluster: Cluster, folder: Path, model: str, pods: Pods, rank: int, batches: int
) -> Json:
    """The same with the same pods and without a Brain."""
    job = Watched(
        cluster,
        "static",
        folder / "static",
        PROGRAMS[model],
        workers=_of_size(pods.workers),
        servers=_of_size(pods.servers),
        optimize="Manual",
    )
    job.size_servers(pods.servers)
    job.until_has(pods, BEFORE_SECONDS + 3.0, ADAPT_SECONDS)
    reached = job.speed(time.time() - BEFORE_SECONDS, time.time())
    slowed = job.slow_down(rank, SLOW_PERCENT)
    seconds = job.until_done(batches, slowed, LONGEST_SECONDS)
    cluster.delete_job("static")
    return {
        "steps_per_second_before": round(reached, 1),
        "steps_per_second_slowed": round(batches / seconds, 1),
        "seconds": round(seconds, 1),
        "times_as_long": round(seconds * reached / batches, 3),
    }


def _of_size(milli: tuple[int, ...]) -> Json:
    limits = {"cpu": f"{max(set(milli), key=milli.count)}m"}
    return {"replicas": len(milli), "resources": {"limits": limits, "requests": limits}}


def _mended(
    steps: list[Step], plans: list[Json], slowed: float, rank: int, before: float
) -> dict[str, float]:
    """When the slow server was to be replaced, and when the old speed was back, after it slowed."""
    for plan in plans:
        at = plan["created_seconds"]
        if at > slowed and rank in _moved(plan):
            found = {"planned_after_seconds": round(at - slowed, 1)}
            ends = [at + index for index in range(1, int(steps[-1].time_seconds - at))]
            back = [end for end in ends if speed(steps, end - 1, end) >= 0.9 * before]
            if back:
                found["back_after_seconds"] = round(back[0] - slowed, 1)
            return found
    return {}


def _others_moved(plans: list[Json], slowed: float, rank: int) -> int:
    """How many pods were replaced that nobody had slowed."""
    return sum(
        len(_moved(plan) - ({rank} if plan["created_seconds"] > slowed else set()))
        + len(_moved(plan, "worker"))
        for plan in plans
    )


def _moved(plan: Json, role: str = "ps") -> set[int]:
    ranks = (plan.get("roles", {}).get(role) or {}).get("ranks") or {}
    return {int(rank) for rank, own in ranks.items() if own.get("avoidNodes")}


def _plan(plan: Json, began: float, steps: list[Step]) -> Json:
    at = plan["created_seconds"]
    return {
        "at_seconds": round(at - began, 1),
        "stage": plan.get("stage"),
        "reason": plan["reason"],
        "message": plan["message"],
        "steps_per_second_before": round(speed(steps, at - 5, at), 1),
    }


def _last(steps: list[Step], seconds: float) -> float:
    return speed(steps, steps[-1].time_seconds - seconds, steps[-1].time_seconds)


def _binned(steps: list[Step], began: float) -> list[list[float]]:
    count = int((steps[-1].time_seconds - began) // BIN_SECONDS)
    edges = [began + BIN_SECONDS * index for index in range(count)]
    return [
        [round(edge - began, 1), round(speed(steps, edge, edge + BIN_SECONDS), 2)] for edge in edges
    ]


def summary(rounds: Sequence[Json]) -> Json:
    """Medians and ranges over the rounds."""
    figures: dict[str, Callable[[Json], float | None]] = {
        "first_steps_per_second": _sampled,
        "steps_per_second_before": lambda one: one["auto"]["steps_per_second_before"],
        "static_over_auto_before": lambda one: (
            one["static"]["steps_per_second_before"] / one["auto"]["steps_per_second_before"]
        ),
        "planned_after_seconds": lambda one: one.get("planned_after_seconds"),
        "back_after_seconds": lambda one: one.get("back_after_seconds"),
        "speed_after_over_before": lambda one: (
            one["auto"]["steps_per_second_after"] / one["auto"]["steps_per_second_before"]
        ),
        "auto_times_as_long": lambda one: one["auto"]["times_as_long"],
        "static_times_as_long": lambda one: one["static"]["times_as_long"],
        "completion_time_change": lambda one: one["completion_time_change"],
        "change_if_mended_at_once": lambda one: 1 / one["static"]["times_as_long"] - 1,
        "raw_change": lambda one: one["raw_change"],
    }
    return {
        "model": rounds[0]["model"],
        "rounds": len(rounds),
        "limit_milli_cpu": CPU_MILLI,
        "slowed_to_percent": SLOW_PERCENT,
        "detected": sum(one["detected"] for one in rounds),
        "others_moved": sum(one["others_moved"] for one in rounds),
        "median_and_range": {
            name: _median_and_range([figure(one) for one in rounds])
            for name, figure in figures.items()
        },
    }


def _sampled(one: Json) -> float | None:
    """The speed on the first plan, of which nothing was known."""
    found = [plan["steps_per_second_before"] for plan in one["plans"] if plan["stage"] != "Create"]
    return float(found[0]) if found else None


def _median_and_range(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return [round(of(known), 3) for of in (median, min, max)] if known else []


def _typical(rounds: Sequence[Json]) -> Json:
    """The round with the median change (the lower one of two)."""
    return sorted(rounds, key=lambda one: float(one["completion_time_change"]))[
        (len(rounds) - 1) // 2
    ]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(PROGRAMS), default="wide-deep")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first round; the next has one more"
    )
    parser.add_argument("--into", type=Path, help="a file to which each round is added as a line")
    parser.add_argument(
        "--plot", type=Path, help="draw the speed of a typical round into this file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds: list[Json] = []
    if options.into is not None and options.into.exists():
        rounds = [json.loads(line) for line in options.into.read_text().splitlines()]
        rounds = [one for one in rounds if one["model"] == options.model]
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            config = folder / "brain.yaml"
            config.write_text(yaml.safe_dump(BRAIN))
            more = ("--enforce-cpu-limits", f"--brain-config={config}")
            with api_server(folder / "home", NODES, *more) as cluster:
                rounds.append(run(cluster, folder, options.model, seed))
        if options.into is not None:
            with options.into.open("a") as file:
                file.write(json.dumps(rounds[-1]) + "\n")
    if not rounds:
        parser.error("no rounds: neither --rounds of at least 1 nor lines in the file of --into")
    if options.plot:
        plot(_typical(rounds), options.plot)
    figures = {**summary(rounds), "each": [_without_speeds(one) for one in rounds]}
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


def _without_speeds(one: Json) -> Json:
    return {key: value for key, value in one.items() if key != "speed_over_time"}


if __name__ == "__main__":
    main()
