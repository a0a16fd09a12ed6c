"""Kill -9 of every process of the data's way, at random: is anything lost or repeated?

    python -m benchmarks.kill --kills 100 --seed 1 --json

Two epochs with a dispatcher, two data workers and a consumer that checkpoints and has two local
workers. At random moments one of them is killed and started again, a local worker by its loader. At
the end every sample of every epoch must be in the model that survived, once (``lost``,
``repeated``), bit by bit what a run without any worker or kill gives (``identical``), and no
process, socket or shared memory may be left. The consumer's own restarts are not part of
``longest_stall_seconds``: the longest that a living one waited.

``--peers tfdata`` has workers and dispatcher of tf.data service killed and started again in the
same way, in one epoch of as many samples, and says what became of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil

from benchmarks import programs
from benchmarks.dataplane import consuming
from benchmarks.dataplane.systems import ROOT, interpreter
from benchmarks.programs import PENSTOCK
from penstock.crds import environment as names

TOKEN = "benchmark"
SAMPLE_SECONDS = 0.02
DEADLINE_SECONDS = 210.0
DATA_WORKER: Final = (sys.executable, "-m", "penstock.data.worker_process")
_MARK = "PENSTOCK_KILL_RUN"
"""Variable by which the processes of a run are known, and those that they start."""


def free_port() -> int:
    """A port that nobody has now."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Scenario:
    """The processes of one run: a dispatcher, and what is given."""

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, Sequence[str]],
        environ: Mapping[str, str] = MappingProxyType({}),
        own: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """``environ``: of all of them, beside this one's; ``own``: of one of them beside that."""
        port = free_port()
        self.mark = str(folder)
        self._log = (folder / "log.txt").open("w")
        self._environ = {
            **os.environ,
            _MARK: self.mark,
            names.JOB_TOKEN: TOKEN,
            names.DATA_ADDRESS: f"127.0.0.1:{port}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **environ,
        }
        self._own = own
        self.commands: dict[str, Sequence[str]] = {
            "dispatcher": [PENSTOCK, "trainer", "--port", str(port)],
            **commands,
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one of the processes, again or for the first time."""
        self.running[name] = subprocess.Popen(
            self.commands[name],
            env={**self._environ, **self._own.get(name, {})},
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """Kill -9."""
        programs.kill(self.running[name])

    def kill_local_worker(self, chance: random.Random) -> bool:
        """Kill -9 of a child of the consumer; False while it has none."""
        with suppress(psutil.Error):
            if children := psutil.Process(self.running["consumer"].pid).children():
                chance.choice(children).kill()
                return True
        return False

    def end(self) -> None:
        """Stop what still runs, politely."""
        programs.end(*self.running.values())
        self._log.close()


def shared_memory() -> set[str]:
    """What is in /dev/shm."""
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def leftovers(mark: str, before: set[str]) -> list[str]:
    """Shared memory of ours that was not there before, and living processes of a run.

    A socket without a name in the file system lives as long as a process that holds it, so whoever
    leaves no process leaves no socket.
    """
    left = [name for name in sorted(shared_memory() - before) if "penstock" in name]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                left.append(f"process {process.pid}: {' '.join(process.cmdline())}")
    return left


def run(
    kills: int, seed: int, folder: Path, samples: int = 4000, local_workers: int = 2
) -> dict[str, Any]:
    """One run; see the module's docstring."""
    chance = random.Random(seed)
    before = shared_memory()
    consumer = [sys.executable, "-m", "benchmarks.dataplane.consuming", str(folder), str(seed)]
    commands = {
        "data-worker-0": DATA_WORKER,
        "data-worker-1": DATA_WORKER,
        "consumer": [*consumer, str(samples), str(SAMPLE_SECONDS), str(local_workers)],
    }
    scenario = Scenario(folder, commands)
    began = time.monotonic()
    done_file = folder / "done.json"
    killed: Counter[str] = Counter()
    try:
        for name in scenario.commands:
            scenario.start(name)
        # Kills come until the budget is spent; the consumer is killed less often than the others,
        # because each of its deaths costs a Python start and the steps since the checkpoint.
        while not done_file.exists() and time.monotonic() - began < DEADLINE_SECONDS:
            time.sleep(chance.uniform(0.3, 1.7))
            if sum(killed.values()) < kills:
                names = [*scenario.commands, *(["local-worker"] if local_workers else [])]
                [name] = chance.choices(names, weights=(2, 4, 4, 1, 5)[: len(names)])
                if name == "local-worker":
                    killed[name] += scenario.kill_local_worker(chance)
                    continue
                if name == "consumer" and scenario.running[name].poll() is not None:
                    continue
                scenario.kill(name)
                killed[name.rstrip("-01")] += 1
                scenario.start(name)
            elif scenario.running["consumer"].poll() is not None:
                break
        ended = done_file.exists()
    finally:
        scenario.end()
    seconds = time.monotonic() - began
    done = json.loads(done_file.read_text()) if ended else {"seen": [], "sums": [], "stall": None}
    counts = [Counter(epoch) for epoch in done["seen"]]
    every = range(samples)
    lost = sum(count[index] == 0 for count in counts for index in every)
    repeated = sum(max(0, count[index] - 1) for count in counts for index in every)
    return {
        "kills": sum(killed.values()),
        "killed": dict(killed),
        "seed": seed,
        "samples": samples * consuming.EPOCHS,
        "lost": lost if ended else None,
        "repeated": repeated if ended else None,
        "epochs_ended": len(counts),
        "identical": ended and done["sums"] == reference(seed, samples),
        "longest_stall_seconds": done["stall"] and round(done["stall"], 2),
        "made_by_data_workers_since_the_last_start": done.get("arrived"),
        "made_by_local_workers_since_the_last_start": done.get("made_nearby"),
        "seconds": round(seconds, 1),
        "left_behind": leftovers(scenario.mark, before),
        "load": os.getloadavg()[0],
    }


def reference(seed: int, samples: int) -> list[list[float]]:
    """The sums of a run that nothing happened to, in this process."""
    loader = consuming.make_loader(samples, 0.0, seed, 0)
    return [[float(batch["noise"].sum()) for batch in loader] for _ in range(consuming.EPOCHS)]


def tfdata(kills: int, seed: int, samples: int) -> dict[str, Any]:
    """The same with tf.data service, less the kills of the consumer: it has no checkpoint."""
    command = [interpreter("tfdata"), "-W", "ignore", "-m", "benchmarks.dataplane.tfdata_kill"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, str(kills), str(seed), str(samples)],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": done.stderr[-500:]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4000, help="of each of the two epochs")
    parser.add_argument("--local-workers", type=int, default=2, help="that the loader asks for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", choices=["none", "all", "tfdata"], default="none")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = run(
            options.kills, options.seed, Path(folder), options.samples, options.local_workers
        )
        if result["lost"] is None:
            sys.stderr.write((Path(folder) / "log.txt").read_text()[-3000:])
    good = result["lost"] == result["repeated"] == 0 and not result["left_behind"]
    if options.peers != "none":
        result["tfdata"] = tfdata(options.kills, options.seed, options.samples)
    print(json.dumps(result, indent=None if options.json else 2))
    return 0 if good and result["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
