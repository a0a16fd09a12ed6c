"""Pulls and pushes per second, and per CPU-second, beside what PyTorch has for the same exchange.

    python -m benchmarks.ps --json

One exchange: read 20,000 dense parameters, pull rows of width 16, push their gradients and the
dense ones; see `benchmarks.parameters.exchange`. 1, 2 and 4 servers, 2 workers that do nothing
else. For each number of servers all systems run at once and are asked in turn within each round;
figures are medians over the rounds. All have the same allocator settings. CPU time is that of all
servers and workers. There are as many pushes as pulls: every batch has one of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import programs
from benchmarks.dataplane.systems import ROOT, System
from benchmarks.parameters.exchange import exchange_bytes
from penstock.data.allocator import ALLOCATOR

SYSTEMS = {"penstock": "ours", "gloo": "gloo", "rpc": "rpc"}
SERVERS = (1, 2, 4)
WORKERS = 2
ROWS = (800, 6_000)
"""Different ids of a batch: of 40 samples, and of 512, with 26 fields each."""


@contextmanager
def running(name: str, servers: int, errors: Path) -> Iterator[System]:
    """Start a system, wait until it is up, and end it."""
    environ = {**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": "1"}
    with (errors / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                f"benchmarks.parameters.{SYSTEMS[name]}",
                str(servers),
                str(WORKERS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environ,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            system = System(name, process)
            system.answer()
            yield system
        finally:
            assert process.stdin is not None
            process.stdin.close()
            programs.outlast(process, seconds=5)


def compare(names: list[str], servers: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """The figures of each system with so many servers."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        errors = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        systems = []
        for name in names:
            try:
                systems.append(stack.enter_context(running(name, servers, errors)))
            except RuntimeError as error:
                log = (errors / f"{name}.log").read_text()[-2000:]
                raise RuntimeError(f"{error}: {log}") from error
        for _ in range(rounds):
            for rows in ROWS:
                for system in systems:
                    got = system.ask(rows=rows, seconds=seconds)
                    found.setdefault((system.name, rows), []).append(got)
    return [_figures(name, servers, rows, each) for (name, rows), each in found.items()]


def _figures(name: str, servers: int, rows: int, rounds: list[dict[str, float]]) -> dict[str, Any]:
    def middle(figure: Any, digits: int) -> float:
        return round(median(figure(each) for each in rounds), digits)

    def cpu(each: dict[str, float]) -> float:
        return each["server_cpu"] + each["worker_cpu"]

    megabytes = exchange_bytes(rows) / 1e6
    return {
        "system": name,
        "servers": servers,
        "rows": rows,
        "megabytes": round(megabytes, 3),
        "pulls_per_second": middle(lambda e: e["exchanges"] / e["seconds"], 1),
        "pulls_per_cpu_second": middle(lambda e: e["exchanges"] / cpu(e), 1),
        "cpu_ms_per_mb": middle(lambda e: 1e3 * cpu(e) / e["exchanges"] / megabytes, 3),
        "server_cpu_ms": middle(lambda e: 1e3 * e["server_cpu"] / e["exchanges"], 3),
        "worker_cpu_ms": middle(lambda e: 1e3 * e["worker_cpu"] / e["exchanges"], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="a list with commas")
    parser.add_argument("--servers", default=",".join(map(str, SERVERS)), help="likewise")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6, help="of each measurement")
    options = parser.parse_args()
    names = options.systems.split(",")
    if unknown := [name for name in names if name not in SYSTEMS]:
        parser.error(f"--systems: {unknown}; choose from {', '.join(SYSTEMS)}")
    load, began = [os.getloadavg()[0]], time.monotonic()
    points = []
    for servers in map(int, options.servers.split(",")):
        points += compare(names, servers, options.rounds, options.seconds)
    load.append(os.getloadavg()[0])
    result = {
        "points": points,
        "workers": WORKERS,
        "rounds": options.rounds,
        "load": load,
        "seconds": round(time.monotonic() - began, 1),
    }
    if options.json:
        print(json.dumps(result))
        return 0
    for point in points:
        print(*(f"{key}={value}" for key, value in point.items()))
    print("load", load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
