"""What moving a batch costs: CPU time per gigabyte, beside what others take for it.

    python -m benchmarks.transport --json --peers all

Ready batches of 64 KB, 1, 4.8 and 19 MB, as 1 and as 141 arrays, go from a producer on one core
to a consumer on another. The systems take turns within each round; figures are medians over them.
``cores_per_gbps`` is CPU-seconds, of both ends and all their processes, per gigabyte; ``load`` the
machine's load before and after: ``mb_per_second`` means little where it is not below 0.5.
``seals`` is what the tags on frames, and their encryption, add to that over TCP, as medians of the
differences within a round to frames without any. The goals are for batches of 1 MB and more: the
median of what seals add, and the most that shared memory costs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dataplane.systems import OURS, VARIANTS, chosen_peers, running
from benchmarks.goals import Goal, at_most, report

SIZES = (65_536, 1_000_000, 4_800_000, 19_000_000)
TENSORS = (1, 141)
LARGE_BYTES = 1_000_000
MAX_MAC, MAX_ENCRYPTION, MAX_SHARED = 0.10, 0.30, 0.30
"""CPU-seconds per GB, both ends together: more than bare TCP, and of shared memory as a whole."""

Points = dict[str, dict[tuple[int, int], list[tuple[float, float]]]]


def compare(
    names: list[str],
    rounds: int,
    seconds: float,
    limit_seconds: float,
    sizes: tuple[int, ...] = SIZES,
) -> dict[str, Any]:
    """The figures of each system at each point; a system that cannot run says why.

    No round begins after ``limit_seconds``.
    """
    began, done = time.monotonic(), 0
    found: Points = {}
    failed: dict[str, str] = {}
    load = [os.getloadavg()[0]]
    with ExitStack() as stack:
        errors = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        systems = []
        for name in names:
            try:
                systems.append(stack.enter_context(running(name, errors)))
            except (OSError, RuntimeError) as error:
                failed[name] = f"{error}: {(errors / f'{name}.log').read_text()[-500:]}"
        for _ in range(rounds):
            if time.monotonic() - began > limit_seconds:
                break
            done += 1
            for size in sizes:
                for tensors in TENSORS:
                    for system in systems:
                        if system.name in failed:
                            continue
                        try:
                            got = system.ask(bytes=size, tensors=tensors, seconds=seconds)
                        except (OSError, RuntimeError) as error:
                            log = (errors / f"{system.name}.log").read_text()[-500:]
                            failed[system.name] = f"{error}: {log}"
                            continue
                        moved = got["batches"] * (size // tensors * tensors) / 1e6
                        point = (
                            1e3 * (got["consumer_cpu"] + got["producer_cpu"]) / moved,
                            moved / got["seconds"],
                        )
                        table = found.setdefault(system.name, {})
                        table.setdefault((size, tensors), []).append(point)
    load.append(os.getloadavg()[0])
    figures = {
        name: [
            {
                "bytes": size,
                "tensors": tensors,
                "cores_per_gbps": round(median(cost for cost, _ in points), 3),
                "mb_per_second": round(median(speed for _, speed in points), 1),
            }
            for (size, tensors), points in table.items()
        ]
        for name, table in found.items()
    }
    rows = seal_rows(found)
    result: dict[str, Any] = {"systems": figures, "seals": rows, "load": load, "rounds": done}
    if failed:
        result["failed"] = failed
    return result


def seal_rows(found: Points) -> list[dict[str, Any]]:
    """What the seals add at each point, CPU-seconds per GB; only where all were measured."""
    bare, encrypted = (found.get(name, {}) for name in VARIANTS)
    sealed = found.get("penstock-tcp", {})
    rows = []
    for point, costs in bare.items():
        row: dict[str, Any] = {"bytes": point[0], "tensors": point[1]}
        for key, table in (("mac", sealed), ("encryption", encrypted)):
            pairs = zip(table.get(point, []), costs, strict=False)
            added = [cost - without for (cost, _), (without, _) in pairs]
            if added:
                row[key] = round(median(added), 3)
        rows.append(row)
    return rows


def goals_of(result: dict[str, Any]) -> list[Goal]:
    """What large batches have to reach."""
    rows = [row for row in result["seals"] if row["bytes"] >= LARGE_BYTES]
    shared = [
        point["cores_per_gbps"]
        for point in result["systems"].get("penstock-shm", [])
        if point["bytes"] >= LARGE_BYTES
    ]
    goals = []
    for key, bound in (("mac", MAX_MAC), ("encryption", MAX_ENCRYPTION)):
        added = [row[key] for row in rows if key in row]
        got = round(median(added), 3) if added else None
        goals.append(at_most(f"{key}: CPU-seconds per GB that it adds", bound, got))
    worst = max(shared, default=None)
    return [*goals, at_most("shared memory: CPU-seconds per GB", MAX_SHARED, worst)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--peers", default="none", help="none, all, or a list with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.35, help="of each measurement")
    parser.add_argument("--limit-seconds", type=float, default=600, help="no round after that")
    options = parser.parse_args()
    try:
        peers = chosen_peers(options.peers)
    except ValueError as error:
        parser.error(str(error))
    result = compare(
        [*OURS, *VARIANTS, *peers], options.rounds, options.seconds, options.limit_seconds
    )
    goals = goals_of(result)
    if not options.json:  # one table of all systems
        result["systems"] = [
            {"system": name, **point}
            for name, points in result["systems"].items()
            for point in points
        ]
    missed = report(result, goals, as_json=options.json)
    return 1 if "failed" in result else missed


if __name__ == "__main__":
    sys.exit(main())
