"""Train while everything around is killed, frozen, cut off and lost; count what the model saw.

    python -m benchmarks.chaos --faults 50 --seed 1 --json
    python -m benchmarks.chaos --replica-groups 2x2 --faults 25 --seed 1 --json
    python -m benchmarks.chaos --kinds delay-worker-20s,freeze-worker-30s --faults 4 --json

An AllReduce job of three workers on the embedded cluster, with controller and Brain, is hit by one
fault after the other: all kinds in a random order, then all again. Its state is copied to the
agents' memory every ten steps, and its checkpoints go to a disk that is full, read-only or hangs
for a while; that takes root, and without it there are no such faults. Its machines are measured
before and within the training, and processes that stand still are ended. A slow network delays all
that a worker's Python code sends to other pods and gets from them, by `DELAY_SECONDS` each way,
more or less: its group's steps, its reports and its leases; gradients go by Gloo and are not
delayed. Who stands still is left behind, and who is slow is waited for: ``trained_without`` has how
often a group of fewer members made steps within each kind of fault, and ``named`` how often a
program was said to hang. With ``--kinds`` there are these faults alone.

With ``--replica-groups`` its workers are so many replica groups of so many pods, which hold a
sharded model; their state is copied to no agent. In the end the job must have succeeded, no sample
may be lost or repeated in the history of the surviving model, and no gap between two steps may be
longer than the lease time and 5 s. ``stalls`` has the longest gap beside each fault. What a fault
did is printed to stderr as it happens.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.elastic.cluster import Cluster, api_server, result_in_logs, wait
from benchmarks.elastic.faulty_disk import FaultyDisk, can_mount, mounted_disk
from benchmarks.elastic.steps import longest_gap, read_steps, stall_within

SAMPLES = 2400
GLOBAL_BATCH = 48
STEPS_PER_EPOCH = SAMPLES // GLOBAL_BATCH
STEPS_PER_FAULT = 150
LEASE_SECONDS = 20
RECOVERY_SECONDS = 240.0
END_SECONDS = 900.0
DISK_SECONDS = 10.0
DISK_MEGABYTES = 16
DELAY_SECONDS = 0.3
DELAY_JITTER_SECONDS = 0.2
NAMED = re.compile(r"TrainingStandsStill: (?!over)|the program has not ended its step for")
"""What trainers and agents say in their logs of a program that hangs."""
NODES = [{"name": "node", "count": 3, "cpu": "8", "memory": "16Gi"}]
SPARE_NODES = 9
"""Beside these: all are one machine, and a node that had to wait for a core is taken for slow, and
its worker put on another."""


@dataclass(frozen=True)
class Shape:
    """Who trains: so many members of so many pods each; ``sharded``: they are replica groups."""

    members: int = 3
    pods: int = 1
    sharded: bool = False

    @classmethod
    def parse(cls, said: str | None) -> Shape:
        """As ``--replica-groups`` has it; without it three workers."""
        if said is None:
            return cls()
        members, _, pods = said.partition("x")
        return cls(int(members), int(pods or 1), sharded=True)

    @property
    def workers(self) -> int:
        """Pods of all members."""
        return self.members * self.pods

    @property
    def script(self) -> str:
        """The module that each process runs."""
        folder = "islands_programs.train" if self.sharded else "elastic.script"
        return f"benchmarks.{folder}"

    @property
    def options(self) -> list[str]:
        """Of ``penstock run``, and the program with what is its own."""
        program = [sys.executable, "-m", self.script]
        if self.sharded:
            run = ["--nproc-per-node=1", "--replica-group", "--", *program]
            return [*run, "--slots=4", "--slot-seconds=0.09"]
        return ["--", *program, "--slot-seconds=0.03", "--snapshot-every=10"]


THREE_WORKERS = Shape()


def manifest(folder: Path, epochs: int, shape: Shape) -> dict[str, Any]:
    """The job that is disturbed."""
    command = [
        "penstock",
        "run",
        *shape.options,
        f"--log={folder}",
        f"--samples={SAMPLES}",
        f"--global-batch={GLOBAL_BATCH}",
        f"--epochs={epochs}",
        f"--hurry={folder}/hurry",
    ]
    container = {
        "name": "main",
        "image": "penstock/examples:latest",
        "command": command,
        "env": [{"name": "PENSTOCK_CHECKPOINT_DIR", "value": f"{folder}/checkpoints"}],
    }
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "chaos", "namespace": "default"},
        "spec": {
            "strategy": "AllReduce",
            "resourceLimits": {"cpu": "16", "memory": "32Gi"},
            "input": {"leaseSeconds": LEASE_SECONDS},
            "failurePolicy": {
                "maxRestarts": 1000,
                "maxPreemptions": 1000,
                "onHang": "Restart",
            },
            "nodeCheck": True,
            "nodeCheckWhileTraining": True,
            "replicaSpecs": {
                "worker": {
                    "replicas": shape.workers,
                    "minReplicas": shape.pods,
                    "maxReplicas": shape.workers + shape.pods,
                    "nodeUnit": shape.pods,
                    "template": {"spec": {"containers": [container]}},
                }
            },
        },
    }


class Chaos:
    """Chooses faults and carries them out."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        chance: random.Random,
        shape: Shape = THREE_WORKERS,
        disk: FaultyDisk | None = None,
        only: Collection[str] = (),
    ) -> None:
        """``disk``: of the checkpoints; None: none that can be disturbed.

        ``only``: kinds of faults, where not all are wanted. Raises ValueError: there is none such.
        """
        self._cluster = cluster
        self._shape = shape
        self._deck: list[str] = []
        self._folder = folder
        self._chance = chance
        self.kinds: dict[str, Callable[[], None]] = {
            "kill-worker": self._kill_worker,
            "kill-script": self._kill_script,
            "kill-agent": self._kill_agent,
            "kill-trainer": self._kill_trainer,
            "kill-brain": lambda: self._cluster.kill_component("brain"),
            "lose-node": self._lose_node,
            "partition-10s": self._partition,
            "freeze-worker-10s": lambda: self._freeze("worker", 10),
            "freeze-worker-30s": lambda: self._freeze("worker", 30),
            "freeze-trainer-10s": lambda: self._freeze("trainer", 10),
            "delay-worker-20s": lambda: self._delay(20),
        }
        if disk is not None:
            self.kinds |= {
                "full-disk-10s": lambda: disk.fill(DISK_SECONDS),
                "read-only-disk-10s": lambda: disk.protect(DISK_SECONDS),
                "hanging-disk-10s": lambda: disk.hang(DISK_SECONDS),
            }
        if unknown := sorted(set(only) - self.kinds.keys()):
            raise ValueError(f"kinds: {', '.join(unknown)}; there are {', '.join(self.kinds)}")
        if only:
            self.kinds = {kind: self.kinds[kind] for kind in self.kinds if kind in only}

    def strike(self) -> str:
        """One random fault, and wait until all workers train again; its kind.

        None comes again before all others have come.
        """
        if not self._deck:
            self._deck = list(self.kinds)
            self._chance.shuffle(self._deck)
        kind = self._deck.pop()
        self.kinds[kind]()
        struck = time.time()
        wait(
            lambda: self._trains_since(struck + 1.5),
            RECOVERY_SECONDS,
            f"after {kind}: {self._shape.members} members training",
            pause=0.5,
        )
        return kind

    def _trains_since(self, moment: float) -> bool:
        newest = max(self.steps(), key=lambda step: step.time_seconds, default=None)
        return bool(
            newest and newest.time_seconds > moment and newest.world_size == self._shape.members
        )

    def steps(self) -> list[Any]:
        """The committed steps so far."""
        return read_steps(self._folder.glob("steps-*.jsonl"))

    def _worker(self) -> dict[str, Any]:
        pods = wait(lambda: self._cluster.pods("worker"), 60, "a running worker")
        chosen: dict[str, Any] = self._chance.choice(pods)
        return chosen

    def _name(self, role: str) -> str:
        pods = wait(lambda: self._cluster.pods(role), 60, f"a running {role}")
        return str(self._chance.choice(pods)["metadata"]["name"])

    def _kill_worker(self) -> None:
        self._cluster.fault("kill_container", name=self._name("worker"))

    def _kill_trainer(self) -> None:
        self._cluster.fault("kill_container", name=self._name("trainer"))

    def _kill_script(self) -> None:
        self._kill_process(self._shape.script, first=False)

    def _kill_agent(self) -> None:
        self._kill_process("penstock", first=True)

    def _kill_process(self, word: str, *, first: bool) -> None:
        processes = self._cluster.processes(self._name("worker"))
        matching = [p for p in processes if any(word in part for part in _command(p))]
        if matching:
            (matching[0] if first else matching[-1]).send_signal(signal.SIGKILL)

    def _lose_node(self) -> None:
        node = self._worker()["spec"]["nodeName"]
        self._cluster.fault("lose_node", name=node)
        time.sleep(5)
        self._cluster.fault("return_node", name=node)

    def _partition(self) -> None:
        name = self._name("worker")
        self._cluster.fault("partition_pod", name=name)
        time.sleep(10)
        self._heal("heal_pod", name)

    def _delay(self, seconds: float) -> None:
        name = self._name("worker")
        delays = {"delay_seconds": DELAY_SECONDS, "jitter_seconds": DELAY_JITTER_SECONDS}
        self._cluster.fault("delay_pod", name=name, **delays)
        time.sleep(seconds)
        self._heal("heal_pod", name)

    def times_named(self) -> int:
        """How often a program was said to hang, in the logs of all pods there have been."""
        logs = (self._cluster.home / "pods").rglob("*.log")
        return sum(len(NAMED.findall(path.read_text(errors="replace"))) for path in logs)

    def trained_without(self, since: float) -> bool:
        """Whether fewer than all members made a step after a moment."""
        return any(
            step.time_seconds > since and step.world_size < self._shape.members
            for step in self.steps()
        )

    def _freeze(self, role: str, seconds: float) -> None:
        name = self._name(role)
        self._cluster.fault("freeze_container", name=name)
        time.sleep(seconds)
        self._heal("thaw_container", name)

    def _heal(self, fault: str, name: str) -> None:
        try:
            self._cluster.fault(fault, name=name)
        except RuntimeError as error:  # the pod was replaced meanwhile
            print(f"  {fault}: {error}", file=sys.stderr)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def run(
    faults: int, seed: int, folder: Path, groups: str | None = None, kinds: Collection[str] = ()
) -> dict[str, Any]:
    """Carry out the faults; the figures."""
    epochs = max(2, faults * STEPS_PER_FAULT // STEPS_PER_EPOCH)
    shape = Shape.parse(groups)
    done: Counter[str] = Counter()
    named: Counter[str] = Counter()
    without: Counter[str] = Counter()
    spans: list[tuple[str, float, float]] = []
    began, load = time.time(), os.getloadavg()[0]
    with ExitStack() as stack:
        cluster = stack.enter_context(api_server(folder / "home", _nodes()))
        disk, checkpoints = None, folder / "checkpoints"
        if can_mount():
            disk = stack.enter_context(mounted_disk(checkpoints, DISK_MEGABYTES))
        chaos = Chaos(cluster, folder, random.Random(seed), shape, disk, kinds)
        cluster.fault("relay_pods")
        cluster.apply(manifest(folder, epochs, shape))
        wait(lambda: chaos._trains_since(began), RECOVERY_SECONDS, "the job trains")
        disturbed = time.time()
        problem = ""
        for number in range(faults):
            struck, before = time.time(), chaos.times_named()
            try:
                kind = chaos.strike()
            except (TimeoutError, RuntimeError) as error:
                problem = str(error)
                break
            done[kind] += 1
            named[kind] += chaos.times_named() - before
            without[kind] += chaos.trained_without(struck)
            spans.append((kind, struck, time.time()))
            last = chaos.steps()[-1]
            spent = time.time() - began
            print(f"{spent:6.0f} s  {number + 1:3} {kind:20} step {last.step}", file=sys.stderr)
        calm = time.time()
        (folder / "hurry").touch()
        state = wait_for_end(cluster, END_SECONDS if not problem else 30)
        steps = chaos.steps()
        result = result_in_logs(cluster.home)
        return {
            "faults": sum(done.values()),
            "replica_groups": groups,
            "kinds": dict(done),
            "samples_seen": result.get("samples_seen"),
            "samples_expected": SAMPLES * epochs,
            "lost": result.get("samples_lost"),
            "repeated": result.get("samples_repeated"),
            "longest_stall_seconds": round(longest_gap(steps, disturbed, calm), 2),
            "allowed_stall_seconds": LEASE_SECONDS + 5,
            "stalls": {
                kind: [
                    round(stall_within(steps, begin, end), 2)
                    for one, begin, end in spans
                    if one == kind
                ]
                for kind in done
            },
            "named": {kind: named[kind] for kind in done},
            "trained_without": {kind: without[kind] for kind in done},
            "state": state,
            "problem": problem,
            "seconds": round(time.time() - began, 1),
            "seed": seed,
            "load": [load, os.getloadavg()[0]],
        }


def _nodes() -> list[dict[str, Any]]:
    return [{**one, "count": int(str(one["count"])) + SPARE_NODES} for one in NODES]


def wait_for_end(cluster: Cluster, timeout: float) -> str:
    """The state in which the job ended, or is after so long."""

    def state() -> str:
        return str(cluster.job("chaos").get("status", {}).get("state", ""))

    def ended() -> str:
        now = state()
        return now if now in ("Succeeded", "Failed") else ""

    try:
        return str(wait(ended, timeout, "the end of the job", pause=0.5))
    except TimeoutError:
        return state()


def main(
    run: Callable[..., dict[str, Any]], described: str | None, faults: int, *, groups: bool = False
) -> None:
    """Run and print.

    Args:
        run: is given the number of faults, a seed and a folder.
        described: what it does, for people.
        faults: how many there are unless one says otherwise.
        groups: whether it takes replica groups and kinds of faults, too.
    """
    parser = argparse.ArgumentParser(description=described)
    parser.add_argument("--faults", type=int, default=faults)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep logs and state here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if groups:
        parser.add_argument(
            "--replica-groups", metavar="GROUPSxPODS", help="of a sharded model: 2x2"
        )
        parser.add_argument("--kinds", default="", help="faults, by commas; default: all")
    options = parser.parse_args()
    more: tuple[Any, ...] = ()
    if groups:
        more = (options.replica_groups, [kind for kind in options.kinds.split(",") if kind])
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        figures = run(options.faults, options.seed, folder.absolute(), *more)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(run, __doc__, 50, groups=True)
