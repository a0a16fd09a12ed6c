"""Train with parameter servers while everything is killed, frozen, cut off and lost; then count.

    python -m benchmarks.ps_chaos --faults 25 --seed 1 --json

A job of three workers and two servers on the embedded cluster is hit by one random fault after the
other: those of ``benchmarks.chaos``, and servers killed, frozen, taken away and added. Its table
counts what each sample did to the model (`benchmarks.elastic.counting`), so in the end it is known
of every sample how often the parameters that survived have seen it: ``rows_lost`` and
``rows_repeated`` are read from the table, ``lost`` and ``repeated`` from the servers' own books. A
server's death takes the model back to its newest checkpoint, and the samples with it: ``restores``
says how often. What a fault did, and the longest time between two batches while it did, is printed
to stderr as it happens; ``stall_seconds`` has the longest of each kind.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.chaos import NODES, Chaos, main, wait_for_end
from benchmarks.elastic.cluster import Cluster, api_server, result_in_logs, wait
from benchmarks.parameters.jobs import server_job
from benchmarks.parameters.steplogs import StepLog, longest_gap

WORKERS, SERVERS = 3, 2
SAMPLES, BATCH = 1000, 10
EPOCHS_PER_FAULT = 8
SIZE = {"requests": {"cpu": "1", "memory": "1Gi"}}
"""Given, lest the first plan leave no room in the limits for one more server."""


def manifest(folder: Path, epochs: int) -> dict[str, Any]:
    """The job that is disturbed."""
    return server_job(
        "chaos",
        "-m",
        [
            "benchmarks.elastic.counting",
            f"--samples={SAMPLES}",
            f"--batch-size={BATCH}",
            f"--epochs={epochs}",
            "--batch-seconds=0.1",
            f"--hurry={folder}/hurry",
            "--checkpoint-every=100",
        ],
        workers={"replicas": WORKERS, "maxReplicas": 4, "resources": SIZE},
        servers={"replicas": SERVERS, "maxReplicas": 4, "resources": SIZE},
        step_log=str(folder / "steps"),
        checkpoints=str(folder / "checkpoints"),
        resourceLimits={"cpu": "16", "memory": "32Gi"},
        input={"leaseSeconds": 20},
        failurePolicy={"maxRestarts": 1000, "maxPreemptions": 1000},
    )


class ServerChaos(Chaos):
    """The faults of a job without servers, and those of servers."""

    def __init__(self, cluster: Cluster, folder: Path, chance: random.Random) -> None:
        super().__init__(cluster, folder, chance)
        self._servers = SERVERS
        self._log = StepLog(folder / "steps")
        self.kinds |= {
            "kill-server": lambda: self._cluster.fault("kill_container", name=self._name("ps")),
            "kill-server-again": self._kill_server_twice,
            "freeze-server-3s": lambda: self._freeze("ps", 3),
            "freeze-server-20s": lambda: self._freeze("ps", 20),
            "change-servers": self._change_servers,
        }

    def steps(self) -> list[Any]:
        """The batches that were handed in so far, also those that a restore took back."""
        return self._log.read()

    def _trains_since(self, moment: float) -> bool:
        fresh = [step for step in self.steps() if step.time_seconds > moment]
        workers = {step.worker for step in fresh}
        return len(workers) == WORKERS and fresh[-1].servers == self._servers

    def _kill_script(self) -> None:
        self._kill_process("benchmarks.elastic.counting", first=False)

    def _kill_server_twice(self) -> None:
        """The second time while the first is being mended."""
        self._cluster.fault("kill_container", name=self._name("ps"))
        time.sleep(self._chance.uniform(0.5, 6.0))
        self._cluster.fault("kill_container", name=self._name("ps"))

    def _change_servers(self) -> None:
        self._servers = self._chance.choice([n for n in (1, 2, 3) if n != self._servers])
        roles = {"ps": {"replicas": self._servers}}
        self._cluster.edit("chaos", {"replicaSpecs": roles})


def run(faults: int, seed: int, folder: Path) -> dict[str, Any]:
    """Carry out the faults; the figures."""
    epochs = 4 + faults * EPOCHS_PER_FAULT
    done: Counter[str] = Counter()
    began = time.time()
    with ExitStack() as stack:
        cluster = stack.enter_context(api_server(folder / "home", NODES))
        cluster.apply(manifest(folder, epochs))
        chaos = ServerChaos(cluster, folder, random.Random(seed))
        wait(lambda: chaos._trains_since(began), 120, "the job trains")
        problem, stalls = "", dict[str, float]()
        for number in range(faults):
            struck = time.time()
            try:
                kind = chaos.strike()
            except (TimeoutError, RuntimeError) as error:
                problem = str(error)
                break
            done[kind] += 1
            stall = longest_gap(chaos.steps(), struck, time.time())
            stalls[kind] = max(stall, stalls.get(kind, 0.0))
            spent = f"{time.time() - began:6.0f} s  {number + 1:3}"
            print(f"{spent} {kind:20} stall {stall:5.1f} s", file=sys.stderr)
        (folder / "hurry").touch()
        summary = cluster.summary("chaos")
        state = wait_for_end(cluster, 200 if not problem else 30)
        result = result_in_logs(cluster.home)
        servers = summary.get("servers") or {}
        return {
            "faults": sum(done.values()),
            "kinds": dict(done),
            "samples_seen": result.get("samples_seen"),
            "samples_expected": SAMPLES * epochs,
            "lost": result.get("samples_lost"),
            "repeated": result.get("samples_repeated"),
            "rows_lost": result.get("rows_lost"),
            "rows_repeated": result.get("rows_repeated"),
            "batches_counted": result.get("batches_counted"),
            "batches_expected": SAMPLES // BATCH * epochs,
            "restores": servers.get("restores"),
            "transitions": len(servers.get("transitions", [])),
            "longest_stall_seconds": round(max(stalls.values(), default=0.0), 2),
            "stall_seconds": {kind: round(stalls[kind], 2) for kind in sorted(stalls)},
            "state": state,
            "problem": problem,
            "seconds": round(time.time() - began, 1),
            "seed": seed,
        }


if __name__ == "__main__":
    main(run, __doc__, 25)
