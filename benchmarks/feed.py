"""How a training program is fed: torch's DataLoader beside the same loader under Penstock.

    python -m benchmarks.feed --json --workers 1,2,4,8,12,14

The systems: ``torch`` is the program alone, ``local`` the same program under ``penstock run``, its
``num_workers`` being local workers, ``data`` the same with ``num_workers=0`` and as many data
workers. The pipelines: ``jpeg`` (read, decode, crop, flip, normalise), ``ready`` (samples that are
there already, in large batches), ``sleep`` (the same, but each batch takes ``--sleep-seconds`` of
waiting), ``text`` (tokenising), ``small`` (64 KB batches). With a GPU the step is ResNet-50 in
bfloat16 (jpeg) or the copy to the device, and batches are pinned; without one it is a look at every
page of the batch, and a pause of ``--step-ms``.

All systems have the same settings, cores and allocator, and take turns; figures are medians of
``--rounds`` windows that begin when every worker has made a batch and what lay in the queues has
been taken. Where the batches of all systems together are too much for the memory, each window is
of a process of its own, started anew. ``cpu_ms_per_image`` is of all processes, ``peak_mb`` the
training process's most resident memory, shared memory included, ``tree_peak_mb`` what all
processes have together after a window, each page counted once. ``charged_mb`` is the most that
their cgroup was ever charged for, batches on their way between processes included (null without the
right to make a cgroup), and ``pod_mb`` that of the training pod: of ``data`` the training process
alone, its workers being elsewhere. ``of_linear`` is the speed by that of so many times DataLoader's
one worker.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import psutil

from benchmarks.feeding import pipelines
from benchmarks.feeding.feeder import SYSTEMS, Load, Window, running
from benchmarks.goals import Goal, at_least, at_most, report, table

PICTURES: Final = 64
BATCHES_HELD: Final = 4
"""Per worker, in estimates of memory: asked for twice, and being made."""
LARGE_BATCH_MB: Final = 300
SMOOTH: Final = ("images_per_second", "cpu_ms_per_image", "training_cores", "wait_share", "makers")
MEMORY: Final = ("peak_mb", "tree_peak_mb", "charged_mb")
Row = dict[str, Any]


class Accelerator:
    """What the figures depend on: the GPU, if there is one, and the cores."""

    def __init__(self) -> None:
        import torch

        self.there = torch.cuda.is_available()
        self.name = torch.cuda.get_device_name() if self.there else ""
        self.cores = len(os.sched_getaffinity(0))

    @property
    def has_goals(self) -> bool:
        """Whether it is the machine that the GPU's goals were set for."""
        return any(name in self.name for name in ("H100", "H200")) and self.cores >= 16


def load_of(kind: str, workers: int, options: argparse.Namespace, folder: Path) -> Load:
    """What all systems are to do with so many workers."""
    samples = pipelines.batch_samples(kind, options)
    arguments = [f"--pipeline={kind}", f"--batch={samples}", f"--data={folder}"]
    arguments += [f"--sleep-seconds={options.sleep_seconds}", f"--step-ms={options.step_ms}"]
    if options.pin:
        arguments.append("--pin")
    return Load(
        workers,
        tuple(arguments),
        settle_batches=3 * workers,
        settle_seconds=options.settle_seconds,
        # Workers that sleep deliver in bursts of what they are asked for at once, two batches each.
        multiple=2 * workers if kind == "sleep" else 1,
    )


def fit_together(kind: str, workers: int, options: argparse.Namespace) -> bool:
    """Whether the memory suffices for all systems' batches at once."""
    size = pipelines.batch_bytes(kind, pipelines.batch_samples(kind, options))
    needed = size * workers * BATCHES_HELD * len(options.systems)
    return bool(needed < psutil.virtual_memory().available / 2)


def measure(kind: str, workers: int, options: argparse.Namespace, folder: Path) -> list[Row]:
    """The rows of one pipeline with so many workers, one for each system."""
    load, systems = load_of(kind, workers, options, folder), list(options.systems)
    windows: dict[str, list[Window]] = {name: [] for name in systems}
    turns = [systems if turn % 2 == 0 else systems[::-1] for turn in range(options.rounds)]
    together = fit_together(kind, workers, options)
    if together:
        with ExitStack() as stack:
            feeders = {name: stack.enter_context(running(name, load)) for name in systems}
            for turn in turns:
                for name in turn:
                    feeders[name].measure(options.seconds)
            windows = {name: feeder.windows for name, feeder in feeders.items()}
    else:
        for turn in turns:
            for name in turn:
                with running(name, load) as feeder:
                    feeder.measure(options.seconds)
                windows[name] += feeder.windows
    return [row_of(kind, workers, name, windows[name], options, together) for name in systems]


def row_of(
    kind: str,
    workers: int,
    system: str,
    windows: Sequence[Window],
    options: argparse.Namespace,
    together: bool,
) -> Row:
    """A system's medians; memory is the most of all windows."""
    samples = pipelines.batch_samples(kind, options)
    size = pipelines.batch_bytes(kind, samples)
    found = {key: median(window[key] or 0.0 for window in windows) for key in SMOOTH}
    memory = {key: _most(window[key] for window in windows) for key in MEMORY}
    whole = memory["charged_mb"] if system != "data" else None
    return {
        "pipeline": kind,
        "batch_mb": round(size / 1e6, 2),
        "workers": workers,
        "system": system,
        **{key: round(value, 3) for key, value in found.items()},
        "gb_per_second": round(found["images_per_second"] / samples * size / 1e9, 3),
        **memory,
        "pod_mb": memory["peak_mb"] if whole is None else whole,
        "together": together,
    }


def _most(amounts: Iterable[float | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return round(max(known)) if known else None


def compare(rows: list[Row]) -> None:
    """Put each row beside DataLoader's with as many workers, and beside its one worker."""
    theirs = {(r["pipeline"], r["workers"]): r for r in rows if r["system"] == "torch"}
    for row in rows:
        beside = theirs.get((row["pipeline"], row["workers"]))
        one = theirs.get((row["pipeline"], 1))
        rate = row["images_per_second"]
        row["of_torch"] = round(rate / beside["images_per_second"], 3) if beside else None
        row["of_linear"] = (
            round(rate / (row["workers"] * one["images_per_second"]), 3) if one else None
        )
        for key in (*MEMORY, "pod_mb"):
            known = beside and row[key] is not None and beside[key]
            row[f"{key}_of_torch"] = round(row[key] / beside[key], 3) if beside and known else None


def step_rate(options: argparse.Namespace, folder: Path) -> float | None:
    """Images per second that ResNet-50 allows, its batch on the GPU already."""
    if "jpeg" not in options.pipelines:
        return None
    with running("torch", load_of("jpeg", 2, options, folder)) as feeder:
        return round(median(feeder.step_rate(options.seconds) for _ in range(options.rounds)), 1)


def sleep_goals(rows: Sequence[Row]) -> list[Goal]:
    """Large batches and workers that wait: they add up, whatever the machine."""
    counts = {row["workers"] for row in rows if row["pipeline"] == "sleep"} - {1}
    if not counts:
        return []
    most = 12 if 12 in counts else max(counts)
    goals = []
    for row in rows:
        if (row["pipeline"], row["workers"]) != ("sleep", most) or row["system"] == "torch":
            continue
        name = f"sleep, {most} workers, {row['system']}"
        if row["of_linear"] is not None:
            goals.append(at_least(f"{name}: of linear", 0.97, row["of_linear"]))
        goals.append(at_most(f"{name}: pod's memory, of DataLoader's", 1.1, row["pod_mb_of_torch"]))
    return goals


def gpu_goals(rows: Sequence[Row], limit: float | None) -> list[Goal]:
    """What was set for a GPU that 16 cores feed."""
    goals = []
    one = {
        (row["pipeline"], row["system"]): row["images_per_second"]
        for row in rows
        if row["workers"] == 1
    }
    for system in SYSTEMS[1:]:
        ours = [row for row in rows if row["system"] == system]
        pictures = [row for row in ours if row["pipeline"] == "jpeg"]
        ratios = [row["of_torch"] for row in pictures if row["of_torch"] is not None]
        if ratios:
            name = f"jpeg, {system}: of DataLoader"
            goals.append(at_least(f"{name}, mean", 1.0, round(mean(ratios), 3)))
            goals.append(at_least(f"{name}, each", 0.97, min(ratios)))
        if pictures and limit is not None and ("jpeg", "torch") in one:
            base = one["jpeg", "torch"]
            shares = [r["images_per_second"] / min(limit, r["workers"] * base) for r in pictures]
            name = f"jpeg, {system}: of the least of GPU and workers"
            goals.append(at_least(name, 0.95, round(min(shares), 3)))
        memory = [row["pod_mb_of_torch"] for row in ours if row["pod_mb_of_torch"] is not None]
        if memory:
            goals.append(at_most(f"{system}: pod's memory, of DataLoader's", 1.1, max(memory)))
        large = [
            row for row in ours if row["pipeline"] == "ready" and row["batch_mb"] >= LARGE_BATCH_MB
        ]
        if large:
            best = max(large, key=lambda row: row["gb_per_second"])
            goals.append(at_least(f"ready, {system}: GB/s", 8.0, best["gb_per_second"]))
            goals.append(at_most(f"ready, {system}: training's cores", 0.3, best["training_cores"]))
    return goals


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2,4,8,12,14", help="numbers of workers")
    parser.add_argument("--pipelines", default=",".join(pipelines.KINDS), help="some of them")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a window, at least")
    parser.add_argument("--settle-seconds", type=float, default=1.5)
    parser.add_argument("--batch-mb", type=float, default=150.0, help="of ready and sleep")
    parser.add_argument("--jpeg-batch", type=int, help="images; 256 with a GPU, otherwise 32")
    parser.add_argument("--sleep-seconds", type=float, default=2.0, help="of each batch of sleep")
    parser.add_argument("--step-ms", type=float, default=0.0, help="without a GPU")
    parser.add_argument("--no-pin", action="store_true", help="with a GPU: do not pin batches")
    parser.add_argument("--seed", type=int, default=0, help="of the pictures")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    for name, known in (("pipelines", pipelines.KINDS), ("systems", SYSTEMS)):
        wanted = getattr(options, name).split(",")
        if unknown := [one for one in wanted if one not in known]:
            parser.error(f"--{name}: {unknown}; choose from {', '.join(known)}")
        setattr(options, name, wanted)
    try:
        options.workers = [int(number) for number in options.workers.split(",")]
    except ValueError:
        parser.error(f"--workers: {options.workers!r}; give numbers, as in 1,2,4")
    if min(options.workers) < 1:
        parser.error(f"--workers: {min(options.workers)}; must be at least 1")
    return options


def main() -> int:
    options = parse()
    accelerator = Accelerator()
    options.pin = accelerator.there and not options.no_pin
    options.jpeg_batch = options.jpeg_batch or (256 if accelerator.there else 32)
    load, rows = [os.getloadavg()[0]], list[Row]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "jpeg" in options.pipelines:
            pipelines.write_pictures(folder, PICTURES, options.seed)
        limit = step_rate(options, folder) if accelerator.there else None
        for kind in options.pipelines:
            for workers in options.workers:
                found = measure(kind, workers, options, folder)
                load.append(os.getloadavg()[0])
                print(table(found), file=sys.stderr, flush=True)
                rows += found
    compare(rows)
    goals = sleep_goals(rows)
    left_out = []
    if accelerator.has_goals:
        goals += gpu_goals(rows, limit)
    else:
        left_out = ["goals for an H100 or H200 with 16 cores: there is none here"]
    result = {
        "seed": options.seed,
        "load": load,
        "gpu": accelerator.name,
        "cores": accelerator.cores,
        "torchvision": pipelines.has_torchvision(),
        "gpu_limit_images_per_second": limit,
        "rows": rows,
        "left_out": left_out,
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
