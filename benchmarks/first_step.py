"""What a training process uses before its first step is done, with PyTorch's compiler late or not.

    python -m benchmarks.first_step --json

A loop of one process, and one with DistributedDataParallel in a group of one, are started as
``penstock run`` starts them and end after one step, in turns (usual, late, late, usual). ``cpu`` is
the process's own CPU seconds, ``seconds`` those by the clock and ``mib`` its memory at its most;
each is the median of the turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.goals import at_most, report
from penstock.crds import environment
from penstock.data.hooked import hooked

SHARE_GOAL: Final = 0.65
"""Of the CPU seconds without it."""
LOOP: Final = """
import torch
model = wrap(torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
"""
PROGRAMS: Final = {
    "one process": "wrap = lambda model: model" + LOOP,
    "DDP": "import torch\n"
    "torch.distributed.init_process_group("
    "'gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)\n"
    "wrap = torch.nn.parallel.DistributedDataParallel" + LOOP,
}


@dataclass(frozen=True)
class Start:
    """What one process used until its first step was done."""

    cpu: float
    seconds: float
    mib: float


def start(program: str, *, late: bool) -> Start:
    """Start it and wait for its end."""
    told = {environment.LATE_COMPILER: str(int(late)), "OMP_NUM_THREADS": "1"}
    environ = hooked({**os.environ, **told})
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", program], env=environ)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    seconds = time.monotonic() - begun
    return Start(used.ru_utime + used.ru_stime, seconds, used.ru_maxrss / 1024)


def main() -> int:
    """Start them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    load = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    for name, program in PROGRAMS.items():
        start(program, late=False)  # what it reads is in memory afterwards
        found: dict[bool, list[Start]] = {False: [], True: []}
        for _ in range(options.turns):
            for late in (False, True, True, False):
                found[late].append(start(program, late=late))
        row: dict[str, Any] = {"program": name}
        for late, starts in found.items():
            way = "late" if late else "usual"
            row[f"{way}_cpu"] = round(median(one.cpu for one in starts), 3)
            row[f"{way}_seconds"] = round(median(one.seconds for one in starts), 3)
            row[f"{way}_mib"] = round(median(one.mib for one in starts))
        rows.append(row)
    load.append(os.getloadavg()[0])
    share = max(row["late_cpu"] / row["usual_cpu"] for row in rows)
    goals = [at_most("share of the CPU seconds without it", SHARE_GOAL, share)]
    return report({"load": load, "rows": rows}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
