"""How long training stands still when its parameter servers change, beside a restart of the job.

    python -m benchmarks.ps_transition --json

One job on an embedded cluster trains ``examples/criteo/wide_deep.py`` with three workers. In each
round its servers change while it trains, 2 to 4 and 4 to 2, by Scales; it is suspended, and resumed
as soon as its pods are gone; then it is deleted and applied again at once, under another name and
with the folder of its checkpoints, which is how servers change without this. Steps stop, until
steps flow: the longest time between two steps of any of the workers, from the moment that the
change was asked for. So a restart counts as over with the first step of the first worker that is
back, and nobody waits for the old job's pods to be gone. What the trainer says of the parts of each
change is in ``parts_seconds``; ``batches_again`` are those that a worker had handed in before, and
that were done once more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.elastic.cluster import Cluster, api_server, wait
from benchmarks.parameters.jobs import server_job
from benchmarks.parameters.steplogs import longest_gap, read_steps

WORKERS = 3
NODES = [{"name": "node", "count": 2, "cpu": "8", "memory": "16Gi"}]
SETTLED_SECONDS = 1.0
OVER_SECONDS = 4.0
"""Workers of a job that is deleted end the batch that they have begun: by then they have."""
CHANGE_SECONDS = 90.0


class Rounds:
    """The job, what is done to it, and how long that stopped it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._steps = folder / "steps"
        self._scales = 0
        self._lives = 0
        self.suspended_after: list[float] = []
        """Seconds from the wish to suspend until no pod is left."""

    @property
    def name(self) -> str:
        """What the job is called now."""
        return f"transition-{self._lives}"

    def apply(self) -> None:
        """Start the job."""
        self._cluster.apply(
            server_job(
                self.name,
                "examples/criteo/wide_deep.py",
                ["--samples=100000000"],
                workers={"replicas": WORKERS},
                servers={"minReplicas": 2, "maxReplicas": 4},
                step_log=str(self._steps),
                checkpoints=str(self._folder / "checkpoints"),
                optimize="Manual",
            )
        )

    def change(self, servers: int) -> float:
        """Another number of servers, while it trains."""
        self._scales += 1
        name = f"{self.name}-{self._scales:03d}"
        target = {"ps": {"replicas": servers}}
        return self._measured(lambda: self._cluster.scale(self.name, name, target), servers)

    def suspend(self) -> float:
        """Suspend the job, and resume it as soon as no pod is left."""

        def is_suspended() -> bool:
            status = self._cluster.job(self.name).get("status", {})
            return bool(status.get("state") == "Suspended")

        def carry_out() -> None:
            began = time.time()
            self._cluster.edit(self.name, {"suspend": True})
            wait(is_suspended, CHANGE_SECONDS, "the job is suspended")
            self.suspended_after.append(time.time() - began)
            self._cluster.edit(self.name, {"suspend": False})

        return self._measured(carry_out, 2)

    def restart(self) -> float:
        """Delete the job, and apply it again at once."""

        def carry_out() -> None:
            self._cluster.delete_job(self.name)
            self._lives += 1
            self.apply()

        return self._measured(carry_out, 2)

    def batches_again(self) -> int:
        """Batches that have been handed in more than once so far."""
        slots = [step.slot for step in read_steps(self._steps)]
        return len(slots) - len(set(slots))

    def _measured(self, carry_out: Callable[[], None], servers: int) -> float:
        began = time.time()
        carry_out()
        self.wait_for(servers, time.time())
        return longest_gap(read_steps(self._steps), began, time.time())

    def wait_for(self, servers: int, since: float) -> None:
        """Until all workers train, with so many servers, and what was before is over."""

        def trained() -> bool:
            now = time.time()
            newest = [s for s in read_steps(self._steps) if s.time_seconds > now - SETTLED_SECONDS]
            return (
                now > since + OVER_SECONDS
                and {step.servers for step in newest} == {servers}
                and len({step.worker for step in newest}) == WORKERS
            )

        wait(trained, CHANGE_SECONDS, f"{WORKERS} workers train with {servers} servers", pause=0.2)


def run(cluster: Cluster, folder: Path, rounds: int) -> dict[str, Any]:
    """All rounds; the figures."""
    job = Rounds(cluster, folder)
    job.apply()
    job.wait_for(2, time.time())
    seconds: dict[str, list[float]] = defaultdict(list)
    again: dict[str, list[int]] = defaultdict(list)
    transitions: list[dict[str, Any]] = []

    def interrupt(what: str, how: Callable[[], float]) -> None:
        before = job.batches_again()
        seconds[what].append(how())
        again[what].append(job.batches_again() - before)

    for _ in range(rounds):
        seconds["servers 2 to 4"].append(job.change(4))
        seconds["servers 4 to 2"].append(job.change(2))
        # The trainer of each round is another one: it tells of this round alone.
        transitions += (cluster.summary(job.name).get("servers") or {}).get("transitions", ())
        interrupt("suspend and resume", job.suspend)
        interrupt("restart from the checkpoint", job.restart)
    cluster.delete_job(job.name)
    changes = [*seconds["servers 2 to 4"], *seconds["servers 4 to 2"]]
    restart = median(seconds["restart from the checkpoint"])
    return {
        "rounds": rounds,
        "workers": WORKERS,
        "median_seconds": {what: round(median(each), 3) for what, each in seconds.items()},
        "all_seconds": {what: [round(one, 3) for one in each] for what, each in seconds.items()},
        "times_shorter": round(restart / median(changes), 1),
        "suspended_after_seconds": [round(each, 3) for each in job.suspended_after],
        "batches_again": dict(again),
        "parts_seconds": parts(transitions),
    }


def parts(transitions: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median time of each part of the trainer's transitions, by what changed."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for transition in transitions:
        for part, seconds in transition["parts"]:
            found[transition["what"]][part].append(seconds)
    return {
        what: {part: round(median(seconds), 4) for part, seconds in each.items()}
        for what, each in found.items()
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with api_server(folder / "home", NODES) as cluster:
            figures = run(cluster, folder, options.rounds)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
