"""Kill parts of replica groups that train a sharded model, again and again; count what it saw.

    python -m benchmarks.islands --kills 50 --json
    python -m benchmarks.islands --groups 2x2 --kills 25 --json

Two, then three replica groups of two gloo processes each hold a model with ``fully_shard``; with
``2x2`` two of two pods with a process each. At random moments one training process is killed
(its replica group is lost by that), or a whole pod, or a process of a replica group that is just
coming back; each time the pod that ended is replaced, as a controller would, and the new processes
get their parts of the model from a living replica group. In the end no sample may be
lost or repeated in the history of the surviving model, no step of it be undone, and the loss be
that of the same training without any kill.

- ``steps_undone``: steps by which the model of a replica group that lived on went back.
- ``loss_apart``: the largest difference of any step's loss, as a part of the first one's; the two
  runs add the same numbers in another order. A replica group may have committed a step and be
  killed before it wrote its losses down: such steps are left out, at most one for each kill.
- ``stall_seconds``: between two steps of whoever is left: from the last one before a kill to the
  next one, which is done again; median and worst over all kills. Then training goes on, while the
  new processes import PyTorch: ``back_seconds`` is until the replica group trains again.

torchft, which does the same per step for loops of its own, does not install beside this PyTorch and
is not measured.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from benchmarks.elastic.processes import ROOT, Job, kill_tree, running_job
from benchmarks.elastic.steps import Committed, compare, read_steps
from benchmarks.goals import Goal, at_least, at_most, report

PROCESSES: Final = 2
SAMPLES: Final = 1200
GLOBAL_BATCH: Final = 48
STEPS_PER_EPOCH: Final = SAMPLES // GLOBAL_BATCH
SLOTS: Final = 4
STEPS_PER_KILL: Final = 90
SLOT_SECONDS: Final = 0.1
LEASE_SECONDS: Final = 20
PATIENCE_SECONDS: Final = 400.0
KINDS: Final = ("process", "process", "pod", "newcomer")
SCRIPT: Final = ROOT / "benchmarks" / "islands_programs" / "train.py"


class Islands:
    """The replica groups of one job, each of so many pods."""

    def __init__(self, job: Job, groups: int, pods: int, epochs: int) -> None:
        self._job = job
        self._pods = pods
        self._epochs = epochs
        self._logged: dict[int, int] = {}  # bytes of a group's log before it was struck
        self.groups = range(groups)
        job.start_trainer(f"--workers={groups * pods}", f"--lease-seconds={LEASE_SECONDS}")

    def start(self, group: int) -> None:
        """Start all pods of a replica group."""
        for rank in self._ranks(group):
            self._start_pod(rank)

    def _ranks(self, group: int) -> range:
        return range(group * self._pods, (group + 1) * self._pods)

    def _start_pod(self, rank: int) -> None:
        folder = self._job.folder
        self._job.start_worker(
            rank,
            str(SCRIPT),
            f"--log={folder}",
            f"--samples={SAMPLES}",
            f"--global-batch={GLOBAL_BATCH}",
            f"--epochs={self._epochs}",
            f"--slots={SLOTS}",
            f"--slot-seconds={SLOT_SECONDS}",
            f"--hurry={folder / 'hurry'}",
            options=(
                f"--nproc-per-node={PROCESSES // self._pods}",
                "--replica-group",
                f"--replica-group-pods={self._pods}",
            ),
        )

    def processes(self, group: int) -> list[psutil.Process]:
        """The training processes of a replica group that live."""
        found = []
        for rank in self._ranks(group):
            with suppress(psutil.Error):
                found += psutil.Process(self._job.workers[rank].pid).children()
        return found

    def kill_process(self, group: int, chance: random.Random) -> None:
        """Kill one training process."""
        processes = self.processes(group)
        if not processes:  # it has not started them yet
            self.kill_pod(group, chance)
            return
        with suppress(psutil.Error):
            chance.choice(processes).kill()

    def kill_pod(self, group: int, chance: random.Random) -> None:
        """Kill one pod as a whole."""
        kill_tree(self._job.workers[chance.choice(self._ranks(group))].pid)

    def replace_ended(self, group: int) -> None:
        """Wait until a pod of a replica group has ended, and start another in its place."""

        def ended() -> list[int]:
            workers = self._job.workers
            return [rank for rank in self._ranks(group) if workers[rank].poll() is not None]

        for rank in self._job.wait_for(ended, 60, f"the end of a pod of replica group {group}"):
            self._start_pod(rank)
        self._logged[group] = self._log_bytes(group)

    def strike(self, kind: str, group: int, chance: random.Random) -> None:
        """One kill, and a new pod in place of the lost one."""
        if kind == "pod":
            self.kill_pod(group, chance)
        else:
            self.kill_process(group, chance)
        self.replace_ended(group)
        if kind == "newcomer":
            time.sleep(chance.uniform(1.0, 12.0))  # it may be anywhere on its way in
            self.kill_process(group, chance)
            self.replace_ended(group)

    def wait_until_whole(self) -> None:
        """Wait until the newest lives of all replica groups train together."""
        self._job.wait_for_summary(
            lambda said: (
                said["world_size"] == len(self.groups) and all(map(self._trains, self.groups))
            ),
            PATIENCE_SECONDS,
        )

    def _trains(self, group: int) -> bool:
        """Whether the newest life of a replica group has committed a step."""
        return self._log_bytes(group) > self._logged.get(group, 0)

    def _log_bytes(self, group: int) -> int:
        """How much the first pod of a replica group, which speaks for it, has logged."""
        rank = self._ranks(group)[0]
        log = self._job.folder / f"steps-{rank}-{self._job.incarnations[rank]}.jsonl"
        return log.stat().st_size if log.exists() else 0

    def committed(self) -> int:
        """Steps so far."""
        return int(self._job.summary()["committed_steps"])


def undone(logs: list[Path]) -> int:
    """By how many steps the models of replica groups went back, each over its life."""
    total = 0
    for path in logs:
        steps = []
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):  # it was killed while it wrote
                steps.append(int(json.loads(line)["step"]))
        total += sum(max(0, one + 1 - other) for one, other in pairwise(steps))
    return total


def wholly_logged(logs: list[Path]) -> set[int]:
    """The steps of which the losses of all slots were written down."""
    slots: dict[int, set[str]] = {}
    for path in logs:
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                entry = json.loads(line)
                slots.setdefault(entry["step"], set()).update(entry["losses"])
    return {step for step, found in slots.items() if len(found) == SLOTS}


def gap_after(steps: list[Committed], moment: float) -> float | None:
    """Between the last step before a moment and the next one; None: there is none."""
    before = [step.time_seconds for step in steps if step.time_seconds <= moment]
    after = [step.time_seconds for step in steps if step.time_seconds > moment]
    return min(after) - max(before) if before and after else None


def disturbed(
    groups: int, pods: int, kills: int, chance: random.Random, folder: Path
) -> dict[str, Any]:
    """A training with kills; its figures."""
    epochs = max(2, (kills + 1) * STEPS_PER_KILL // STEPS_PER_EPOCH)
    moments: list[float] = []
    back: list[float] = []
    done: dict[str, int] = {}
    with running_job(folder) as job:
        islands = Islands(job, groups, pods, epochs)
        for group in islands.groups:
            islands.start(group)
        islands.wait_until_whole()
        for number in range(kills):
            time.sleep(chance.uniform(0.2, 2.0))
            kind, group = chance.choice(KINDS), chance.choice(islands.groups)
            step = islands.committed()
            moments.append(time.time())
            islands.strike(kind, group, chance)
            islands.wait_until_whole()
            back.append(time.time() - moments[-1])
            done[kind] = done.get(kind, 0) + 1
            print(
                f"{groups} groups of {pods} pods, kill {number + 1:2} {kind:8} of {group}: "
                f"at step {step}, back after {back[-1]:.1f} s",
                file=sys.stderr,
            )
        (folder / "hurry").touch()
        codes = job.exit_codes(300)
        result = job.result()
    logs = sorted(folder.glob("steps-*.jsonl"))
    steps = read_steps(logs)
    stalls = [gap for moment in moments if (gap := gap_after(steps, moment)) is not None]
    return {
        "groups": groups,
        "pods": pods,
        "processes": PROCESSES,
        "kills": sum(done.values()),
        "kinds": done,
        "exit_codes": sorted(set(codes.values())),
        "steps": len(steps),
        "steps_expected": epochs * STEPS_PER_EPOCH,
        "steps_undone": undone(logs),
        "samples_missing": epochs * SAMPLES - int(result["samples_seen"]),
        "samples_lost": result["samples_lost"],
        "samples_repeated": result["samples_repeated"],
        "stall_seconds_median": round(median(stalls), 2) if stalls else None,
        "stall_seconds_worst": round(max(stalls), 2) if stalls else None,
        "back_seconds_median": round(median(back), 1) if back else None,
        "epochs": epochs,
    }


def calm(groups: int, pods: int, epochs: int, folder: Path) -> list[Committed]:
    """The same training, as fast as it goes and without a kill."""
    with running_job(folder) as job:
        (folder / "hurry").touch()
        islands = Islands(job, groups, pods, epochs)
        for group in islands.groups:
            islands.start(group)
        codes = job.exit_codes(600)
        assert set(codes.values()) == {0}, job.logs()
    return read_steps(folder.glob("steps-*.jsonl"))


def run(groups: int, pods: int, kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """With and without kills; the figures."""
    for name in ("disturbed", "calm"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    row = disturbed(groups, pods, kills, random.Random(seed), folder / "disturbed")
    undisturbed = calm(groups, pods, row.pop("epochs"), folder / "calm")
    logs = sorted((folder / "disturbed").glob("steps-*.jsonl"))
    whole = wholly_logged(logs)
    found = [step for step in read_steps(logs) if step.step in whole]
    apart = compare(undisturbed, found)
    row["loss_apart"] = apart["largest_loss_difference"]
    row["loss_steps_compared"] = int(apart["steps_compared"])
    row["loss_first"], row["loss_last"] = (round(found[place].loss, 4) for place in (0, -1))
    return row


def goals_of(row: dict[str, Any], kills: int) -> list[Goal]:
    """What one row has to reach."""
    name = f"{row['groups']} groups of {row['pods']} pods"
    exact = ("steps_undone", "samples_missing", "samples_lost", "samples_repeated")
    found = [at_most(f"{name}: {each}", 0, row[each]) for each in exact]
    return [
        *found,
        Goal(f"{name}: kills", f"{kills}", row["kills"], row["kills"] == kills),
        Goal(f"{name}: exit codes", "[0]", row["exit_codes"], row["exit_codes"] == [0]),
        Goal(
            f"{name}: steps",
            f"{row['steps_expected']}",
            row["steps"],
            row["steps"] == row["steps_expected"],
        ),
        at_least(
            f"{name}: losses compared",
            row["steps_expected"] - row["kills"] - row["kinds"].get("newcomer", 0),
            row["loss_steps_compared"],
        ),
        at_most(f"{name}: loss apart", 0.005, row["loss_apart"]),
    ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--groups",
        metavar="GROUPSxPODS",
        nargs="+",
        default=["2x1", "3x1"],
        help="replica groups, and of how many pods each: 2x1",
    )
    parser.add_argument("--kills", type=int, default=50, help="over all of these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep logs here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load = psutil.getloadavg()[0]
    rows, goals = [], []
    share = [options.kills // len(options.groups)] * len(options.groups)
    share[0] += options.kills - sum(share)
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for shape, kills in zip(options.groups, share, strict=True):
            groups, pods = map(int, shape.split("x"))
            within = folder.absolute() / f"groups-{shape}"
            rows.append(run(groups, pods, kills, options.seed + groups, within))
            goals += goals_of(rows[-1], kills)
    result = {"seed": options.seed, "load": round(load, 1), "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
