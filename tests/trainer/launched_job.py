"""A job whose pods run one DDP script, and what its processes have written of their steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.elastic.processes import ROOT, Job

SCRIPT: Final = str(ROOT / "benchmarks" / "dropin_programs" / "train.py")


def steps(folder: Path) -> list[dict[str, Any]]:
    """All steps of all processes, in the order of time."""
    found = [
        json.loads(line)
        for path in folder.glob("steps-*.jsonl")
        for line in path.read_text().splitlines()
        if line.endswith("}")
    ]
    return sorted(found, key=lambda step: float(step["time"]))


def wait_for_world(job: Job, size: int, after: float = 0.0) -> float:
    """Wait until every rank of a world of this size has trained since; when the last one did."""

    def trained() -> float:
        new = [step for step in steps(job.folder) if step["time"] > after and step["world"] == size]
        return float(new[-1]["time"]) if {step["rank"] for step in new} == set(range(size)) else 0.0

    return float(job.wait_for(trained, 180, f"a world of {size}"))


def launch(job: Job, rank: int, processes: int = 1) -> None:
    job.start_worker(rank, SCRIPT, str(job.folder), options=(f"--nproc-per-node={processes}",))


def assert_ends_well(job: Job) -> None:
    (job.folder / "stop").touch()
    assert set(job.exit_codes(180).values()) == {0}, job.logs()
    assert job.trainer is not None
    assert job.trainer.wait(120) == 0, job.logs()
