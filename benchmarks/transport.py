"""What moving a batch costs: CPU time per gigabyte, beside what others take for it.

    python -m benchmarks.transport --json --peers all

Ready batches of 64 KB, 1, 4.8 and 19 MB, as 1 and as 141 arrays, go from a producer on one core
to a consumer on another. The systems take turns within each round; figures are medians over them.
``cores_per_gbps`` is CPU-seconds, of both ends and all their processes, per gigabyte; ``load`` the
machine's load before and after: ``mb_per_second`` means little where it is not below 0.5.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dataplane.systems import OURS, chosen_peers, running

SIZES = (65_536, 1_000_000, 4_800_000, 19_000_000)
TENSORS = (1, 141)


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
    found: dict[str, dict[tuple[int, int], list[tuple[float, float]]]] = {}
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
    result: dict[str, Any] = {"systems": figures, "load": load, "rounds": done}
    if failed:
        result["failed"] = failed
    return result


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
    result = compare([*OURS, *peers], options.rounds, options.seconds, options.limit_seconds)
    if options.json:
        print(json.dumps(result))
    else:
        for name, points in result["systems"].items():
            for point in points:
                print(name, point)
        print("load", result["load"], result.get("failed", ""))
    return 1 if "failed" in result else 0


if __name__ == "__main__":
    sys.exit(main())
